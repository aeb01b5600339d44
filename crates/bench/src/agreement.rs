//! How near a device comes to the CPU's own kernels.
//!
//! Both read the same texts, prompts with the answers that the CPU gives to them, and say at each position what comes
//! next: how often it is the same token, and how surprised each is by the text (perplexity). Then the device answers the
//! prompts by itself, which says how often a whole answer stays the same. Nothing falls back here: a kernel that the
//! device does not run is an error.
//!
//! Both round activations, and neither is right. So a third reads along that rounds none, which says how near each of the
//! two is to the weights' own answer: two that round differently cannot agree more often than each agrees with that.

use crate::forward::{Forward, ForwardError, likeliest};
use crate::load::{self, LoadError, Progress, Workload};
use crate::quality::log_total;
use duet_kernels::crew::{Crew, Scoped};
use duet_model::Model;
use duet_model::forward::{Activations, TokenWise};
use duet_model::kv::{KvFormat, KvPool, KvTable};
use duet_types::{TokenId, Tokens};
use serde::Serialize;
use std::path::PathBuf;

/// What to compare on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Files of prompts.
    pub files: Vec<PathBuf>,
    /// Prompts of each file at most.
    pub limit: usize,
    /// Tokens of an answer at most.
    pub output: usize,
    /// Threads of the CPU's kernels.
    pub threads: usize,
}

/// How near the device came.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Texts.
    pub prompts: usize,
    /// Positions of all texts together.
    pub positions: usize,
    /// Of a hundred positions, at how many both hold the same token for the likeliest.
    pub top1_pct: f64,
    /// The CPU's.
    pub perplexity_native: f64,
    /// The device's.
    pub perplexity_device: f64,
    /// Greedy answers that are the same to the token.
    pub greedy_same: usize,
    /// How near both are to what no rounding of activations says.
    pub exact: Exact,
}

/// How near the CPU and the device come to an answer without rounded activations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Exact {
    /// Of a hundred positions, at how many the CPU holds the same token for the likeliest.
    pub top1_native_pct: f64,
    /// The same for the device.
    pub top1_device_pct: f64,
    /// Its own.
    pub perplexity: f64,
}

/// Who is compared: both have the model's weights.
#[derive(Clone, Copy, Debug)]
pub struct Devices<'a> {
    /// The device that is asked about.
    pub device: &'a dyn TokenWise,
    /// One that rounds no activations.
    pub exact: &'a dyn TokenWise,
}

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
pub enum AgreementError {
    /// The prompts cannot be read, or the model cannot be asked so.
    #[error(transparent)]
    Workload(#[from] LoadError),
    /// A pass came to nothing.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// There is nothing to compare on.
    #[error("--workload: no prompt fits the model's context of {0} tokens")]
    NothingFits(Tokens),
}

impl AgreementError {
    /// Whether what was given is wrong, rather than that running failed.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Workload(error) => error.is_bad_input(),
            Self::NothingFits(_) => true,
            Self::Forward(_) => false,
        }
    }
}

/// Compares a device with the CPU's kernels.
///
/// # Errors
/// [`AgreementError`].
pub fn run(
    model: &Model,
    devices: Devices<'_>,
    settings: &Settings,
    progress: Progress<'_>,
) -> Result<Agreement, AgreementError> {
    let crew = Scoped { threads: settings.threads };
    let [native, device, exact] =
        [None, Some(devices.device), Some(devices.exact)].map(|device| Reader::new(model, device, &crew));
    let (mut sums, mut same) = (Sums::default(), 0);
    let (mut prompts, context) = (0, model.config().context);
    for file in &settings.files {
        for prompt in Workload::in_order(file)?.into_iter().take(settings.limit) {
            let prompt = load::encode(model, &prompt.messages).map_err(LoadError::from)?;
            if prompt.len() + settings.output > context.as_usize() {
                continue;
            }
            prompts += 1;
            progress(&format!("text {prompts}"));
            let answer = native.answer(&prompt, settings.output)?;
            same += usize::from(device.answer(&prompt, settings.output)? == answer);
            let text = [prompt, answer].concat();
            sums.add(&native.read(&text)?, &device.read(&text)?, &exact.read(&text)?);
        }
    }
    if sums.positions == 0 {
        return Err(AgreementError::NothingFits(context));
    }
    Ok(sums.agreement(prompts, same))
}

/// What one says of a text, position by position.
struct Reading {
    /// The likeliest next token.
    likeliest: Vec<TokenId>,
    /// The negative logarithm of the chance of the token that came.
    surprise: Vec<f64>,
}

/// Of all texts so far; surprises of the CPU, the device and the exact reader.
#[derive(Default)]
struct Sums {
    positions: usize,
    same: usize,
    exact_native: usize,
    exact_device: usize,
    surprise: [f64; 3],
}

impl Sums {
    fn add(&mut self, native: &Reading, device: &Reading, exact: &Reading) {
        self.positions += native.surprise.len();
        self.same += native.same(device);
        self.exact_native += exact.same(native);
        self.exact_device += exact.same(device);
        for (sum, reading) in self.surprise.iter_mut().zip([native, device, exact]) {
            *sum += reading.surprise.iter().sum::<f64>();
        }
    }

    fn agreement(&self, prompts: usize, greedy_same: usize) -> Agreement {
        let positions = self.positions as f64;
        let percent = |count: usize| 100.0 * count as f64 / positions;
        let [perplexity_native, perplexity_device, perplexity] = self.surprise.map(|sum| (sum / positions).exp());
        Agreement {
            prompts,
            positions: self.positions,
            top1_pct: percent(self.same),
            perplexity_native,
            perplexity_device,
            greedy_same,
            exact: Exact {
                top1_native_pct: percent(self.exact_native),
                top1_device_pct: percent(self.exact_device),
                perplexity,
            },
        }
    }
}

impl Reading {
    /// Positions at which both hold the same token for the likeliest.
    fn same(&self, other: &Self) -> usize {
        self.likeliest.iter().zip(&other.likeliest).filter(|(a, b)| a == b).count()
    }
}

/// Reads texts, with linear work on a device or by the crew.
struct Reader<'a> {
    forward: Forward<'a>,
    pool: KvPool,
}

impl<'a> Reader<'a> {
    fn new(model: &'a Model, device: Option<&'a dyn TokenWise>, crew: &'a dyn Crew) -> Self {
        let pool = model.kv_pool(KvFormat::F16, model.config().context);
        Self { forward: Forward { model, device, experts: None, crew }, pool }
    }

    /// What comes next at each position of the text but the last.
    fn read(&self, text: &[TokenId]) -> Result<Reading, AgreementError> {
        let mut reading = Reading { likeliest: Vec::new(), surprise: Vec::new() };
        let mut table = self.pool.table();
        for start in (0..text.len().saturating_sub(1)).step_by(ROWS) {
            let end = (start + ROWS).min(text.len() - 1);
            let chosen: Vec<usize> = (0..end - start).collect();
            let (after, logits) = self.pass(table, &text[start..end], &chosen)?;
            table = after;
            for (row, &next) in logits.iter().zip(&text[start + 1..]) {
                reading.likeliest.push(likeliest(row));
                reading.surprise.push(surprise(row, next));
            }
        }
        Ok(reading)
    }

    /// The likeliest tokens after a prompt, one after the other.
    fn answer(&self, prompt: &[TokenId], most: usize) -> Result<Vec<TokenId>, AgreementError> {
        let (mut table, mut answer, mut rows) = (self.pool.table(), Vec::new(), prompt.to_vec());
        while answer.len() < most {
            let mut last = Vec::new();
            for chunk in rows.chunks(ROWS) {
                let (after, logits) = self.pass(table, chunk, &[chunk.len() - 1])?;
                (table, last) = (after, logits);
            }
            let next = last.first().map_or(TokenId(0), |row| likeliest(row));
            answer.push(next);
            if self.forward.model.tokenizer().is_end_of_generation(next) {
                break;
            }
            rows = vec![next];
        }
        Ok(answer)
    }

    /// One pass; the logits of the chosen rows.
    fn pass(
        &self,
        table: KvTable,
        tokens: &[TokenId],
        chosen: &[usize],
    ) -> Result<(KvTable, Vec<Vec<f32>>), AgreementError> {
        let model = self.forward.model;
        let mut logits = Vec::new();
        let passed = self.forward.pass(Activations::new(model, tokens.len()), table, tokens, chosen, &mut logits)?;
        let rows = logits.chunks_exact(model.config().vocabulary).take(chosen.len()).map(<[f32]>::to_vec).collect();
        Ok((passed.kv, rows))
    }
}

/// The negative logarithm of the chance that logits give to a token.
pub(crate) fn surprise(logits: &[f32], token: TokenId) -> f64 {
    log_total(logits) - f64::from(logits[token.0 as usize])
}

/// Rows of a pass: few enough that all their logits may be in memory.
const ROWS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surprise_is_the_logarithm_of_what_a_softmax_says() {
        let logits = [0.1_f32, 0.2, 0.3, 0.4].map(|share| share.ln() + 5.0);
        assert!((surprise(&logits, TokenId(1)) + 0.2_f64.ln()).abs() < 1e-6);
        assert_eq!(likeliest(&logits), TokenId(3));
    }
}
