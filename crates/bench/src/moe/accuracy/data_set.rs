//! A file's items as tokens, in two halves: one to calibrate experts on, one to measure on.
//!
//! Invariant: no item is in both, and all of them fit the model's context with each of their options.

use super::items::{self, Item, Scoring};
use super::{AccuracyError, Settings};
use duet_model::Model;
use duet_model::tokenizer::SpecialTokens;
use duet_types::TokenId;
use std::path::Path;

/// The items of a file.
#[derive(Debug)]
pub(super) struct DataSet {
    /// The file's.
    pub(super) name: String,
    /// To measure on: the second, the fourth and so on of those that fit.
    pub(super) measured: Vec<Encoded>,
    /// To calibrate on: the others.
    pub(super) calibration: Vec<Vec<TokenId>>,
}

/// An item as tokens.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) context: Vec<TokenId>,
    pub(super) question: Option<EncodedQuestion>,
}

#[derive(Debug)]
pub(super) struct EncodedQuestion {
    pub(super) options: Vec<EncodedOption>,
    pub(super) right: usize,
}

#[derive(Debug)]
pub(super) struct EncodedOption {
    pub(super) tokens: Vec<TokenId>,
    /// What its likelihood is divided by.
    pub(super) length: usize,
}

impl DataSet {
    /// Reads a file: as many items for each half as the settings want, of contexts that are as long as they want.
    ///
    /// # Errors
    /// If the file is not what it should be, or has too few such items.
    pub(super) fn read(model: &Model, file: &Path, settings: &Settings) -> Result<Self, AccuracyError> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut set = Self { name, measured: Vec::new(), calibration: Vec::new() };
        let encoded = items::read(file)?.into_iter().map(|item| encode(model, item));
        let fitting = encoded.filter(|item| item.fits(model, settings));
        for (index, item) in fitting.take(settings.limit.saturating_mul(2)).enumerate() {
            if index % 2 == 0 {
                set.calibration.push(item.context);
            } else {
                set.measured.push(item);
            }
        }
        if set.measured.is_empty() {
            let (shortest, longest) = settings.lengths;
            return Err(AccuracyError::NothingFits { file: file.to_owned(), shortest, longest });
        }
        Ok(set)
    }

    /// The share of questions that are answered right by chance: blindly, or, where the same options are always asked
    /// for, by always giving the one that is right most often. None if there is no question.
    pub(super) fn chance(&self) -> Option<f64> {
        let questions: Vec<&EncodedQuestion> = self.measured.iter().filter_map(|item| item.question.as_ref()).collect();
        let n = questions.len() as f64;
        let first = questions.first()?;
        let blindly = questions.iter().map(|question| 1.0 / question.options.len() as f64).sum::<f64>() / n;
        if !questions.iter().all(|question| question.asks_for_the_same(first)) {
            return Some(blindly);
        }
        let right = |option| questions.iter().filter(|question| question.right == option).count() as f64 / n;
        Some((0..first.options.len()).map(right).fold(blindly, f64::max))
    }
}

impl Encoded {
    fn fits(&self, model: &Model, settings: &Settings) -> bool {
        let options = self.question.iter().flat_map(|question| &question.options);
        let longest = options.map(|option| option.tokens.len()).max().unwrap_or(0);
        let (low, high) = settings.lengths;
        let context = self.context.len();
        // Of a single token nothing follows that could be likely.
        context >= low.as_usize().max(2)
            && context <= high.as_usize()
            && context + longest <= model.config().context.as_usize()
    }
}

impl EncodedQuestion {
    fn asks_for_the_same(&self, other: &Self) -> bool {
        let tokens = |question: &Self| question.options.iter().map(|option| option.tokens.clone()).collect::<Vec<_>>();
        tokens(self) == tokens(other)
    }
}

fn encode(model: &Model, item: Item) -> Encoded {
    let tokenizer = model.tokenizer();
    let question = item.question.map(|question| {
        let option = |text: String| EncodedOption {
            tokens: tokenizer.encode(&text, SpecialTokens::AsText),
            length: match question.scoring {
                Scoring::Whole => 1,
                Scoring::PerByte => text.len().max(1),
            },
        };
        EncodedQuestion { options: question.options.into_iter().map(option).collect(), right: question.right }
    });
    Encoded { context: tokenizer.encode_prompt(&item.context, SpecialTokens::AsText), question }
}
