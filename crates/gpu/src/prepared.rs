//! Launches that a pass had before. One with as many rows launches the same again, and to look up shaders and to bind buffers takes
//! the processor longer than small launches take the GPU.
//!
//! Invariant: what a launch is told, and how large it is, depend on its key alone; what differs from one pass to the next lies
//! in buffers.

use crate::divided::Divided;
use crate::pipelines::Pipeline;
use duet_types::Node;
use std::collections::HashMap;
use std::sync::Arc;

/// A launch: what it binds, and what it is told.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) bound: wgpu::BindGroup,
    pub(crate) told: Vec<u32>,
    pub(crate) groups: Groups,
}

/// How many workgroups a launch has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups(pub(crate) usize, pub(crate) usize);

/// A part of a pass of so many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// A node, whose keys and values are the `results`th of the span, and whose attention is divided so.
    Node { node: Node, rows: usize, results: usize, divided: Divided },
    /// The head.
    Head { rows: usize },
    /// The head of the first rows, or of some that were chosen, and so many of the best logits.
    Best { rows: Chosen, count: usize },
}

/// Rows whose logits are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Chosen {
    /// So many of the residual stream.
    First(usize),
    /// So many that were copied out of it.
    Copied(usize),
}

/// Launches of parts. They keep what they bind alive.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    parts: HashMap<Part, Arc<[Launch]>>,
}

/// Parts that are kept at most: of a dozen numbers of rows, in a model of some dozen layers.
const PARTS_MAX: usize = 1 << 11;

impl Prepared {
    pub(crate) fn get(&self, part: Part) -> Option<Arc<[Launch]>> {
        self.parts.get(&part).cloned()
    }

    pub(crate) fn keep(&mut self, part: Part, launches: Vec<Launch>) {
        if self.parts.len() >= PARTS_MAX {
            self.parts.clear();
        }
        self.parts.insert(part, launches.into());
    }

    /// Lets go of all: what they bind is not used any more.
    pub(crate) fn forget(&mut self) {
        self.parts.clear();
    }
}
