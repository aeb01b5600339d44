//! A whole model's token-wise blocks on one OpenVINO device.

use crate::layers::{LayersError, head_block, layer_blocks};
use crate::shapes::Shapes;
use crate::slot::Slot;
use duet_graphs::ShapeError;
use duet_model::Model;
use duet_model::forward::{NotRun, TokenWise};
use duet_openvino::{Activations, CompileOptions, Device, Precision, Runtime};
use std::num::{NonZeroU16, NonZeroU32};

/// The blocks of a model, compiled.
#[derive(Debug)]
pub struct PlacedModel {
    qkv: Vec<Slot>,
    feed_forward: Vec<Slot>,
    head: Slot,
    _device: Device,
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
    /// Compiles the model's blocks for the device called `device` (`CPU`, `GPU`, `NPU`), to run on so many threads of it
    /// where it has such: one graph for any number of rows where the device takes that, else one for each of a few.
    ///
    /// # Errors
    /// If there is no runtime or no such device, or it does not take the blocks.
    pub fn compile(
        model: &Model,
        device: &str,
        threads: u16,
        progress: &mut dyn FnMut(PlacedProgress),
    ) -> Result<Self, OffloadError> {
        let device = Runtime::load()?.device(device)?;
        let shapes = &Shapes::of(device.info().shapes);
        let options = CompileOptions {
            threads: NonZeroU16::new(threads),
            activations: NonZeroU32::new(ACTIVATION_GROUP).map(Activations::Groups),
            precision: Some(Precision::F32),
            streams: Some(NonZeroU16::MIN),
            ..CompileOptions::default()
        };
        let layers = model.config().layers;
        let (mut qkv, mut feed_forward) = (Vec::with_capacity(layers), Vec::with_capacity(layers));
        for layer in 0..layers {
            let blocks = layer_blocks(model, layer)?;
            qkv.push(Slot::compile(&device, &blocks.qkv, shapes, &options)?);
            feed_forward.push(Slot::compile(&device, &blocks.feed_forward, shapes, &options)?);
            progress(PlacedProgress { done: layer + 1, total: layers + 1 });
        }
        let head = Slot::compile(&device, &head_block(model)?, shapes, &options)?;
        progress(PlacedProgress { done: layers + 1, total: layers + 1 });
        Ok(Self { qkv, feed_forward, head, _device: device })
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

/// Inputs that share a scale when activations are rounded: the error of a block is about one per cent.
const ACTIVATION_GROUP: u32 = 32;
