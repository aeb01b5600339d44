//! Decoders whose last token says what a text is about (Qwen3-Embedding). The forward pass is [`crate::forward`]'s; its keys and
//! values go with the pass.

use super::pooling::unit;
use super::{Overlong, Text, TextError};
use crate::forward::{Activations, Pass, PassError, Segment};
use crate::kv::{KvFormat, KvPool};
use crate::load::Model;
use crate::tokenizer::{SpecialTokens, TooManyTokens};
use duet_kernels::crew::Crew;
use duet_types::{Node, TokenId, Tokens};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Causal {
    model: Model,
    pool: KvPool,
}

/// Rows on their way.
#[derive(Debug)]
pub(super) struct Rows {
    pass: Pass,
}

impl Causal {
    pub(super) fn new(model: Model) -> Self {
        // Half precision: vectors are compared with those of others, and what is held is a few texts.
        let pool = model.kv_pool(KvFormat::F16, Tokens(POOL_CONTEXTS * context(&model).0));
        Self { model, pool }
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
            unit(&last)
        };
        pass.segment_rows().map(&mut vector).collect()
    }
}

/// Longest text: more than any that is searched for by one vector, and what there is memory for.
fn context(model: &Model) -> Tokens {
    model.config().context.min(Tokens(CONTEXT_MAX))
}

const CONTEXT_MAX: u32 = 8192;
/// A pass under way of each class, and one that begins.
const POOL_CONTEXTS: u32 = 3;
