//! What is on its way through the layers.

use crate::kv::{KvError, KvTable};
use crate::load::Model;
use duet_kernels::fused::{BufferShape, Buffers};
use duet_types::{Bytes, TokenId, Tokens};

/// One sequence's rows in a pass.
#[derive(Debug)]
pub struct Segment {
    /// The sequence's cache; the rows follow its last position.
    pub kv: KvTable,
    /// The rows' tokens.
    pub tokens: Vec<TokenId>,
}

/// The buffers of a pass; reused from pass to pass.
#[derive(Debug)]
pub struct Activations {
    pub(super) buffers: Buffers,
}

/// Why a pass could not start.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// More rows than the buffers hold.
    #[error("{rows} rows exceed the activation buffer of {capacity}")]
    Rows {
        /// Rows asked for.
        rows: usize,
        /// Rows the buffer holds.
        capacity: usize,
    },
    /// A sequence would outgrow the model's context.
    #[error("position {position} is beyond the context of {context}")]
    Context {
        /// The position.
        position: usize,
        /// The context length.
        context: usize,
    },
    /// A token outside the vocabulary.
    #[error("token {0} is not in the vocabulary")]
    Token(TokenId),
    /// No pages left.
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// A failed [`Pass::new`]: the buffers and tables come back untouched.
#[derive(Debug)]
pub struct PassRefused {
    /// Why.
    pub error: PassError,
    /// The buffers.
    pub activations: Activations,
    /// The segments as given.
    pub segments: Vec<Segment>,
}

/// Rows on their way through the layers.
#[derive(Debug)]
pub struct Pass {
    pub(super) activations: Activations,
    pub(super) segments: Vec<Segment>,
}

impl Activations {
    /// Buffers for up to `rows` rows of `model`.
    #[must_use]
    pub fn new(model: &Model, rows: usize) -> Self {
        let b = model.blueprint();
        let shape = BufferShape {
            hidden: b.hidden,
            qkv: (b.heads + 2 * b.kv_heads) * b.head_dim,
            queries: b.heads * b.head_dim,
            ffn: b.ffn,
            angles: b.ropes.iter().map(|rope| rope.frequencies.len()).sum(),
        };
        Self { buffers: Buffers::new(shape, rows) }
    }

    /// Rows there is room for.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.buffers.rows()
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.buffers.bytes() as u64)
    }
}

impl Pass {
    /// Checks the segments and reserves their KV.
    ///
    /// # Errors
    /// [`PassRefused`]; nothing is lost.
    pub fn new(model: &Model, activations: Activations, mut segments: Vec<Segment>) -> Result<Self, Box<PassRefused>> {
        match check(model, &activations, &segments).and_then(|()| reserve(&mut segments)) {
            Ok(()) => Ok(Self { activations, segments }),
            Err(error) => Err(Box::new(PassRefused { error, activations, segments })),
        }
    }

    /// Rows of all segments together.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.segments.iter().map(|segment| segment.tokens.len()).sum()
    }

    /// Ends the pass after the last node: each table has grown by its rows.
    #[must_use]
    pub fn finish(self) -> (Activations, Vec<KvTable>) {
        self.end(|segment| segment.kv.grow(segment.tokens.len()))
    }

    /// Gives the pass up at any point: the tables are as they were before it.
    #[must_use]
    pub fn abandon(self) -> (Activations, Vec<KvTable>) {
        self.end(|segment| segment.kv.truncate(segment.kv.len()))
    }

    fn end(self, mut each: impl FnMut(&mut Segment)) -> (Activations, Vec<KvTable>) {
        let tables = self.segments.into_iter().map(|mut segment| {
            each(&mut segment);
            segment.kv
        });
        (self.activations, tables.collect())
    }
}

fn check(model: &Model, activations: &Activations, segments: &[Segment]) -> Result<(), PassError> {
    let rows = segments.iter().map(|segment| segment.tokens.len()).sum();
    let capacity = activations.rows();
    if rows > capacity {
        return Err(PassError::Rows { rows, capacity });
    }
    let context = model.config().context.as_usize();
    for segment in segments {
        let position = segment.kv.len().as_usize() + segment.tokens.len();
        if position > context {
            return Err(PassError::Context { position, context });
        }
        if let Some(token) = segment.tokens.iter().find(|token| token.0 as usize >= model.config().vocabulary) {
            return Err(PassError::Token(*token));
        }
    }
    Ok(())
}

fn reserve(segments: &mut [Segment]) -> Result<(), PassError> {
    for index in 0..segments.len() {
        let segment = &mut segments[index];
        if let Err(error) = segment.kv.reserve(Tokens(segment.tokens.len() as u32)) {
            for segment in &mut segments[..index] {
                segment.kv.truncate(segment.kv.len());
            }
            return Err(error.into());
        }
    }
    Ok(())
}
