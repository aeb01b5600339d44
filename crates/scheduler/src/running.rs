//! Kernels on lanes, as the scheduler remembers them until it hears of their end.

use crate::kernel::{PassId, Span};
use crate::machine::Bound;
use duet_types::{Instant, LaneSet, Nanos};

/// A kernel under way.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) pass: PassId,
    pub(crate) lanes: LaneSet,
    pub(crate) bound: Bound,
    pub(crate) span: Span,
    pub(crate) launched: Instant,
    pub(crate) predicted: Nanos,
    /// Whether nothing else ran beside it.
    pub(crate) undisturbed: bool,
}
