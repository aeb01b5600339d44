//! Token-wise kernels on another device than the crew's cores.
//!
//! A device takes the linear part of a kernel whole: norm and projection; output projection and feed-forward; the head.
//! Head norms, rope, the cache and attention stay here. After an error nothing has changed, so that the kernel can be run
//! here instead. (Agent.xpu §4.2: token-wise nodes are what static graphs take)

use super::pass::Pass;
use crate::load::Model;
use duet_kernels::crew::Crew;
use duet_types::{Node, TokenId};
use std::fmt::Debug;
use std::ops::Range;

/// Runs a model's token-wise kernels.
pub trait TokenWise: Debug + Send + Sync {
    /// Norm and projection of the residual stream, with bias: `[rows][hidden]` to `[rows][qkv]`.
    ///
    /// # Errors
    /// [`NotRun`].
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun>;

    /// Output projection, norm and feed-forward: `[rows][queries]` and `[rows][hidden]` to `[rows][hidden]`.
    ///
    /// # Errors
    /// [`NotRun`].
    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun>;

    /// Norm and logits: `[rows][hidden]` to `[rows][vocabulary]`.
    ///
    /// # Errors
    /// [`NotRun`].
    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun>;

    /// Norm, and the best logits of each row: `[rows][hidden]` to `count` of each. Nothing, and nothing was done, from a device
    /// that brings back whole rows only, or fewer than so many.
    ///
    /// # Errors
    /// [`NotRun`].
    fn head_best(&self, _residual: &[f32], _count: usize) -> Result<Option<Vec<BestOfRow>>, NotRun> {
        Ok(None)
    }

    /// Begins [`Self::qkv`], whose results are `len` floats, and does not wait. A device without a queue computes at once.
    ///
    /// # Errors
    /// [`NotRun`].
    fn begin_qkv(&self, layer: usize, residual: &[f32], len: usize) -> Result<Box<dyn Begun + '_>, NotRun> {
        let mut done = vec![0.0; len];
        self.qkv(layer, residual, &mut done)?;
        Ok(Box::new(Done(done)))
    }

    /// Begins [`Self::feed_forward`] and does not wait. A device without a queue computes at once.
    ///
    /// # Errors
    /// [`NotRun`].
    fn begin_feed_forward(
        &self,
        layer: usize,
        attended: &[f32],
        residual: &[f32],
    ) -> Result<Box<dyn Begun + '_>, NotRun> {
        let mut done = vec![0.0; residual.len()];
        self.feed_forward(layer, attended, residual, &mut done)?;
        Ok(Box::new(Done(done)))
    }
}

/// The best logits of a row with their tokens, the largest first, of equals the smaller token; both zeros are equal. What is no
/// number and negative infinity are left out, so there may be fewer than were asked for.
pub type BestOfRow = Vec<(TokenId, f32)>;

/// A kernel that a device has begun. Dropped, its results are not wanted.
pub trait Begun {
    /// Waits for its results, which fill `out`.
    ///
    /// # Errors
    /// [`NotRun`]; `out` is as it was.
    fn finish(self: Box<Self>, out: &mut [f32]) -> Result<(), NotRun>;
}

/// A kernel that was computed at once.
struct Done(Vec<f32>);

impl Begun for Done {
    fn finish(self: Box<Self>, out: &mut [f32]) -> Result<(), NotRun> {
        out.copy_from_slice(&self.0);
        Ok(())
    }
}

/// The device did not run a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRun {
    /// It takes no such kernel, or not in this shape.
    #[error("the device does not take this kernel: {0}")]
    Unsupported(String),
    /// It failed.
    #[error("the device failed: {0}")]
    Failed(String),
}

impl Model {
    /// Runs one node on `rows` of the pass, its linear part on a device. Attention and embeddings are not for a device.
    ///
    /// # Errors
    /// [`NotRun`]; the pass is as it was.
    ///
    /// # Panics
    /// As [`Model::run_node`].
    pub fn run_node_on(
        &self,
        device: &dyn TokenWise,
        pass: &mut Pass,
        node: Node,
        rows: Range<usize>,
        crew: &dyn Crew,
    ) -> Result<(), NotRun> {
        if !node.is_token_wise() {
            self.run_node(pass, node, rows, crew);
            return Ok(());
        }
        let begun = self.begin_node_on(device, pass, node, rows.clone())?;
        self.end_node_on(begun, pass, node, rows, crew)
    }

    /// Begins the linear part of a token-wise node on some rows on a device, and does not wait. The pass does not change
    /// until [`Self::end_node_on`]; other rows may be computed meanwhile. (Agent.xpu §4.3 ④: an elastic split)
    ///
    /// # Errors
    /// [`NotRun`], also of nodes that are not token-wise.
    ///
    /// # Panics
    /// If the rows or the layer do not exist.
    pub fn begin_node_on<'d>(
        &self,
        device: &'d dyn TokenWise,
        pass: &mut Pass,
        node: Node,
        rows: Range<usize>,
    ) -> Result<Box<dyn Begun + 'd>, NotRun> {
        let buffers = &mut pass.activations.buffers;
        match node {
            Node::Qkv { layer } => {
                let (residual, qkv) = buffers.projected(rows).ok_or_else(sparse)?;
                device.begin_qkv(layer, residual, qkv.len())
            }
            Node::Ffn { layer } => {
                let (attended, residual, _) = buffers.fed(rows).ok_or_else(sparse)?;
                device.begin_feed_forward(layer, attended, residual)
            }
            _ => Err(not_token_wise()),
        }
    }

    /// Waits for what was begun on these rows, and takes its results.
    ///
    /// # Errors
    /// [`NotRun`]; the rows are as they were.
    ///
    /// # Panics
    /// As [`Self::begin_node_on`].
    pub fn end_node_on(
        &self,
        begun: Box<dyn Begun + '_>,
        pass: &mut Pass,
        node: Node,
        rows: Range<usize>,
        crew: &dyn Crew,
    ) -> Result<(), NotRun> {
        let buffers = &mut pass.activations.buffers;
        if let Node::Qkv { layer } = node {
            let (_, qkv) = buffers.projected(rows.clone()).ok_or_else(sparse)?;
            begun.finish(qkv)?;
            self.keys_and_values(pass, layer, rows, crew);
        } else {
            let (_, _, fed) = buffers.fed(rows.clone()).ok_or_else(sparse)?;
            begun.finish(fed)?;
            buffers.take_fed(rows);
        }
        Ok(())
    }

    /// Logits of the chosen rows, as [`Model::logits`], on a device.
    ///
    /// # Errors
    /// [`NotRun`].
    ///
    /// # Panics
    /// If a row does not exist.
    pub fn logits_on(
        &self,
        device: &dyn TokenWise,
        pass: &mut Pass,
        rows: &[usize],
        out: &mut Vec<f32>,
    ) -> Result<(), NotRun> {
        let residual = residual_of(pass, rows);
        let len = rows.len() * self.config().vocabulary;
        out.resize(out.len().max(len), 0.0);
        device.head(&residual, &mut out[..len])
    }

    /// The best `count` logits of each of the chosen rows, by a device that brings back no more than these, or has brought them along
    /// with the last span ([`Pass::seek_best`]); nothing from one that does not, or not so many.
    ///
    /// # Errors
    /// [`NotRun`].
    ///
    /// # Panics
    /// If a row does not exist.
    pub fn best_on(
        &self,
        device: &dyn TokenWise,
        pass: &mut Pass,
        rows: &[usize],
        count: usize,
    ) -> Result<Option<Vec<BestOfRow>>, NotRun> {
        if let Some(best) = pass.take_best(rows, count) {
            return Ok(Some(best));
        }
        device.head_best(&residual_of(pass, rows), count)
    }
}

fn residual_of(pass: &mut Pass, rows: &[usize]) -> Vec<f32> {
    rows.iter().flat_map(|&row| pass.activations.buffers.residual(row)).copied().collect()
}

pub(super) fn not_token_wise() -> NotRun {
    NotRun::Unsupported("it is not token-wise".to_owned())
}

pub(super) fn sparse() -> NotRun {
    NotRun::Unsupported("its rows are not dense".to_owned())
}
