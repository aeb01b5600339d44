//! A whole model's token-wise blocks on one OpenVINO device.

use crate::layers::{LayersError, head_block, layer_blocks};
use crate::shapes::Shapes;
use crate::slot::Slot;
use duet_graphs::ShapeError;
use duet_model::Model;
use duet_model::forward::{NotRun, TokenWise};
use duet_openvino::{Activations, BlobCache, CompileOptions, GraphDevice, Precision, Runtime};
use std::num::{NonZeroU16, NonZeroU32};

/// The blocks of a model, compiled.
#[derive(Debug)]
pub struct PlacedModel {
    qkv: Vec<Slot>,
    feed_forward: Vec<Slot>,
    head: Slot,
}

/// What graphs are made ready for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) model: &'a str,
    pub(crate) device: &'a dyn GraphDevice,
    pub(crate) options: &'a CompileOptions,
    pub(crate) cache: Option<&'a BlobCache>,
}

/// Why a model is not on a device.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// The runtime or the device refused.
    #[error(transparent)]
    Device(#[from] duet_openvino::Error),
    /// The model has no blocks.
    #[error("the model's weights make no graph: {0}")]
    Layers(#[from] LayersError),
    /// The device takes no such graph.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// How far compiling is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedProgress {
    /// Layers that are compiled.
    pub done: usize,
    /// Layers there are, the head being one.
    pub total: usize,
}

impl PlacedModel {
    /// How activations are rounded unless somebody wants it otherwise: as the CPU's kernels do, to eight bits in groups of
    /// 32, where the device does so.
    pub const ROUNDED: Activations = Activations::Groups(NonZeroU32::new(32).unwrap());

    /// Makes the model's blocks ready on the OpenVINO device called `device` (`CPU`, `GPU`, `NPU`), to run on so many
    /// threads of it where it has such. Graphs that were compiled before are taken from the cache. With
    /// [`Activations::Floats`] nothing is rounded but the weights: half as fast, and what others are measured against.
    ///
    /// # Errors
    /// If there is no runtime or no such device, or it does not take the blocks.
    pub fn ready(
        model: &Model,
        device: &str,
        threads: u16,
        activations: Activations,
        cache: Option<&BlobCache>,
        progress: &mut dyn FnMut(PlacedProgress),
    ) -> Result<Self, OffloadError> {
        let device = Runtime::load()?.device(device)?;
        Self::ready_on(model, &device, threads, activations, cache, progress)
    }

    /// The same on any device: one graph for any number of rows where it takes that, else one for each of a few.
    ///
    /// # Errors
    /// If it does not take the blocks.
    pub fn ready_on(
        model: &Model,
        device: &dyn GraphDevice,
        threads: u16,
        activations: Activations,
        cache: Option<&BlobCache>,
        progress: &mut dyn FnMut(PlacedProgress),
    ) -> Result<Self, OffloadError> {
        let shapes = Shapes::of(device.info().shapes);
        let options = options(threads, activations);
        let target = Target { model: &model.config().name, device, options: &options, cache };
        let (layers, weights) = (model.config().layers, shapes.rules().weights);
        let (mut qkv, mut feed_forward) = (Vec::with_capacity(layers), Vec::with_capacity(layers));
        for layer in 0..layers {
            let blocks = layer_blocks(model, layer, weights)?;
            qkv.push(Slot::ready(&target, &blocks.qkv, &shapes)?);
            feed_forward.push(Slot::ready(&target, &blocks.feed_forward, &shapes)?);
            progress(PlacedProgress { done: layer + 1, total: layers + 1 });
        }
        let head = Slot::ready(&target, &head_block(model, weights)?, &shapes)?;
        progress(PlacedProgress { done: layers + 1, total: layers + 1 });
        Ok(Self { qkv, feed_forward, head })
    }
}

impl TokenWise for PlacedModel {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        slot(&self.qkv, layer)?.run(&[residual], qkv)
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        slot(&self.feed_forward, layer)?.run(&[attended, residual], fed)
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.head.run(&[residual], logits)
    }
}

fn slot(slots: &[Slot], layer: usize) -> Result<&Slot, NotRun> {
    slots.get(layer).ok_or_else(|| NotRun::Unsupported(format!("there is no layer {layer}")))
}

/// How blocks are compiled.
fn options(threads: u16, activations: Activations) -> CompileOptions {
    CompileOptions {
        threads: NonZeroU16::new(threads),
        activations: Some(activations),
        // Left to itself, a CPU that knows half precision computes in it.
        precision: Some(Precision::F32),
        streams: Some(NonZeroU16::MIN),
        ..CompileOptions::default()
    }
}
