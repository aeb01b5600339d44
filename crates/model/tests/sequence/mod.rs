//! A sequence that a model reads chunk by chunk, as the engine does, and perplexity over many.

use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::{KvFormat, KvTable};
use duet_types::{TokenId, Tokens};

/// Rows of a chunk.
pub(crate) const ROWS: usize = 256;

/// A sequence and the buffers it runs in.
pub(crate) struct Sequence<'a> {
    model: &'a Model,
    activations: Option<Activations>,
    kv: Option<KvTable>,
    logits: Vec<f32>,
}

impl<'a> Sequence<'a> {
    pub(crate) fn new(model: &'a Model, format: KvFormat, length_max: Tokens) -> Self {
        let kv = model.kv_pool(format, length_max).table();
        Self { model, activations: Some(Activations::new(model, ROWS)), kv: Some(kv), logits: Vec::new() }
    }

    /// Forgets all but the first so many tokens.
    pub(crate) fn truncate(&mut self, length: Tokens) {
        self.kv.as_mut().unwrap().truncate(length);
    }

    /// Feeds tokens; leaves the logits of those rows of the last chunk that `rows` chooses.
    pub(crate) fn feed(&mut self, tokens: &[TokenId], rows: impl Fn(usize) -> bool) {
        let crew = Scoped { threads: 2 };
        for chunk in tokens.chunks(ROWS) {
            let segment = Segment::new(self.kv.take().unwrap(), chunk.to_vec());
            let mut pass = Pass::new(self.model, self.activations.take().unwrap(), vec![segment]).unwrap();
            self.model.run_span(&mut pass, 0..self.model.node_count(), &crew);
            let chosen: Vec<usize> = (0..chunk.len()).filter(|&row| rows(row)).collect();
            self.model.logits(&mut pass, &chosen, &mut self.logits, &crew);
            self.logits.truncate(chosen.len() * self.model.config().vocabulary);
            let (activations, mut tables) = pass.finish();
            (self.activations, self.kv) = (Some(activations), tables.pop());
        }
    }

    /// The logits of each row that was chosen.
    pub(crate) fn rows(&self) -> impl DoubleEndedIterator<Item = &[f32]> {
        self.logits.chunks_exact(self.model.config().vocabulary)
    }

    /// The likeliest token after the last row that was chosen.
    pub(crate) fn best(&self) -> TokenId {
        best(self.rows().next_back().unwrap())
    }
}

/// The likeliest token; the first of several.
pub(crate) fn best(logits: &[f32]) -> TokenId {
    TokenId((0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a))).unwrap() as u32)
}

/// Tokens of a window.
pub(crate) const WINDOW: usize = 512;

/// As llama.cpp's tool does it: windows of 512, each read from its start, the second half scored.
pub(crate) fn perplexity<W: AsRef<[TokenId]>>(model: &Model, windows: impl Iterator<Item = W>) -> f64 {
    let mut sequence = Sequence::new(model, KvFormat::F16, Tokens(WINDOW as u32));
    let (mut total, mut count) = (0.0, 0);
    for window in windows {
        let window = window.as_ref();
        sequence.truncate(Tokens::ZERO);
        sequence.feed(&window[..ROWS], |_| false);
        sequence.feed(&window[ROWS..], |row| row < WINDOW - ROWS - 1);
        for (row, next) in sequence.rows().zip(&window[ROWS + 1..]) {
            let largest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let sum: f64 = row.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
            total -= f64::from(row[next.0 as usize]) - largest - sum.ln();
            count += 1;
        }
    }
    (total / f64::from(count)).exp()
}
