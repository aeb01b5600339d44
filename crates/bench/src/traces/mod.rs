//! Acceptance traces: what a real model accepts of real drafts, step by step and without a clock.
//!
//! Requests of a task come one after the other, as on the phones of the paper: the prompt is read in chunks, then every
//! pass verifies a draft, filled to the length that saturates the NPU. What is noted is what a simulation needs to know of
//! a step, so that time can be predicted for machines that are not here ([`duet_sim::Replayed`]). Earlier requests of the
//! task are the history of later ones. (CoordGen §3.1, §4.1; sd.npu §5.1)
//!
//! **Invariants:** every method answers with the same tokens, those of the model alone, and a trace is a function of the
//! model and the prompts: the number of threads changes nothing.

mod answer;
mod stream;
mod task;

pub(crate) use task::Task;

use crate::load::LoadError;
use answer::{Answer, Limits};
use duet_model::Model;
use duet_model::forward::PassError;
use duet_model::kv::{KvError, KvFormat};
use duet_sim::DraftStep;
use duet_speculate::confidence::Confidence;
use duet_speculate::history::add_interaction;
use duet_speculate::recycling::Recycled;
use duet_speculate::rejection::{Rejection, Rejections};
use duet_speculate::suffix_automaton::SuffixAutomaton;
use duet_speculate::{Known, Method, Speculator, WORTH_MIN};
use duet_types::{Bytes, TokenId, Tokens};
use std::collections::BTreeMap;
use std::sync::Arc;
use stream::{Prompt, Stream};

/// What makes the tokens.
#[derive(Clone, Copy, Debug)]
pub struct Tracer<'a> {
    /// The model.
    pub model: &'a Model,
    /// How its keys and values are stored.
    pub kv_format: KvFormat,
    /// Threads that run a pass of many rows. They change how long it takes, and nothing else.
    pub threads: usize,
    /// The longest answer.
    pub output: Tokens,
}

/// Why a trace could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The requests cannot be read, or the model cannot be asked so.
    #[error(transparent)]
    Workload(#[from] LoadError),
    /// No prompt of a file is one that the model can read and answer.
    #[error("--workload {file}: no prompt fits the model's context of {context} tokens")]
    NothingFits {
        /// The file.
        file: String,
        /// The context.
        context: Tokens,
    },
    /// The model refused a pass.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// There is no memory for keys and values.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// Drafting changed an answer, which it never may.
    #[error("request {request} of {task}: {method} answers with other tokens than the model alone")]
    Differs {
        /// Whose requests.
        task: String,
        /// Which of them, from 1.
        request: usize,
        /// How was drafted.
        method: Method,
    },
}

impl TraceError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Workload(error) => error.is_bad_input(),
            Self::NothingFits { .. } => true,
            Self::Pass(_) | Self::Kv(_) | Self::Differs { .. } => false,
        }
    }
}

/// All requests of a task under all methods.
#[derive(Clone, Debug)]
pub(crate) struct TaskTrace {
    /// Which task.
    pub(crate) task: Task,
    /// Its requests, in their order.
    pub(crate) requests: Vec<RequestTrace>,
    /// What all of them left for later ones to draft from.
    pub(crate) history_bytes: Bytes,
}

/// One request under all methods.
#[derive(Clone, Debug)]
pub(crate) struct RequestTrace {
    /// Length of its prompt.
    pub(crate) prompt: Tokens,
    /// Length of its answer.
    pub(crate) output: Tokens,
    methods: BTreeMap<Method, MethodTrace>,
}

/// One request under one method.
#[derive(Clone, Debug)]
pub(crate) struct MethodTrace {
    /// After the first token, which the prompt brings.
    pub(crate) steps: Vec<DraftStep>,
    /// Why drafts were rejected.
    pub(crate) rejections: Rejections,
    /// What the drafters of the request hold at its end.
    pub(crate) bytes: Bytes,
}

/// The methods that are traced: the paper's baselines, the paper's own, and ours.
pub(crate) const METHODS: [Method; 6] =
    [Method::None, Method::Pld, Method::PldDuet, Method::Sam, Method::CoordGen, Method::Duet];

impl RequestTrace {
    /// What became of it under a method.
    ///
    /// # Panics
    /// If the method is none of [`METHODS`].
    pub(crate) fn by(&self, method: Method) -> &MethodTrace {
        &self.methods[&method]
    }
}

impl Tracer<'_> {
    /// Runs the first `limit` requests of a task that fit the model.
    ///
    /// # Errors
    /// If its prompts cannot be asked, none of them fits, or an answer depends on the method.
    pub(crate) fn trace(&self, task: Task, limit: usize) -> Result<TaskTrace, TraceError> {
        let mut stream = Stream::new(self);
        let mut past = Past::default();
        let mut requests = Vec::new();
        for prompt in task.prompts(self.model)? {
            if requests.len() == limit {
                break;
            }
            if stream.room_after(&prompt) == 0 {
                continue;
            }
            let prompt = stream.read(prompt)?;
            let (answer, methods) = past.answer(&mut stream, &prompt, self.output).map_err(|refused| {
                let differs =
                    |method| TraceError::Differs { task: task.name.clone(), request: requests.len() + 1, method };
                refused.named(differs)
            })?;
            let output = Tokens(answer.len() as u32);
            requests.push(RequestTrace { prompt: Tokens(prompt.tokens.len() as u32), output, methods });
            add_interaction(Arc::make_mut(&mut past.history), &prompt.tokens, &answer);
        }
        if requests.is_empty() {
            return Err(TraceError::NothingFits { file: task.name, context: self.model.config().context });
        }
        Ok(TaskTrace { task, requests, history_bytes: Bytes(past.history.bytes() as u64) })
    }
}

/// What earlier requests of a task left.
#[derive(Debug, Default)]
struct Past {
    history: Arc<SuffixAutomaton>,
    recycled: Arc<Recycled>,
    confidence: BTreeMap<Method, Confidence>,
}

/// Why one request could not be answered.
enum Refused {
    Differs(Method),
    Other(TraceError),
}

impl Refused {
    fn named(self, differs: impl FnOnce(Method) -> TraceError) -> TraceError {
        match self {
            Self::Differs(method) => differs(method),
            Self::Other(error) => error,
        }
    }
}

impl Past {
    /// The answer to a prompt, and how it came about under each method.
    fn answer(
        &mut self,
        stream: &mut Stream<'_>,
        prompt: &Prompt,
        output: Tokens,
    ) -> Result<(Vec<TokenId>, BTreeMap<Method, MethodTrace>), Refused> {
        let mut answers: Option<Vec<TokenId>> = None;
        let mut methods = BTreeMap::new();
        for method in METHODS {
            let (tokens, trace) = self.answer_by(method, stream, prompt, output).map_err(Refused::Other)?;
            if answers.as_ref().is_some_and(|known| *known != tokens) {
                return Err(Refused::Differs(method));
            }
            answers = Some(tokens);
            methods.insert(method, trace);
        }
        Ok((answers.unwrap_or_default(), methods))
    }

    fn answer_by(
        &mut self,
        method: Method,
        stream: &mut Stream<'_>,
        prompt: &Prompt,
        output: Tokens,
    ) -> Result<(Vec<TokenId>, MethodTrace), TraceError> {
        let drafters =
            method.drafters(&Known { history: vec![Arc::clone(&self.history)], recycled: Arc::clone(&self.recycled) });
        let confidence = self.confidence.remove(&method).unwrap_or_default();
        let limits = Limits { output: output.as_usize().min(stream.room_after(&prompt.tokens)), floor: floor(method) };
        let mut answer = Answer::new(prompt, Speculator::new(drafters, confidence), method.learns(), limits);
        answer.run(stream, prompt)?;
        let Answer { speculator, steps, misfits, said, .. } = &answer;
        if method.recycles() {
            let recycled = Arc::make_mut(&mut self.recycled);
            said.iter().for_each(|(context, successors)| recycled.learn(*context, successors));
        }
        let mut rejections = Rejections::default();
        for misfit in misfits {
            rejections.add(Rejection::of(&misfit.drafted, &answer.tokens()[misfit.at..]));
        }
        let trace = MethodTrace { steps: steps.clone(), rejections, bytes: Bytes(speculator.bytes() as u64) };
        self.confidence.insert(method, speculator.confidence().clone());
        Ok((answer.tokens().to_vec(), trace))
    }
}

/// Rows of a draft that are worth less are left out. The paper's techniques fill drafts up to the saturating length; what
/// they are applied to drafts what it holds likely. (CoordGen §3.4)
fn floor(method: Method) -> f32 {
    match method {
        Method::None | Method::Pld | Method::Sam => WORTH_MIN,
        Method::PldDuet | Method::Calibrated | Method::CoordGen | Method::Recycling | Method::Duet => 0.0,
        // No draft model runs here.
        Method::DraftModel | Method::DuetDraft => 0.0,
    }
}

#[cfg(test)]
mod tests;
