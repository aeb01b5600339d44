//! A whole model's token-wise blocks on one device.

use crate::calibration::CalibrateError;
use crate::known_ranges::{KnownRanges, Place};
use crate::layers::{LayersError, head_block, layer_blocks};
use crate::shapes::Shapes;
use crate::slot::Slot;
use duet_model::Model;
use duet_model::forward::{Begun, NotRun, TokenWise};
use duet_runtimes::{BlobCache, GraphDevice};
use duet_types::Bytes;

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
    pub(crate) cache: Option<&'a BlobCache>,
}

/// Why a model is not on a device.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// The runtime or the device refused.
    #[error(transparent)]
    Device(#[from] duet_runtimes::Error),
    /// The model has no blocks.
    #[error("the model's weights make no graph: {0}")]
    Layers(#[from] LayersError),
    /// It could not be found out between which numbers the model's values lie.
    #[error("the model cannot be calibrated: {0}")]
    Calibrate(#[from] CalibrateError),
    /// Experts were asked for.
    #[error("this model is dense: it has no experts to place")]
    Dense,
    /// Experts were asked for, and only some layers have any.
    #[error("the first layers of this model have no experts, which devices do not take yet: run it on the CPU")]
    DenseLayers,
    /// Attention was asked for.
    #[error("every layer of this model attends within a window, which devices leave to the CPU")]
    Windows,
    /// Attention was asked for.
    #[error("this model's attention has sinks, which devices leave to the CPU")]
    Sinks,
    /// Attention was asked for.
    #[error("layers of this model differ in their heads, which devices leave to the CPU")]
    Heads,
    /// Attention was asked for.
    #[error("some layers of this model have a recurrent state in attention's place, which devices leave to the CPU")]
    Recurrent,
    /// A cache that has no room for what is loaded from it while requests are served.
    #[error(
        "{asked} for compiled graphs are too little: those that are loaded while this model is served take about {needed}"
    )]
    CacheTooSmall {
        /// What it may take.
        asked: Bytes,
        /// What it needs.
        needed: Bytes,
    },
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
    /// Makes the model's blocks ready on a device: one graph for any number of rows where it takes that, else one for each of
    /// a few. Graphs that were compiled before are taken from the cache.
    ///
    /// # Errors
    /// If it does not take the blocks.
    pub fn ready_on(
        model: &Model,
        device: &dyn GraphDevice,
        cache: Option<&BlobCache>,
        progress: &mut dyn FnMut(PlacedProgress),
    ) -> Result<Self, OffloadError> {
        let target = Target { model: &model.config().name, device, cache };
        Self::ready_in(model, &target, &Shapes::of(device.rules().rows), progress)
    }

    /// The same in these shapes.
    pub(crate) fn ready_in(
        model: &Model,
        target: &Target<'_>,
        shapes: &Shapes,
        progress: &mut dyn FnMut(PlacedProgress),
    ) -> Result<Self, OffloadError> {
        let (layers, weights) = (model.config().layers, target.device.rules().weights);
        let ranges = KnownRanges::of(model, target.device, target.cache);
        let (mut qkv, mut feed_forward) = (Vec::with_capacity(layers), Vec::with_capacity(layers));
        for layer in 0..layers {
            let blocks = layer_blocks(model, layer, weights)?;
            let seen = ranges.get(Place::Qkv(layer), &blocks.qkv)?;
            qkv.push(Slot::ready(target, &blocks.qkv, seen.as_ref(), shapes)?);
            let seen = ranges.get(Place::FeedForward(layer), &blocks.feed_forward)?;
            feed_forward.push(Slot::ready(target, &blocks.feed_forward, seen.as_ref(), shapes)?);
            progress(PlacedProgress { done: layer + 1, total: layers + 1 });
        }
        let head = head_block(model, weights)?;
        let seen = ranges.get(Place::Head, &head)?;
        ranges.keep();
        let head = Slot::ready(target, &head, seen.as_ref(), shapes)?;
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

    fn begin_qkv(&self, layer: usize, residual: &[f32], len: usize) -> Result<Box<dyn Begun + '_>, NotRun> {
        Ok(Box::new(slot(&self.qkv, layer)?.begin(&[residual], len)?))
    }

    fn begin_feed_forward(
        &self,
        layer: usize,
        attended: &[f32],
        residual: &[f32],
    ) -> Result<Box<dyn Begun + '_>, NotRun> {
        Ok(Box::new(slot(&self.feed_forward, layer)?.begin(&[attended, residual], residual.len())?))
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.head.run(&[residual], logits)
    }
}

pub(crate) fn slot(slots: &[Slot], layer: usize) -> Result<&Slot, NotRun> {
    slots.get(layer).ok_or_else(|| NotRun::Unsupported(format!("there is no layer {layer}")))
}
