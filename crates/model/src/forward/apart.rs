//! Rows of a node that a device computes while others have the pass: what they read is copied out, and what they come to
//! is joined when it is there.
//!
//! A lane that computes some rows of a node has the pass for itself meanwhile. A device beside it reads a copy, which
//! all of its kernels of the node share, and its results wait until somebody has the pass. (Agent.xpu §4.3 ④: both lanes
//! of an elastic split run at once)
//!
//! Invariant: nothing of the pass changes until the results are joined, so that other rows can be computed meanwhile, and
//! these ones again where a device failed.

use super::pass::Pass;
use super::token_wise::{NotRun, TokenWise, not_token_wise};
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_types::Node;
use std::ops::Range;

/// What a token-wise node reads, all rows of a pass.
#[derive(Clone, Debug)]
pub struct NodeInputs {
    node: Node,
    residual: Vec<f32>,
    /// For the feed-forward only.
    attended: Vec<f32>,
    rows: usize,
    /// Floats that a row comes to.
    width: usize,
}

/// What some rows of a node came to.
#[derive(Clone, Debug)]
pub struct NodeOutputs {
    node: Node,
    rows: Range<usize>,
    values: Vec<f32>,
}

impl NodeInputs {
    /// Runs the node on some rows on a device, and waits.
    ///
    /// # Errors
    /// [`NotRun`].
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn run_on(&self, device: &dyn TokenWise, rows: Range<usize>) -> Result<NodeOutputs, NotRun> {
        let mut values = vec![0.0; rows.len() * self.width];
        let residual = of_rows(&self.residual, self.rows, &rows);
        match self.node {
            Node::Qkv { layer } => device.qkv(layer, residual, &mut values)?,
            Node::Ffn { layer } => {
                device.feed_forward(layer, of_rows(&self.attended, self.rows, &rows), residual, &mut values)?;
            }
            _ => return Err(not_token_wise()),
        }
        Ok(NodeOutputs { node: self.node, rows, values })
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> Node {
        self.node
    }
}

impl NodeOutputs {
    /// The rows.
    #[must_use]
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }
}

fn of_rows<'a>(values: &'a [f32], all: usize, rows: &Range<usize>) -> &'a [f32] {
    let width = values.len() / all.max(1);
    &values[rows.start * width..rows.end * width]
}

impl Model {
    /// What a token-wise node reads of a pass; nothing for other nodes, and where rows are not dense.
    #[must_use]
    pub fn inputs_of(&self, pass: &mut Pass, node: Node) -> Option<NodeInputs> {
        let rows = pass.rows();
        let buffers = &mut pass.activations.buffers;
        let inputs = |residual: &[f32], attended: &[f32], outputs: usize| NodeInputs {
            node,
            residual: residual.to_vec(),
            attended: attended.to_vec(),
            rows,
            width: outputs / rows.max(1),
        };
        match node {
            Node::Qkv { .. } => {
                let (residual, qkv) = buffers.projected(0..rows)?;
                Some(inputs(residual, &[], qkv.len()))
            }
            Node::Ffn { .. } => {
                let (attended, residual, fed) = buffers.fed(0..rows)?;
                Some(inputs(residual, attended, fed.len()))
            }
            _ => None,
        }
    }

    /// Takes what rows came to on a device; for projections the crew does what follows them, up to the cache.
    ///
    /// # Errors
    /// [`NotRun`] if it is of another pass; that one is as it was.
    pub fn take_outputs(&self, pass: &mut Pass, outputs: &NodeOutputs, crew: &dyn Crew) -> Result<(), NotRun> {
        let rows = outputs.rows.clone();
        let foreign = || NotRun::Unsupported("its rows are of another pass".to_owned());
        if rows.end > pass.rows() {
            return Err(foreign());
        }
        let buffers = &mut pass.activations.buffers;
        let to = match outputs.node {
            Node::Qkv { .. } => buffers.projected(rows.clone()).map(|(_, qkv)| qkv),
            _ => buffers.fed(rows.clone()).map(|(_, _, fed)| fed),
        };
        let to = to.filter(|to| to.len() == outputs.values.len()).ok_or_else(foreign)?;
        to.copy_from_slice(&outputs.values);
        match outputs.node {
            Node::Qkv { layer } => self.keys_and_values(pass, layer, rows, crew),
            _ => buffers.take_fed(rows),
        }
        Ok(())
    }
}
