//! Token-wise kernels on another device than the crew's cores.
//!
//! A device takes the linear part of a kernel whole: norm and projection; output projection and feed-forward; the head.
//! Head norms, rope, the cache and attention stay here. After an error nothing has changed, so that the kernel can be run
//! here instead. (Agent.xpu §4.2: token-wise nodes are what static graphs take)

use super::nodes::Node;
use super::pass::Pass;
use crate::load::Model;
use duet_kernels::crew::Crew;
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
        assert!(rows.end <= pass.rows());
        let sparse = || NotRun::Unsupported("its rows are not dense".to_owned());
        let buffers = &mut pass.activations.buffers;
        match node {
            Node::Embed | Node::Attention { .. } => self.run_node(pass, node, rows, crew),
            Node::Qkv { layer } => {
                let (residual, qkv) = buffers.projected(rows.clone()).ok_or_else(sparse)?;
                device.qkv(layer, residual, qkv)?;
                self.keys_and_values(pass, layer, rows, crew);
            }
            Node::Ffn { layer } => {
                let (attended, residual, fed) = buffers.fed(rows.clone()).ok_or_else(sparse)?;
                device.feed_forward(layer, attended, residual, fed)?;
                buffers.take_fed(rows);
            }
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
        let residual: Vec<f32> = rows.iter().flat_map(|&row| pass.activations.buffers.residual(row)).copied().collect();
        let len = rows.len() * self.config().vocabulary;
        out.resize(out.len().max(len), 0.0);
        device.head(&residual, &mut out[..len])
    }
}
