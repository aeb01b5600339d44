//! Prompts to calibrate on, and others to run on. (NPUMoE §5.1: separate subsets of the same data sets)
//!
//! Every second prompt of each data set is calibrated on, the others are run on, and no prompt is in both. A prompt is read
//! by itself, as far as its first [`LENGTH`] tokens. What is run on is longer than most prompts there are: it is the rows of
//! several, one behind the other, in the order of their data sets.

use super::NpuMoeError;
use crate::load::{LoadError, Workload, encode, spread};
use duet_model::Model;
use duet_model::template::TemplateError;
use duet_types::{Class, TokenId, Tokens};
use std::path::PathBuf;

/// Texts of one data set.
#[derive(Debug)]
pub(super) struct DataSet {
    pub(super) name: String,
    pub(super) calibrate: Vec<Vec<TokenId>>,
    pub(super) run: Vec<Vec<TokenId>>,
}

/// How much is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amounts {
    /// Tokens to calibrate on, about.
    pub(super) calibrate: Tokens,
    /// Tokens to run on at least, if the prompts have that many.
    pub(super) run: Tokens,
}

/// The data sets of some files: a file is one. Without files, the samples that come with the program are two: what people
/// ask, and what runs in the background.
pub(super) fn data_sets(model: &Model, files: &[PathBuf], amounts: Amounts) -> Result<Vec<DataSet>, NpuMoeError> {
    let mut sets = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        let workload = Workload::read(std::slice::from_ref(file))?;
        sets.push((name, cut(model, workload.all().map(|prompt| encode(model, &prompt.messages)).collect())?));
    }
    if files.is_empty() {
        let workload = Workload::read(&[])?;
        for (name, class) in [("sample, reactive", Class::Reactive), ("sample, proactive", Class::Proactive)] {
            let prompts = workload.prompts(class)?.iter().map(|prompt| encode(model, &prompt.messages));
            sets.push((name.to_owned(), cut(model, prompts.collect())?));
        }
    }
    let count = sets.len() as u32;
    let each = Amounts { calibrate: share(amounts.calibrate, count), run: share(amounts.run, count) };
    Ok(sets.into_iter().map(|(name, texts)| divided(name, texts, each)).collect())
}

fn share(tokens: Tokens, of: u32) -> Tokens {
    Tokens(tokens.0.div_ceil(of.max(1)))
}

/// Tokens of a prompt that are read: so that one long prompt is not all there is.
const LENGTH: usize = 1024;

/// Prompts as a model reads them, cut off.
fn cut(model: &Model, prompts: Vec<Result<Vec<TokenId>, TemplateError>>) -> Result<Vec<Vec<TokenId>>, LoadError> {
    let length = LENGTH.min(model.config().context.as_usize());
    let cut = |prompt: Result<Vec<TokenId>, TemplateError>| {
        let mut tokens = prompt?;
        tokens.truncate(length);
        Ok(tokens)
    };
    prompts.into_iter().map(cut).collect()
}

fn divided(name: String, texts: Vec<Vec<TokenId>>, amounts: Amounts) -> DataSet {
    let (mut calibrate, mut run) = (Vec::new(), Vec::new());
    for (index, text) in texts.into_iter().enumerate() {
        if index % 2 == 0 { calibrate.push(text) } else { run.push(text) }
    }
    // A few texts more than are needed: what is over is cut off behind the last whole prompt.
    let enough = amounts.run.as_usize() + LENGTH;
    DataSet {
        name,
        calibrate: spread(calibrate.into_iter(), amounts.calibrate.as_usize()),
        run: spread(run.into_iter(), enough),
    }
}
