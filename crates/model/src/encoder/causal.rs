//! Decoders whose last token says what a text is about (Qwen3-Embedding), or answers whether a document fits a query
//! (Qwen3-Reranker). The forward pass is [`crate::forward`]'s; its keys and
//! values go with the pass.

use super::pooling::unit;
use super::ranking::Ranking;
use super::{Overlong, Text, TextError};
use crate::forward::{Activations, Pass, PassError, Segment};
use crate::kv::{KvFormat, KvPool, PAGE_TOKENS};
use crate::load::Model;
use crate::tokenizer::{SpecialTokens, TooManyTokens};
use duet_kernels::crew::Crew;
use duet_types::{Node, TokenId, Tokens};
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Causal {
    model: Arc<Model>,
    pool: KvPool,
    /// Of models for scores.
    ranking: Option<Ranking>,
}

/// Rows on their way.
#[derive(Debug)]
pub(super) struct Rows {
    pass: Pass,
}

impl Causal {
    pub(super) fn new(model: Arc<Model>, ranking: Option<Ranking>) -> Self {
        // Half precision: vectors are compared with those of others, and what is held is a few texts.
        let pool = model.kv_pool(KvFormat::F16, Tokens(PASSES * positions(&model).0));
        Self { model, pool, ranking }
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    pub(super) fn context(&self) -> Tokens {
        context(&self.model)
    }

    pub(super) fn text(&self, text: &str, overlong: Overlong) -> Result<Text, TextError> {
        let (tokenizer, most) = (self.model.tokenizer(), self.context());
        let tokens = match tokenizer.encode_prompt_within(text, SpecialTokens::AsText, most) {
            Ok(tokens) => tokens,
            Err(TooManyTokens { .. }) if overlong == Overlong::Cut => self.beginning(text),
            Err(error) => return Err(error.into()),
        };
        Text::new(tokens, most, Overlong::Refused)
    }

    /// Texts that a pass has pages for, each of which takes one at least: as many as half of them, since a text of a few
    /// pages and a token takes one more for it.
    pub(super) fn texts_max(&self) -> usize {
        (positions(&self.model).as_usize() / PAGE_TOKENS / 2).max(1)
    }

    /// Whether it makes scores.
    pub(super) fn ranks(&self) -> bool {
        self.ranking.is_some()
    }

    /// A query and a document as the model is asked of them; a document alone, of models for vectors.
    pub(super) fn pair(&self, query: &str, document: &str, overlong: Overlong) -> Result<Text, TextError> {
        let Some(ranking) = &self.ranking else { return self.text(document, overlong) };
        let most = self.context();
        let fits = |tokens: &[TokenId]| tokens.len() <= most.as_usize();
        let question = |document: &str| ranking.question(self.model.tokenizer(), query, document);
        let exceeds = self.model.tokenizer().certainly_exceeds([document].into_iter(), most);
        if !exceeds {
            let tokens = question(document);
            if fits(&tokens) {
                return Text::new(tokens, most, Overlong::Refused);
            }
        }
        if overlong == Overlong::Refused || !fits(&question("")) {
            return Err(TooManyTokens { most }.into());
        }
        // The longest beginning that there is room for, by halves.
        let ends: Vec<usize> =
            document.char_indices().map(|(at, _)| at).take(most.as_usize() * CHARS_A_TOKEN).collect();
        let (mut least, mut above) = (0, ends.len());
        while above - least > 1 {
            let middle = least.midpoint(above);
            if fits(&question(&document[..ends[middle]])) { least = middle } else { above = middle }
        }
        Text::new(question(&document[..ends.get(least).copied().unwrap_or(0)]), most, Overlong::Refused)
    }

    /// As many tokens as there is room for, the last of which ends the text as that of a short one does.
    fn beginning(&self, text: &str) -> Vec<TokenId> {
        let tokenizer = self.model.tokenizer();
        let whole = tokenizer.encode_prompt(text, SpecialTokens::AsText);
        let end = tokenizer.encode_prompt("", SpecialTokens::AsText).last().copied();
        let most = self.context().as_usize();
        let mut tokens = whole;
        let ends_so = end.is_some() && tokens.last().copied() == end;
        tokens.truncate(if ends_so { most - 1 } else { most });
        tokens.extend(end.filter(|_| ends_so));
        tokens
    }

    pub(super) fn begin(&self, texts: &[Text]) -> Result<Rows, PassError> {
        let rows = texts.iter().map(|text| text.tokens().len()).sum();
        let segments = texts.iter().map(|text| Segment::new(self.pool.table(), text.tokens().to_vec())).collect();
        let pass = Pass::new(&self.model, Activations::new(&self.model, rows), segments);
        Ok(Rows { pass: pass.map_err(|refused| refused.error)? })
    }

    pub(super) fn run(&self, of: &mut Rows, node: Node, rows: Range<usize>, crew: &dyn Crew) {
        self.model.run_node(&mut of.pass, node, rows, crew);
    }

    pub(super) fn results(&self, of: &Rows) -> Vec<Vec<f32>> {
        let Rows { pass } = of;
        let width = self.model.blueprint().hidden;
        let mut end = 0;
        let mut vector = |rows: usize| {
            end += rows;
            let mut last = vec![0.0; width];
            self.model.add_hidden(pass, end - 1..end, &mut last);
            match &self.ranking {
                Some(ranking) => vec![ranking.score(&self.model, &last)],
                None => unit(&last),
            }
        };
        pass.segment_rows().map(&mut vector).collect()
    }
}

/// Longest text: more than any that is searched for by one vector, and what there is memory for.
fn context(model: &Model) -> Tokens {
    model.config().context.min(Tokens(CONTEXT_MAX))
}

/// Of a document that is cut no more characters are looked at for each token that there is room for.
const CHARS_A_TOKEN: usize = 16;
const CONTEXT_MAX: u32 = 8192;

/// Positions that the pool has for a pass: the longest text, and enough for many short ones.
fn positions(model: &Model) -> Tokens {
    context(model).max(Tokens(POSITIONS_MIN))
}

const POSITIONS_MIN: u32 = 4096;
/// One under way of each class, and one that begins.
const PASSES: u32 = 3;
