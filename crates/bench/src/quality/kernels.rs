//! A chunk read by the kernels as they serve: eight-bit products, keys and values in their format, on the crew or with
//! linear work on a device.

use super::{Chunk, QualityError, ROWS};
use crate::forward::{Forward, Passed};
use duet_kernels::crew::Crew;
use duet_model::Model;
use duet_model::forward::{Activations, TokenWise};
use duet_model::kv::{KvFormat, KvPool};
use duet_types::{TokenId, Tokens};
use std::ops::Range;

/// Reads chunks, one at a time, from their start on.
pub struct Kernels<'a> {
    forward: Forward<'a>,
    pool: KvPool,
    chunk: Vec<TokenId>,
    /// Rows that were read, and what is kept of them. Absent only while a pass has it.
    read: Option<(usize, Passed)>,
    logits: Vec<f32>,
}

impl std::fmt::Debug for Kernels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernels({:?})", self.pool)
    }
}

impl<'a> Kernels<'a> {
    /// For chunks of `context` tokens; `device` absent: the crew does all.
    #[must_use]
    pub fn new(
        model: &'a Model,
        device: Option<&'a dyn TokenWise>,
        crew: &'a dyn Crew,
        kv: KvFormat,
        context: usize,
    ) -> Self {
        let pool = model.kv_pool(kv, Tokens(context as u32));
        let forward = Forward { model, device, experts: None, crew };
        Self { forward, pool, chunk: Vec::new(), read: None, logits: Vec::new() }
    }

    /// The next chunk.
    pub(super) fn begin(&mut self, chunk: &Chunk) -> Result<(), QualityError> {
        chunk.clone_into(&mut self.chunk);
        let activations = match self.read.take() {
            Some((_, passed)) => passed.activations,
            None => Activations::new(self.forward.model, PASS_ROWS),
        };
        self.read = Some((0, Passed { activations, kv: self.pool.table() }));
        Ok(())
    }

    /// The logits of some rows, at most [`ROWS`], which come in order.
    pub(super) fn rows(&mut self, rows: Range<usize>) -> Result<&[f32], QualityError> {
        self.read_to(rows.start)?;
        debug_assert!(rows.len() <= ROWS && ROWS <= PASS_ROWS);
        self.pass(rows.clone(), &(0..rows.len()).collect::<Vec<_>>())?;
        Ok(&self.logits[..rows.len() * self.forward.model.config().vocabulary])
    }

    /// Reads rows of which no logits are wanted.
    fn read_to(&mut self, end: usize) -> Result<(), QualityError> {
        while let Some(start) = self.read.as_ref().map(|(start, _)| *start).filter(|start| *start < end) {
            self.pass(start..end.min(start + PASS_ROWS), &[])?;
        }
        Ok(())
    }

    fn pass(&mut self, rows: Range<usize>, chosen: &[usize]) -> Result<(), QualityError> {
        let (start, Passed { activations, kv }) = self.read.take().expect("a chunk was begun");
        debug_assert_eq!(start, rows.start, "rows come in order");
        let tokens = &self.chunk[rows.clone()];
        let passed = self.forward.pass(activations, kv, tokens, chosen, &mut self.logits)?;
        self.read = Some((rows.end, passed));
        Ok(())
    }
}

/// Rows of a pass.
const PASS_ROWS: usize = 256;
