//! What plans are made for: a device, and a model's experts.

use duet_types::{Bytes, Nanos, Tokens};

/// What an accelerator says of itself, as far as experts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Capacities are multiples of this: 16 for the paper's device (§3.2).
    pub tile: Tokens,
    /// Weights that one graph may have. A larger one would fall back to the CPU unseen (§4.2).
    pub graph_bytes_max: Bytes,
    /// Experts that one graph may have.
    pub group_max: usize,
    /// Memory for resident graphs.
    pub resident_bytes_max: Bytes,
    /// How long things take.
    pub times: Times,
}

/// Times of an expert of the model at hand, measured or predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A launch on the accelerator, and waiting for it.
    pub launch: Nanos,
    /// Reading an expert's weights on the accelerator, once a launch; zero where it is part of what a launch takes.
    pub weights: Nanos,
    /// A slot of a graph on the accelerator, padded or not.
    pub slot: Nanos,
    /// A row on the CPU, computed by all its threads together.
    pub cpu_row: Nanos,
    /// Reading an expert's weights on the CPU, once a chunk if any row goes there: as fast as memory is for all threads
    /// together.
    pub cpu_weights: Nanos,
}

/// A layer's experts, and the chunk that graphs are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoeShape {
    /// Rows of a chunk.
    pub chunk: Tokens,
    /// Experts that a row goes to.
    pub chosen: u32,
    /// Weights of one expert, as the device keeps them.
    pub expert_bytes: Bytes,
}
