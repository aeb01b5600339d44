//! What agents get of a server: calls that are valid and right, how fast they come, and how soon a second turn begins.
//!
//! The server is asked over HTTP, as agents ask it, so that any OpenAI-compatible one can stand in the same table. Every
//! timed request comes behind one that has brought its prompt into the server's cache: what is timed is decoding.

mod ask;
mod judge;
mod task;

use ask::{Asker, Said};
use judge::judge;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use task::Task;

pub use task::TaskError;

/// What to measure, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `http://HOST:PORT`, without `/v1`.
    pub url: String,
    /// Prompts with tools and the calls that are right, one JSON object a line.
    pub file: PathBuf,
    /// Prompts at most.
    pub limit: usize,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agents {
    /// The file's name.
    pub workload: String,
    /// Prompts.
    pub n: usize,
    /// Share of answers that are calls of the tools, with arguments that fit their schemas.
    pub valid: f64,
    /// Share of answers that call the right functions.
    pub right_function: f64,
    /// Share of answers that call them with the right arguments.
    pub right_arguments: f64,
    /// Tokens a second of text, median.
    pub tok_s_free: f64,
    /// Tokens a second of calls, median.
    pub tok_s_constrained: f64,
    /// Share of the calls' tokens that the grammar left no choice for; absent where the server does not tell.
    pub forced_share: Option<f64>,
    /// Calls over text.
    pub speedup: f64,
    /// From the second turn of a conversation with 20 tools to its first token.
    pub second_turn_ttft_s: f64,
    /// The same with instructions that begin with the time of day, another one in each turn.
    pub second_turn_clock_ttft_s: f64,
    /// Tokens a second of text that is held to a grammar of any text, over those of free text: one answer at once, and eight
    /// together; absent where the server knows no such grammars.
    pub held_over_free: Option<[f64; 2]>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum AgentsError {
    /// The file.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The server.
    #[error("{url}: {problem}")]
    Server {
        /// Where it is.
        url: String,
        /// What went wrong.
        problem: String,
    },
}

/// Measures a server that runs.
///
/// # Errors
/// [`AgentsError`].
pub fn run(settings: &Settings, progress: &dyn Fn(&str)) -> Result<Agents, AgentsError> {
    let tasks = task::read(&settings.file, settings.limit)?;
    let asker = Asker::new(&settings.url);
    let ask =
        |body: Value| asker.ask(&body).map_err(|problem| AgentsError::Server { url: settings.url.clone(), problem });
    let (mut judged, mut constrained, mut free) = (Vec::new(), Vec::new(), Vec::new());
    let (mut forced, mut generated) = (None, 0);
    for (index, task) in tasks.iter().enumerate() {
        progress(&format!("prompt {} of {}", index + 1, tasks.len()));
        let call = json!({"messages": task.messages, "tools": task.tools, "tool_choice": "required"});
        let said = timed(&ask, &call, CALL_TOKENS)?;
        judged.push(judge(&said.calls, task));
        constrained.push(said.rate());
        generated += said.tokens;
        forced = said.forced.map(|count| forced.unwrap_or(0) + count).or(forced);
        let text = timed(&ask, &json!({"messages": task.messages}), said.tokens.max(16))?;
        free.push(text.rate());
    }
    progress("second turns");
    let turns = |clock| second_turn(&asker, &tasks, clock);
    let failed = |problem| AgentsError::Server { url: settings.url.clone(), problem };
    let (plain, clock) = (turns(Clock::Still).map_err(failed)?, turns(Clock::Running).map_err(failed)?);
    progress("text held to a grammar");
    let share =
        |is: fn(&judge::Judged) -> bool| judged.iter().filter(|one| is(one)).count() as f64 / judged.len() as f64;
    let (tok_s_free, tok_s_constrained) = (median(free), median(constrained));
    Ok(Agents {
        workload: settings.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        n: tasks.len(),
        valid: share(|one| one.is_valid),
        right_function: share(|one| one.has_right_functions),
        right_arguments: share(|one| one.has_right_arguments),
        tok_s_free,
        tok_s_constrained,
        forced_share: forced.map(|count| f64::from(count) / f64::from(generated.max(1))),
        speedup: tok_s_constrained / tok_s_free,
        second_turn_ttft_s: plain,
        second_turn_clock_ttft_s: clock,
        held_over_free: held_over_free(&asker),
    })
}

/// An answer whose prompt the server has read before.
fn timed(ask: &dyn Fn(Value) -> Result<Said, AgentsError>, body: &Value, tokens: u32) -> Result<Said, AgentsError> {
    let with = |tokens: u32| {
        let mut body = body.clone();
        body["max_tokens"] = tokens.into();
        body["temperature"] = 0.into();
        body
    };
    ask(with(1))?;
    ask(with(tokens))
}

/// Whether instructions begin with the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Still,
    Running,
}

/// Seconds to the first token of a second turn, with the tools of several tasks.
fn second_turn(asker: &Asker, tasks: &[Task], clock: Clock) -> Result<f64, String> {
    let mut tools: Vec<&Value> = Vec::new();
    for tool in tasks.iter().flat_map(|task| &task.tools) {
        let name = |tool: &Value| tool["function"]["name"].clone();
        if tools.len() < SECOND_TURN_TOOLS && tools.iter().all(|other| name(other) != name(tool)) {
            tools.push(tool);
        }
    }
    let mut times = Vec::new();
    for round in 0..SECOND_TURNS {
        let system = |minute: usize| match clock {
            Clock::Still => format!("You are the assistant of house {round}. Be brief."),
            Clock::Running => {
                format!("Current time is 10:{minute:02}:00.\nYou are the assistant of house {round}. Be brief.")
            }
        };
        let turn = |minute: usize, rest: &[Value]| {
            let messages: Vec<Value> = std::iter::once(json!({"role": "system", "content": system(minute)}))
                .chain(rest.iter().cloned())
                .collect();
            json!({"messages": messages, "tools": tools, "temperature": 0, "max_tokens": 16})
        };
        let question = json!({"role": "user", "content": "Good morning! Who are you?"});
        let first = asker.ask(&turn(10 + 2 * round, std::slice::from_ref(&question)))?;
        let answer = json!({"role": "assistant", "content": first.text});
        let more = json!({"role": "user", "content": "And what can you do for me today?"});
        times.push(asker.first_token(&turn(11 + 2 * round, &[question, answer, more]))?);
    }
    Ok(median(times))
}

/// Tokens a second of a text that is held to what any text is, over those of a free one. Both say the same.
fn held_over_free(asker: &Asker) -> Option<[f64; 2]> {
    let body = |grammar: Option<&str>, which: usize| {
        let text = format!("Tell me a long story about ship number {which} and its crew, in many sentences.");
        let mut body = json!({"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 96});
        if let Some(grammar) = grammar {
            body["guided_regex"] = grammar.into();
        }
        body
    };
    let rate = |grammar: Option<&str>, at_once: usize| -> Option<f64> {
        let bodies: Vec<Value> = (0..at_once).map(|which| body(grammar, which)).collect();
        let start = std::time::Instant::now();
        let said: Vec<Option<Said>> = std::thread::scope(|scope| {
            let asking: Vec<_> = bodies.iter().map(|body| scope.spawn(|| asker.ask(body).ok())).collect();
            asking.into_iter().map(|asking| asking.join().ok().flatten()).collect()
        });
        let tokens: Option<u32> = said.into_iter().map(|said| Some(said?.tokens)).sum();
        Some(f64::from(tokens?) / start.elapsed().as_secs_f64())
    };
    let ratio = |at_once: usize| {
        // In turns, so that the machine's drift meets both alike; the first two bring prompts into the cache.
        rate(None, at_once)?;
        rate(Some(ANY_TEXT), at_once)?;
        let ratios: Option<Vec<f64>> = (0..HELD_ROUNDS)
            .map(|_| Some((rate(None, at_once)?, rate(Some(ANY_TEXT), at_once)?)))
            .map(|pair| pair.map(|(free, held)| held / free))
            .collect();
        ratios.map(median)
    };
    Some([ratio(1)?, ratio(8)?])
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    match of.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => of[len / 2],
        len => (of[len / 2 - 1] + of[len / 2]) / 2.0,
    }
}

/// Tokens of a call at most.
const CALL_TOKENS: u32 = 256;
/// Tools of an agent.
const SECOND_TURN_TOOLS: usize = 20;
/// Conversations whose second turns are timed.
const SECOND_TURNS: usize = 5;
/// Pairs of free and held answers.
const HELD_ROUNDS: usize = 5;
/// A grammar that every text is of.
const ANY_TEXT: &str = "[\\s\\S]*";
