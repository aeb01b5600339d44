//! What drafting is worth: real prompts, answered once by each method.
//!
//! Every method has an engine of its own, on the same cores and with the same model, and they take turns prompt by prompt,
//! so that a machine whose speed drifts does so for all of them. Greedy answers must be the same, token by token. A
//! method that drafts from history is measured twice, *cold*, with none, and *warm*, with that of the prompts before in
//! the file. EAGLE is simulated as the paper does: there is no such head for the model. (CoordGen §4.1)

mod answer;
mod eagle;
mod identity;
mod line;

pub use identity::{Identity, identity};
pub use line::Line;

use crate::load::{LoadError, Progress, Workload};
use answer::{Answer, Asked, ask};
use duet_engine::{Drafts, Engine, EngineConfig, Method};
use duet_history::{HistoryStore, Limits};
use duet_model::Model;
use duet_types::{Bytes, TenantId, Tokens};
use line::{Measured, summary};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A method that runs.
    Runs(Method),
    /// EAGLE, from what the others measured.
    EagleSimulated,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Files of prompts.
    pub files: Vec<PathBuf>,
    /// What is compared; plain decode is always measured, too.
    pub contenders: Vec<Contender>,
    /// Prompts of each file at most.
    pub limit: usize,
    /// Tokens of an answer at most.
    pub output: Tokens,
    /// Answers are drawn at it; 0 is greedy. At 1.5 next to nothing of a draft comes true.
    pub temperature: f32,
    /// How the engines run; the method is not from here.
    pub config: EngineConfig,
}

/// One method on one workload.
struct Subject {
    method: Method,
    past: Past,
    engine: Engine,
    answers: Vec<Answer>,
}

/// What a method may draft from, beside the request.
#[derive(Clone, Debug)]
enum Past {
    /// Nothing.
    Cold,
    /// The answers to the prompts before in the file.
    Warm(Arc<HistoryStore>),
}

/// Measures, and tells of each workload's lines as they are known.
///
/// # Errors
/// [`LoadError`] if a file or an engine fails.
pub fn run(
    model: &Arc<Model>,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(&Line),
) -> Result<(), LoadError> {
    for file in &settings.files {
        let mut prompts = Workload::in_order(file)?;
        prompts.truncate(settings.limit);
        let name = name_of(file);
        let folder = tempfile::tempdir().map_err(|error| LoadError::History(error.to_string()))?;
        let mut subjects = subjects(model, settings, folder.path())?;
        let Settings { output, temperature, .. } = *settings;
        let asked = Asked { output, temperature, drafts: Drafts::ByMethod, tenant: TenantId::default() };
        for (index, prompt) in prompts.iter().enumerate() {
            progress(&format!("{name}, prompt {} of {}", index + 1, prompts.len()));
            let tokens = crate::load::encode(model, &prompt.messages)?;
            if tokens.len() + settings.output.as_usize() > model.config().context.as_usize() {
                continue;
            }
            for subject in rotated(&mut subjects, index) {
                subject.answers.push(ask(&subject.engine, &tokens, asked)?);
                if let Past::Warm(history) = &subject.past {
                    // The next prompt is to find it, however soon it comes.
                    history.flush();
                }
            }
        }
        if subjects.iter().all(|subject| subject.answers.iter().all(|answer| answer.steps() == 0)) {
            return Err(LoadError::NothingAnswered { file: file.clone() });
        }
        lines(model, &name, settings, &subjects).iter().for_each(&mut *tell);
    }
    Ok(())
}

/// Plain decode first, then the methods, cold and warm.
fn subjects(model: &Arc<Model>, settings: &Settings, folder: &Path) -> Result<Vec<Subject>, LoadError> {
    let runs = settings.contenders.iter().filter_map(|contender| match contender {
        Contender::Runs(method) => Some(*method),
        Contender::EagleSimulated => None,
    });
    let methods = std::iter::once(Method::None).chain(runs.filter(|&method| method != Method::None));
    let mut subjects = Vec::new();
    for method in methods {
        subjects.push(start(model, settings, method, Past::Cold)?);
        if method.has_history() {
            let history = HistoryStore::open(&folder.join(method.to_string()), Limits::default());
            let history = history.map_err(|error| LoadError::History(error.to_string()))?;
            subjects.push(start(model, settings, method, Past::Warm(Arc::new(history)))?);
        }
    }
    Ok(subjects)
}

fn start(model: &Arc<Model>, settings: &Settings, method: Method, past: Past) -> Result<Subject, LoadError> {
    let history = match &past {
        Past::Cold => None,
        Past::Warm(history) => Some(Arc::clone(history)),
    };
    let kv_bytes = Some(Bytes(KV_BYTES));
    let spill_bytes = Some(Bytes(0));
    let config = EngineConfig { speculate: method, kv_bytes, spill_bytes, history, ..settings.config.clone() };
    let engine = Engine::start(Arc::clone(model), config)?;
    Ok(Subject { method, past, engine, answers: Vec::new() })
}

/// Everybody, another one first each time: who is first finds other caches.
fn rotated(subjects: &mut [Subject], turn: usize) -> impl Iterator<Item = &mut Subject> {
    let (before, after) = subjects.split_at_mut(turn % subjects.len().max(1));
    after.iter_mut().chain(before)
}

fn lines(model: &Model, workload: &str, settings: &Settings, subjects: &[Subject]) -> Vec<Line> {
    let Some((plain, _)) = subjects.split_first() else { return Vec::new() };
    let mut lines = Vec::new();
    for contender in &settings.contenders {
        match contender {
            Contender::Runs(method) => {
                for subject in subjects.iter().filter(|subject| subject.method == *method) {
                    let measured = Measured { plain: &plain.answers, own: &subject.answers };
                    let history = method.has_history().then(|| subject.past.name());
                    lines.push(Line { history, ..summary(workload, &method.to_string(), &measured) });
                }
            }
            Contender::EagleSimulated => lines.push(eagle::line(model, workload, &plain.answers)),
        }
    }
    lines
}

impl Past {
    fn name(&self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm(_) => "warm",
        }
    }
}

/// KV memory of each engine: the longest prompt and its answer, and little to keep.
const KV_BYTES: u64 = 192 << 20;

/// The name of a file without its folder and ending.
fn name_of(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}
