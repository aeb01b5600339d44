//! Two traces that people complain of elsewhere, as stock OpenAI clients send them.
//!
//! `heartbeat`: an agent's long turns arrive every few seconds while a person chats. `titles`: after every answer of a
//! chat, the chat program itself asks for a title and for tags, with the whole chat in one message and without saying
//! that nobody waits. Either way the chat should be as fast as alone, and its next turn should find what was read.

use super::arrivals::Arrival;
use super::job::{Ending, Job, Message, Role, Tier};
use super::prose;
use super::stage::{Slice, Stage, Timing, play};
use super::subject::Subject;
use super::summary::{Summary, ratio};
use super::{LoadError, Progress};
use duet_model::kv::PAGE_TOKENS;
use duet_types::{Bytes, Class, Tokens};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// What was found of one trace.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    /// Its name.
    pub(crate) trace: &'static str,
    /// The policy or the server.
    pub(crate) policy: String,
    /// Turns of the chat that ended well beside the others.
    pub(crate) n: usize,
    /// The chat with nothing beside it.
    pub(crate) alone: Summary,
    /// The same chat beside the others.
    pub(crate) chat: Summary,
    /// What was beside it.
    pub(crate) others: Summary,
    /// Mean latency of the chat over that alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean_ratio: Option<f64>,
    /// Of the second turns' prompts, the share that was not computed; absent where the server does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) second_turn_cached: Option<f64>,
    /// Whether every second turn found what the first had read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) second_turn_hit: Option<bool>,
}

/// The traces there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    Heartbeat,
    Titles,
}

impl Trace {
    pub(crate) const ALL: [Self; 2] = [Self::Heartbeat, Self::Titles];

    fn name(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Titles => "titles",
        }
    }
}

/// Plays a trace with `chats` chats, each alone and beside the others.
pub(crate) fn case(
    subject: &Subject,
    trace: Trace,
    chats: usize,
    seed: u64,
    progress: Progress<'_>,
) -> Result<Case, LoadError> {
    let subject = match trace {
        Trace::Heartbeat => subject.clone(),
        Trace::Titles => with_little_memory(subject),
    };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 0..chats {
        progress(&format!("{}, chat {} of {chats}", trace.name(), round + 1));
        let chat = Chat::new(round);
        let heartbeats = heartbeats(&subject, seed + round as u64);
        let mut play_alone = || -> Result<(), LoadError> {
            alone.push(play(&subject, TIMING, &[&|stage| chat.talk(stage, &|_, _| {})], &[])?);
            Ok(())
        };
        let mut play_beside = || -> Result<(), LoadError> {
            let agent = |stage: &Stage<'_>| stage.play_arrivals(&heartbeats);
            beside.push(match trace {
                Trace::Heartbeat => play(&subject, TIMING, &[&|stage| chat.talk(stage, &|_, _| {})], &[&agent])?,
                Trace::Titles => play(&subject, TIMING, &[&|stage| chat.talk(stage, &ask_for_titles)], &[])?,
            });
            Ok(())
        };
        if round % 2 == 0 {
            play_alone()?;
            play_beside()?;
        } else {
            play_beside()?;
            play_alone()?;
        }
    }
    Ok(found(&subject, trace, &alone, &beside))
}

fn found(subject: &Subject, trace: Trace, alone: &[Slice], beside: &[Slice]) -> Case {
    let (quiet, chat) = (Summary::of(Class::Reactive, alone), Summary::of(Class::Reactive, beside));
    let turns: Vec<_> = beside.iter().filter_map(second_turn).collect();
    let share = |turn: &SecondTurn| turn.cached / turn.prompt.max(1.0);
    Case {
        trace: trace.name(),
        policy: subject.name(),
        n: chat.n,
        mean_ratio: ratio(chat.mean_s, quiet.mean_s),
        second_turn_cached: (!turns.is_empty()).then(|| turns.iter().map(share).sum::<f64>() / turns.len() as f64),
        second_turn_hit: (!turns.is_empty())
            .then(|| turns.len() == beside.len() && turns.iter().all(SecondTurn::is_hit)),
        others: Summary::of(Class::Proactive, beside),
        alone: quiet,
        chat,
    }
}

/// Tokens of a chat's second turn.
#[derive(Clone, Copy, Debug)]
struct SecondTurn {
    prompt: f64,
    cached: f64,
    /// The first turn's prompt.
    read_before: f64,
}

impl SecondTurn {
    /// Whether nearly all was kept that the first turn had read. (A cache may hold whole pages only.)
    fn is_hit(&self) -> bool {
        self.cached >= self.read_before * 0.9 - PAGE_TOKENS as f64
    }
}

/// `None` if it did not end, or the server does not say what it computed.
fn second_turn(slice: &Slice) -> Option<SecondTurn> {
    let turns = slice.whole(Class::Reactive);
    let turn = |index| turns.iter().find(|record| record.index == index);
    let (first, second) = (turn(0)?, turn(1)?);
    let count = |tokens: Tokens| f64::from(tokens.0);
    Some(SecondTurn { prompt: count(second.prompt), cached: count(second.cached?), read_before: count(first.prompt) })
}

/// A person's chat: each turn is typed after the answer to the one before.
struct Chat {
    system: String,
    turns: &'static [&'static str],
}

impl Chat {
    fn new(round: usize) -> Self {
        // The day makes every round's chat a new one.
        let system = format!("Today is day {} of the year. {SYSTEM}", round + 1);
        Self { system, turns: CHATS[round % CHATS.len()] }
    }

    /// Has the chat. `answered` is called while the person thinks, with the history up to the answer.
    fn talk(&self, stage: &Stage<'_>, answered: &(dyn Fn(&Stage<'_>, &[Message]) + Sync)) {
        let mut history = vec![Message::new(Role::System, self.system.as_str())];
        stage.pause(THINKING);
        for (index, turn) in self.turns.iter().enumerate() {
            history.push(Message::new(Role::User, *turn));
            // The chat program is a stock client: it says no class.
            let job = Job {
                class: Class::Reactive,
                index,
                tier: Tier::Unsaid,
                messages: history.clone().into(),
                output: ANSWER,
                ending: Ending::EndOfTurn,
            };
            let Some(answer) = stage.send(&job) else { return };
            history.push(Message::new(Role::Assistant, answer.text));
            std::thread::scope(|scope| {
                scope.spawn(|| answered(stage, &history));
                stage.pause(THINKING);
            });
        }
    }
}

/// Both at once, as web interfaces do. They are counted as background, but do not say so.
fn ask_for_titles(stage: &Stage<'_>, history: &[Message]) {
    let said = |message: &Message| match message.role {
        Role::System => String::new(),
        role => format!("{}: {}\n", role.name().to_uppercase(), message.content),
    };
    let chat: String = history.iter().map(said).collect();
    std::thread::scope(|scope| {
        for (index, task) in [TITLE_TASK, TAGS_TASK].into_iter().enumerate() {
            let content = format!("{task}\n\nThe chat:\n{chat}");
            let messages = [Message::new(Role::User, content)].into();
            let job = Job {
                class: Class::Proactive,
                index,
                tier: Tier::Unsaid,
                messages,
                output: Tokens(24),
                ending: Ending::EndOfTurn,
            };
            scope.spawn(move || stage.send(&job));
        }
    });
}

/// An agent's turns: its conversation grows until it is cut, and grows again.
fn heartbeats(subject: &Subject, seed: u64) -> Vec<Arrival> {
    let start = prose::log(subject, HEARTBEAT_SHORTEST, seed);
    let beats = |index: u64| prose::log(subject, HEARTBEAT_GROWTH, seed + 1 + index);
    (0..HEARTBEATS)
        .map(|index| {
            let first = index - index % HEARTBEATS_UNCUT;
            let mut history = vec![
                Message::new(Role::System, HEARTBEAT_SYSTEM),
                Message::new(Role::User, format!("Session {first}. The last day:\n{start}")),
            ];
            for beat in first..index {
                history.push(Message::new(Role::Assistant, "Nothing to report."));
                history.push(Message::new(Role::User, format!("Since then:\n{}", beats(beat))));
            }
            let messages: Arc<[Message]> = history.into();
            let (class, tier, ending) = (Class::Proactive, Tier::Declared, Ending::AllTokens);
            let job = Job { class, index: index as usize, tier, messages, output: HEARTBEAT_ANSWER, ending };
            Arrival { at: HEARTBEAT_APART * index as u32, job }
        })
        .collect()
}

/// KV for one context and no more: whoever keeps the wrong conversation loses the chat.
fn with_little_memory(subject: &Subject) -> Subject {
    let Subject::Engine { model, config } = subject else { return subject.clone() };
    let context = model.config().context.min(LITTLE_CONTEXT);
    let page = model.kv_pool(config.kv_format, Tokens(PAGE_TOKENS as u32)).page_bytes();
    let pages = u64::from(context.0).div_ceil(PAGE_TOKENS as u64);
    subject.with(|config| {
        config.context = Some(context);
        config.kv_bytes = Some(Bytes(page.0 * pages));
    })
}

/// A slice ends with its chat.
const TIMING: Timing = Timing { warm_up: Duration::ZERO, window: Duration::ZERO, drain: Duration::from_secs(180) };
/// How long the person reads and types.
const THINKING: Duration = Duration::from_millis(1500);
const ANSWER: Tokens = Tokens(80);
/// Holds a chat and its title requests only if they share what they can and old ones go first.
const LITTLE_CONTEXT: Tokens = Tokens(4096);

const HEARTBEAT_APART: Duration = Duration::from_secs(2);
const HEARTBEAT_SHORTEST: Tokens = Tokens(1400);
const HEARTBEAT_GROWTH: Tokens = Tokens(180);
const HEARTBEAT_ANSWER: Tokens = Tokens(160);
/// Turns until the conversation is cut back: by then it has some 3000 tokens.
const HEARTBEATS_UNCUT: u64 = 8;
/// More than any chat lasts on a machine that keeps up.
const HEARTBEATS: u64 = 60;

const HEARTBEAT_SYSTEM: &str = "You watch over a household's machines and wake up every few seconds. \
    Say what a person should act on, in one or two lines.";
const SYSTEM: &str = "You are a helpful assistant. Answer briefly, in two or three sentences.";
const TITLE_TASK: &str = "Task: write a title of three to five words for the chat below, in the chat's language. \
    Answer with the title only, without quotation marks.";
const TAGS_TASK: &str = "Task: write one to three tags that name the broad topics of the chat below, \
    separated by commas, in the chat's language. Answer with the tags only.";

/// Two chats; the first begins with a long text, so that losing it shows.
const CHATS: [&[&str]; 2] = [
    &[
        "Here are the notes of our allotment's spring meeting. The water is turned on in the second week of April, \
         if there is no frost; Anna reads the meters on that day. The path behind plots 9 to 15 floods after every \
         rain: Piet and Samira dig a drain on the last Saturday of March and need four more people, boots, and the \
         pump from the shed, which Olaf promised to repair and has not. The shed's lock was changed; keys are with \
         Olaf and with the treasurer. Plot 12 is given up in May, and there are five names on the waiting list; the \
         first is the Demir family, who asked for a plot near the gate. The fee goes up by six a year, because the \
         insurance went up; nobody was against it, two abstained. Chickens were discussed again. The vote was eleven \
         to nine against, as it was last year, and it was agreed not to vote on it again before the year after next. \
         The summer party is on the first Saturday of July, everybody brings a dish and their own chair. \
         Who has to do what before the water is turned on?",
        "Who is next to get a plot?",
        "Write a short reminder to Olaf about the pump.",
        "Now make it friendlier.",
    ],
    &[
        "I want to learn to bake bread with a sourdough starter. What do I need to begin?",
        "How do I know that the starter is ready?",
        "What temperature should the oven have?",
        "Give me a timetable for baking on a Saturday.",
    ],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::record::Record;
    use crate::load::summary::tests::{record, slice};

    #[test]
    fn a_second_turn_hits_if_it_finds_what_the_first_had_read() {
        let turn = |index, prompt, cached| Record {
            prompt: Tokens(prompt),
            cached,
            ..record(Class::Reactive, index, index as f64, 1.0)
        };
        let turns = |cached| slice(vec![turn(0, 1000, Some(Tokens(0))), turn(1, 1200, cached)]);
        assert!(second_turn(&turns(Some(Tokens(1000)))).unwrap().is_hit());
        assert!(!second_turn(&turns(Some(Tokens(100)))).unwrap().is_hit());
        assert!(second_turn(&turns(None)).is_none());
        assert!(second_turn(&slice(vec![])).is_none());
    }
}
