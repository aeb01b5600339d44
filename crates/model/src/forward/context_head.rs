//! A head over some of the vocabulary: the tokens of one text.
//!
//! Calibration wants to know what the model would say at every position of a prompt, but follows only what occurs in the
//! prompt itself (CoordGen §3.3: *search*). A few hundred rows of the head's matrix answer that, for a hundredth of what
//! the whole head costs; their logits are those of the head, to the bit.

use super::Pass;
use super::nodes::largest;
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_kernels::fused::{HeadWeights, head};
use duet_kernels::packed::PackedMatrix;
use duet_types::TokenId;
use std::ops::Range;

/// The head's rows for some tokens.
#[derive(Debug)]
pub struct ContextHead {
    matrix: PackedMatrix,
    bias: Option<Vec<f32>>,
    /// In the order of the rows.
    tokens: Vec<TokenId>,
}

impl ContextHead {
    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.matrix.bytes() + self.tokens.capacity() * size_of::<TokenId>()
    }

    /// Multiply-accumulates of a row.
    #[must_use]
    pub fn macs(&self) -> u64 {
        self.matrix.macs() as u64
    }
}

impl Model {
    /// A head for the tokens of `text`, each once; those that are not in the vocabulary are left out.
    #[must_use]
    pub fn context_head(&self, text: &[TokenId]) -> ContextHead {
        let mut tokens: Vec<TokenId> =
            text.iter().copied().filter(|token| (token.0 as usize) < self.config().vocabulary).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let rows: Vec<usize> = tokens.iter().map(|token| token.0 as usize).collect();
        let weights = self.weights();
        let bias = weights.head_bias.as_ref().map(|bias| rows.iter().map(|&row| bias[row]).collect());
        let matrix = weights.head.gather(&rows).unwrap_or_else(|| unreachable!("a head is one tensor, of one form"));
        ContextHead { matrix, bias, tokens }
    }

    /// The `k` tokens of `among` with the largest logits of each row, largest first; ties go to the smaller token. After
    /// all nodes.
    ///
    /// # Panics
    /// If a row does not exist.
    #[must_use]
    pub fn likeliest_among(
        &self,
        pass: &mut Pass,
        rows: Range<usize>,
        among: &ContextHead,
        k: usize,
        crew: &dyn Crew,
    ) -> Vec<Vec<(TokenId, f32)>> {
        let (rows, width) = (rows.collect::<Vec<_>>(), among.tokens.len());
        if rows.is_empty() || width == 0 {
            return vec![Vec::new(); rows.len()];
        }
        let norm = self.row_norm(self.weights().before_head());
        let weights =
            HeadWeights { norm, matrix: &among.matrix, bias: among.bias.as_deref(), cap: self.blueprint().logit_cap };
        let mut logits = Vec::new();
        let stride = head(self.isa(), crew, &weights, &mut pass.activations.buffers, &rows, &mut logits);
        let named = |(index, logit): (TokenId, f32)| (among.tokens[index.0 as usize], logit);
        let likeliest = |row: &[f32]| largest(&row[..width], k).into_iter().map(named).collect();
        logits.chunks_exact(stride).take(rows.len()).map(likeliest).collect()
    }
}
