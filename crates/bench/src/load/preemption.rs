//! How soon a reactive request begins while the machine is as busy as it gets.
//!
//! One long proactive prompt is always being read (the next begins when one ends) and eight proactive requests decode,
//! while short reactive requests come at random. What counts is the time from admission to the launch of the first
//! kernel, which the engine samples; so this is measured in process only.

use super::arrivals::{Stream, poisson};
use super::job::{Ending, Job, Message, Role, Tier};
use super::prose;
use super::sampled::{PreemptMs, waits_ms};
use super::stage::{Slice, Stage, Timing, play};
use super::subject::Subject;
use super::summary::{Sample, Summary};
use super::workload::Prompt;
use super::{LoadError, Progress};
use duet_types::{Class, Tokens};
use serde::Serialize;
use std::time::Duration;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Preemption {
    /// From admission to the first kernel; absent where the engine sampled nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preempt_ms: Option<PreemptMs>,
    /// The short requests as their clients saw them.
    pub(crate) reactive: Summary,
    /// Tokens of each long prompt.
    pub(crate) long_prompt_tokens: u32,
    /// Long prompts that were read to the end meanwhile.
    pub(crate) long_prompts_read: usize,
    /// Every wait, for plots.
    #[serde(skip)]
    pub(crate) waits_ms: Sample,
}

/// Plays it for `window`.
pub(crate) fn preemption(
    subject: &Subject,
    window: Duration,
    seed: u64,
    progress: Progress<'_>,
) -> Result<Preemption, LoadError> {
    progress("preemption: short reactive requests while a long prompt is read and eight requests decode");
    let long_prompt = match subject {
        Subject::Engine { model, config } => {
            let context = config.context.unwrap_or(model.config().context).min(model.config().context);
            LONG_PROMPT.min(context.saturating_sub(Tokens(ROOM)))
        }
        Subject::Server(_) => LONG_PROMPT,
    };
    let prompts: Vec<Prompt> = QUESTIONS.iter().map(|question| prompt(question, SHORT_ANSWER)).collect();
    let arrivals = poisson(Class::Reactive, REACTIVE_A_MINUTE, window, &prompts, seed);
    let person = |stage: &Stage<'_>| stage.play_arrivals(&arrivals);
    let reader = |stage: &Stage<'_>| {
        for index in 0.. {
            let text = prose::log(subject, long_prompt, seed + index);
            let job = background(index as usize, &format!("Summarise this log.\n{text}"), SHORT_ANSWER);
            if stage.is_closed() || stage.send(&job).is_none() {
                break;
            }
        }
    };
    let tasks: Vec<Prompt> = TASKS.iter().map(|task| prompt(task, LONG_ANSWER)).collect();
    let stream = Stream::new(Class::Proactive, &tasks, seed);
    let decoders = |stage: &Stage<'_>| stage.keep_in_flight(DECODING, &stream);
    let timing = Timing { warm_up: Duration::from_secs(2), window, drain: Duration::from_secs(20) };
    let slice = [play(subject, timing, &[&person], &[&reader, &decoders])?];
    Ok(Preemption {
        preempt_ms: PreemptMs::of(&slice),
        reactive: Summary::of(Class::Reactive, &slice),
        long_prompt_tokens: long_prompt.0,
        long_prompts_read: long_prompts_read(&slice[0], long_prompt),
        waits_ms: waits_ms(&slice),
    })
}

fn long_prompts_read(slice: &Slice, long_prompt: Tokens) -> usize {
    slice.whole(Class::Proactive).iter().filter(|record| record.prompt >= long_prompt).count()
}

fn prompt(text: &str, output: Tokens) -> Prompt {
    Prompt { messages: [Message::new(Role::User, text)].into(), output }
}

fn background(index: usize, text: &str, output: Tokens) -> Job {
    let messages = [Message::new(Role::User, text)].into();
    Job { class: Class::Proactive, index, tier: Tier::Declared, messages, output, ending: Ending::AllTokens }
}

/// Long enough to hold the machine for a second.
const LONG_PROMPT: Tokens = Tokens(3500);
/// Tokens kept free for the template and the answer.
const ROOM: u32 = 128;
/// Requests that decode.
const DECODING: usize = 8;
/// Enough for a 99th percentile within a minute, few enough that the background has most of the machine.
const REACTIVE_A_MINUTE: f64 = 240.0;
const SHORT_ANSWER: Tokens = Tokens(8);
const LONG_ANSWER: Tokens = Tokens(400);

const QUESTIONS: [&str; 6] = [
    "What is seven times eight?",
    "Which month comes after June?",
    "Say good morning in French.",
    "Name one colour of the rainbow.",
    "Is a whale a fish?",
    "How many days has a leap year?",
];

const TASKS: [&str; 4] = [
    "Write a long story about a lighthouse keeper who collects bottles.",
    "Explain in detail how bread is baked, step by step.",
    "List everything that one should pack for a winter hike, with reasons.",
    "Describe an imaginary city by the sea, its streets and its people.",
];
