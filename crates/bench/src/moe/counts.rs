//! Where a model's routers sent rows: counts that lie beside the model, or, where there are none, counts of a text that is
//! not among those that are measured. (NPUMoE §3.3)

use super::MoeError;
use duet_model::Model;
use duet_model::tokenizer::SpecialTokens;
use duet_moe::Calibration;
use duet_offload::{calibrate_experts, read_experts};
use serde::Serialize;
use std::path::Path;

/// Counts, and whose they are.
#[derive(Clone, Debug)]
pub struct Counts {
    /// By layer and expert.
    pub calibration: Calibration,
    /// Where they are from.
    pub from: CountsFrom,
}

/// Where counts are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountsFrom {
    /// `duet calibrate` wrote them beside the model.
    BesideModel,
    /// The model has just read a part of this program's source that no prompt is made of.
    OwnSource,
}

impl Counts {
    /// Those in `file`, if they are this model's, else new ones, by so many threads.
    ///
    /// # Errors
    /// If the model has no experts.
    pub fn of(model: &Model, file: &Path, threads: usize) -> Result<Self, MoeError> {
        if let Some(calibration) = read_experts(file, model) {
            return Ok(Self { calibration, from: CountsFrom::BesideModel });
        }
        let mut text = model.tokenizer().encode(TEXT, SpecialTokens::AsText);
        text.truncate(TEXT_LENGTH.min(model.config().context.as_usize()));
        let calibration = calibrate_experts(model, &[text], threads, &mut |_| {})?;
        Ok(Self { calibration, from: CountsFrom::OwnSource })
    }
}

impl CountsFrom {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::BesideModel => "counts beside the model",
            Self::OwnSource => "counts of this program's own source",
        }
    }
}

/// Prompts are made of another file ([`crate::bed::Bed::text`]).
const TEXT: &str = include_str!("../plot.rs");
/// Enough for each of some tens of experts to be chosen some hundred times.
const TEXT_LENGTH: usize = 2048;
