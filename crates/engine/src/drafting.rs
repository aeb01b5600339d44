//! What all generations of an engine share of drafting: the method, what was learned of the drafters, what it costs.

use crate::calibration::Calibrate;
use crate::learned::LearnedFile;
use crate::recycled::RecycledByUser;
use crate::request::{Drafts, GenerateRequest, Output, Remember};
use duet_history::{HistoryStats, HistoryStore, Interaction, ModelFingerprint, TaskKey, UserName};
use duet_speculate::confidence::Confidence;
use duet_speculate::prediction::Prediction;
use duet_speculate::successors::Successors;
use duet_speculate::{Drafter, Known, Learns, Method, Speculator};
use duet_types::{Bytes, TokenId, Tokens};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The drafting of an engine.
#[derive(Debug)]
pub(crate) struct Drafting {
    method: Method,
    calibrate: Calibrate,
    past: Option<Past>,
    learned: Option<LearnedFile>,
    confidence: Mutex<Confidence>,
    recycled: RecycledByUser,
    drafts: AtomicU64,
    nanos: AtomicU64,
    /// How long answers are lately.
    answer: Mutex<f64>,
}

/// Answers of the past.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) store: Arc<HistoryStore>,
    /// Whose tokens they are in.
    pub(crate) model: ModelFingerprint,
}

/// What a generation drafts with.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) speculator: Speculator,
    /// What was learned of the drafters before.
    pub(crate) confidence: Confidence,
    pub(crate) keeps: Keeps,
}

/// What stays of a generation, for later ones to draft from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keeps {
    /// Where the answer is kept; absent if it is not.
    pub(crate) answer: Option<TaskKey>,
    /// Whose requests are drafted from what the model would have said; absent: nobody's.
    pub(crate) successors: Option<UserName>,
}

/// What drafting cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DraftCost {
    /// Drafts made.
    pub(crate) drafts: u64,
    /// The time that they took together.
    pub(crate) time: Duration,
    /// Memory of what is recycled, of all users.
    pub(crate) recycled: Bytes,
}

impl Drafting {
    pub(crate) fn new(
        method: Method,
        calibrate: Calibrate,
        past: Option<Past>,
        learned: Option<LearnedFile>,
    ) -> Arc<Self> {
        let (drafts, nanos) = (AtomicU64::default(), AtomicU64::default());
        let learned = learned.filter(|_| method != Method::None);
        let confidence = Mutex::new(learned.as_ref().and_then(LearnedFile::load).unwrap_or_default());
        let recycled = RecycledByUser::default();
        let answer = Mutex::new(ANSWER_FIRST);
        Arc::new(Self { method, calibrate, past, learned, confidence, recycled, drafts, nanos, answer })
    }

    /// Whether a draft model is among the drafters.
    pub(crate) fn has_model(&self) -> bool {
        self.method.has_model()
    }

    /// An answer of so many tokens is complete.
    pub(crate) fn answered(&self, tokens: usize) {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        *answer += ANSWER_RATE * (tokens as f64 - *answer);
    }

    /// How long an answer is expected to be.
    pub(crate) fn answer_expected(&self) -> f64 {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a generation drafts with; nothing if none of it is drafted.
    pub(crate) fn begin(&self, request: &GenerateRequest) -> Option<Begun> {
        let answers = request.output == Output::Answer && request.stop.max_tokens != Some(Tokens::ZERO);
        if self.method == Method::None || request.drafts == Drafts::None || !answers {
            return None;
        }
        let GenerateRequest { prompt, predicted, .. } = request;
        let key = self.key(request);
        let automata = self.past.as_ref().zip(key.as_ref()).map(|(past, key)| past.store.for_task(key));
        let recycled = if self.method.recycles() { self.recycled.of(&request.user) } else { Arc::default() };
        let mut drafters = self.method.drafters(&Known { history: automata.unwrap_or_default(), recycled });
        if !predicted.is_empty() {
            drafters.push(Box::new(Prediction::new(prompt, predicted)) as Box<dyn Drafter>);
        }
        let confidence = self.confidence.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let speculator = Speculator::new(drafters, confidence.for_a_request());
        let mut keeps = Keeps::default();
        if request.remember == Remember::Answer {
            keeps = Keeps { answer: key, successors: self.method.recycles().then(|| request.user.clone()) };
        }
        Some(Begun { speculator, confidence, keeps })
    }

    /// Where answers like this one's are kept.
    fn key(&self, request: &GenerateRequest) -> Option<TaskKey> {
        let model = self.past.as_ref().map(|past| past.model).filter(|_| self.method.has_history())?;
        Some(TaskKey { user: request.user.clone(), task: request.task.clone(), model })
    }

    /// An answer is complete: later ones are drafted from it.
    pub(crate) fn keep(&self, key: TaskKey, prompt: &[TokenId], answer: &[TokenId]) {
        if let Some(past) = self.past.as_ref().filter(|_| answer.len() >= KEPT_MIN) {
            past.store.commit(Interaction::new(key, prompt, answer));
        }
    }

    /// What the model would have said in an answer's places: the user's later requests are drafted from it.
    pub(crate) fn recycle(&self, user: &UserName, said: &[([TokenId; 2], Successors)]) {
        self.recycled.learn(user, said);
    }

    /// How prompts calibrate.
    pub(crate) fn calibrate(&self) -> Calibrate {
        if self.method.learns().prompt { self.calibrate } else { Calibrate::Off }
    }

    pub(crate) fn learns(&self) -> Learns {
        self.method.learns()
    }

    /// A draft took this long.
    pub(crate) fn took(&self, time: Duration) {
        self.drafts.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What is in memory of the history, if there is one.
    pub(crate) fn history(&self) -> Option<HistoryStats> {
        self.past.as_ref().map(|past| past.store.stats())
    }

    /// What drafting has cost so far.
    pub(crate) fn cost(&self) -> DraftCost {
        let time = Duration::from_nanos(self.nanos.load(Ordering::Relaxed));
        DraftCost { drafts: self.drafts.load(Ordering::Relaxed), time, recycled: self.recycled.bytes() }
    }

    /// What a generation that began with `begun` has learned: the next one begins with it, and with what others learned
    /// meanwhile.
    pub(crate) fn learned(&self, begun: &Confidence, own: &Confidence) {
        self.confidence.lock().unwrap_or_else(PoisonError::into_inner).join(begun, own);
    }
}

impl Drop for Drafting {
    fn drop(&mut self) {
        let confidence = self.confidence.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = self.learned.as_ref().map(|file| file.save(confidence)) {
            tracing::warn!("what was learned of drafts could not be kept: {error}");
        }
    }
}

/// How long an answer is expected to be before there was one, and how much one of them weighs.
const ANSWER_FIRST: f64 = 100.0;
const ANSWER_RATE: f64 = 0.1;
/// Shorter answers say nothing that is worth a row of a file.
const KEPT_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learned::learn;

    #[test]
    fn what_was_learned_is_there_at_the_next_start_and_not_where_nothing_drafts() {
        let folder = tempfile::tempdir().unwrap();
        let start =
            |method| Drafting::new(method, Calibrate::Off, None, Some(LearnedFile::of(folder.path(), "a model")));
        let known = |drafting: &Drafting| drafting.confidence.lock().unwrap().clone();
        let mut confidence = Confidence::default();
        learn(&mut confidence);
        start(Method::Duet).learned(&Confidence::default(), &confidence);
        start(Method::None).learned(&Confidence::default(), &Confidence::default());
        assert_eq!(known(&start(Method::Duet)), confidence);
    }
}
