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
    /// The model has just read a text that ships with the program, and of which no prompt is made.
    ShippedText,
}

impl Counts {
    /// Those in `file`, if they are this model's, else new ones, by `threads` threads.
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
        Ok(Self { calibration, from: CountsFrom::ShippedText })
    }
}

impl CountsFrom {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::BesideModel => "counts beside the model",
            Self::ShippedText => "counts of a text that ships with duet",
        }
    }
}

/// Prompts are made of another text ([`crate::bed::Bed::text`]).
const TEXT: &str = include_str!("../../prompts/calibration.txt");
/// Enough for each of some tens of experts to be chosen some hundred times.
const TEXT_LENGTH: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer that splits at words and at punctuation gives each piece at least one token, so the number of pieces is
    /// the least number of tokens.
    #[test]
    fn the_text_is_as_long_as_what_is_read_of_it() {
        let words = TEXT.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()).count();
        let marks = TEXT.split(|character: char| character.is_alphanumeric() || character.is_whitespace());
        assert!(words + marks.filter(|run| !run.is_empty()).count() >= TEXT_LENGTH);
    }
}
