//! A whole model on a GPU, as the engine's lanes know it.
//!
//! A device that failed is opened anew, with all weights, by the first probe (`head`) that the engine sends it: that is how it
//! comes back. Whatever else is asked of it before is refused.

use crate::adapters::Adapter;
use crate::error::GpuError;
use crate::experts::{self, ExpertWidths};
use crate::fusing::Fusing;
use crate::gpu::{Fault, Gpu};
use crate::heads::HeadsOnGpu;
use crate::nodes::{FfnOnGpu, HeadOnGpu, Launcher, QkvOnGpu};
use crate::products::Method;
use crate::recording::Recording;
use crate::room::{HEAD_ROWS, Room, Widths};
use crate::spans::{SPAN_ROWS, Spans};
use crate::staging::Staging;
use duet_model::Model;
use duet_model::arch::Extra;
use duet_model::forward::{NotRun, SpanRows, SpanWise, TokenWise};
use duet_types::{Bytes, Node};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A model on a GPU.
#[derive(Debug)]
pub struct GpuModel {
    model: Arc<Model>,
    adapter: Adapter,
    /// One lane at a time has it. Nothing after a failure, until a probe.
    loaded: Mutex<Option<OnGpu>>,
}

/// What lies in the GPU's memory.
#[derive(Debug)]
struct OnGpu {
    loaded: Loaded,
    spans: Spans,
    staging: Staging,
}

/// The weights, and room for rows.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) gpu: Gpu,
    pub(crate) widths: Widths,
    pub(crate) layers: Vec<(QkvOnGpu, FfnOnGpu)>,
    pub(crate) heads: Vec<HeadsOnGpu>,
    head: HeadOnGpu,
    pub(crate) room: Room,
    pub(crate) method: Method,
}

/// Rows of a submission of one node.
const ROWS: usize = 256;

impl GpuModel {
    /// Copies a model to a GPU.
    ///
    /// # Errors
    /// If it does not open, the model is none for it, or there is no memory for it.
    pub fn new(model: Arc<Model>, adapter: &Adapter) -> Result<Self, GpuError> {
        suits(&model)?;
        let loaded = OnGpu::new(&model, adapter)?;
        Ok(Self { model, adapter: adapter.clone(), loaded: Mutex::new(Some(loaded)) })
    }

    /// What its weights take of the GPU's memory.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.locked().as_ref().map_or(0, |on_gpu| on_gpu.loaded.bytes()))
    }

    /// How products are added there: whether its results have the CPU's bits.
    #[must_use]
    pub fn fusing(&self) -> Option<Fusing> {
        self.locked().as_ref().map(|on_gpu| on_gpu.loaded.gpu.fusing)
    }

    /// Lets the next submission go wrong, for tests of what follows.
    pub fn provoke(&self, fault: Fault) {
        if let Some(on_gpu) = self.locked().as_ref() {
            on_gpu.loaded.gpu.provoke(fault);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<OnGpu>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs something on the GPU, and gives it up if that fails.
    fn run<R>(&self, work: impl FnOnce(&mut OnGpu) -> Result<R, GpuError>) -> Result<R, NotRun> {
        let mut locked = self.locked();
        let Some(on_gpu) = locked.as_mut() else { return Err(NotRun::Failed("it was given up".to_owned())) };
        let result = on_gpu.loaded.gpu.check().and_then(|()| work(on_gpu));
        result.map_err(|error| {
            let gone = locked.take();
            // To give up a device that hangs may take as long as it hangs. Without a thread it is given up here.
            let _ = std::thread::Builder::new().name("duet-gpu-gone".to_owned()).spawn(move || drop(gone));
            NotRun::Failed(error.to_string())
        })
    }

    /// Opens the GPU again if it was given up.
    fn reopen(&self) -> Result<(), NotRun> {
        let mut locked = self.locked();
        if locked.is_none() {
            let on_gpu = OnGpu::new(&self.model, &self.adapter);
            *locked = Some(on_gpu.map_err(|error| NotRun::Failed(error.to_string()))?);
        }
        Ok(())
    }
}

/// What no kernel here knows yet.
fn suits(model: &Model) -> Result<(), GpuError> {
    let blueprint = model.blueprint();
    if let Some(plan) = &blueprint.experts {
        experts::suit(plan)?;
    }
    if blueprint.recurrent.is_some() {
        return Err(GpuError::Model("layers of it have a recurrent state"));
    }
    if blueprint.residual_scale != 1.0 {
        return Err(GpuError::Model("what its layers add is scaled"));
    }
    match blueprint.extras.iter().find_map(|&extra| lacks(extra)) {
        Some(what) => Err(GpuError::Model(what)),
        None => Ok(()),
    }
}

/// What a model with this has that no kernel here computes.
fn lacks(extra: Extra) -> Option<&'static str> {
    match extra {
        Extra::Sinks => Some("its attention has sinks"),
        Extra::OutputGate => Some("its attention has gates"),
        Extra::ExpertBiases => Some("its experts have biases"),
        Extra::WidthNorms
        | Extra::ChoiceBias
        | Extra::QkvBias
        | Extra::HeadNorms
        | Extra::PostNorms
        | Extra::OutputBias
        | Extra::HeadBias => None,
        Extra::LayerNorms | Extra::NormOfEmbeddings | Extra::NormBehindAttention => None,
    }
}

impl OnGpu {
    fn new(model: &Model, adapter: &Adapter) -> Result<Self, GpuError> {
        let loaded = Loaded::new(model, adapter)?;
        let spans = Spans::new(&loaded, model)?;
        Ok(Self { loaded, spans, staging: Staging::default() })
    }

    fn qkv(&mut self, layer: usize, residual: &[f32], out: &mut [f32]) -> Result<(), GpuError> {
        let Self { loaded, staging, .. } = self;
        let Widths { hidden, qkv, .. } = loaded.widths;
        let (node, _) = loaded.layers.get(layer).ok_or(NO_LAYER)?;
        for (residual, out) in residual.chunks(ROWS * hidden).zip(out.chunks_mut(ROWS * qkv)) {
            loaded.write(&loaded.room.residual, residual);
            let mut recording = Recording::new(&loaded.gpu);
            loaded.launcher().qkv(&mut recording, node, hidden, residual.len() / hidden)?;
            staging.read_after(&loaded.gpu, recording, &[(&loaded.room.qkv, out.len())], out)?;
        }
        Ok(())
    }

    fn feed_forward(
        &mut self,
        layer: usize,
        attended: &[f32],
        residual: &[f32],
        out: &mut [f32],
    ) -> Result<(), GpuError> {
        let Self { loaded, staging, .. } = self;
        let Widths { hidden, queries, .. } = loaded.widths;
        let (_, node) = loaded.layers.get(layer).ok_or(NO_LAYER)?;
        let inputs = attended.chunks(ROWS * queries).zip(residual.chunks(ROWS * hidden));
        for ((attended, residual), out) in inputs.zip(out.chunks_mut(ROWS * hidden)) {
            loaded.write(&loaded.room.attended, attended);
            loaded.write(&loaded.room.residual, residual);
            let mut recording = Recording::new(&loaded.gpu);
            let rows = residual.len() / hidden;
            loaded.launcher().feed_forward(&mut recording, node, (queries, hidden), rows)?;
            staging.read_after(&loaded.gpu, recording, &[(&loaded.room.residual, out.len())], out)?;
        }
        Ok(())
    }

    fn head(&mut self, residual: &[f32], logits: &mut [f32]) -> Result<(), GpuError> {
        let Self { loaded, staging, .. } = self;
        let Widths { hidden, vocabulary, .. } = loaded.widths;
        for (residual, logits) in residual.chunks(HEAD_ROWS * hidden).zip(logits.chunks_mut(HEAD_ROWS * vocabulary)) {
            loaded.write(&loaded.room.residual, residual);
            let mut recording = Recording::new(&loaded.gpu);
            loaded.launcher().head(&mut recording, &loaded.head, hidden, residual.len() / hidden)?;
            staging.read_after(&loaded.gpu, recording, &[(&loaded.room.logits, logits.len())], logits)?;
        }
        Ok(())
    }
}

const NO_LAYER: GpuError = GpuError::Model("there is no such layer");

impl Loaded {
    fn new(model: &Model, adapter: &Adapter) -> Result<Self, GpuError> {
        let gpu = Gpu::open(adapter)?;
        let b = model.blueprint();
        let widths = Widths {
            hidden: b.hidden,
            qkv: (b.heads + 2 * b.kv_heads) * b.head_dim,
            queries: b.heads * b.head_dim,
            // An expert that all rows go to is one more dense block.
            ffn: b.ffn.max(b.experts.and_then(|experts| experts.shared).unwrap_or(0)),
            vocabulary: b.vocabulary,
            has_floats: false,
            experts: ExpertWidths::of(b),
        };
        let layer = |layer| {
            let (qkv, ffn) = (model.qkv_weights(layer), model.ffn_weights(layer));
            Ok((QkvOnGpu::new(&gpu, &qkv)?, FfnOnGpu::new(&gpu, &ffn)?))
        };
        let layers = (0..b.layers.len()).map(layer).collect::<Result<Vec<_>, GpuError>>()?;
        let head = HeadOnGpu::new(&gpu, &model.head_weights())?;
        let of_floats = |(qkv, ffn): &(QkvOnGpu, FfnOnGpu)| qkv.has_floats() || ffn.has_floats();
        let has_floats = head.matrix.has_floats() || layers.iter().any(of_floats);
        let widths = Widths { has_floats, ..widths };
        let heads = (0..b.layers.len()).map(|layer| HeadsOnGpu::new(&gpu, &model.qkv_weights(layer))).collect();
        let room = Room::new(&gpu, widths, SPAN_ROWS)?;
        let method = Method::FIRST;
        let mut loaded = Self { gpu, widths, layers, heads, head, room, method };
        loaded.choose()?;
        Ok(loaded)
    }

    fn bytes(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(|(qkv, ffn)| qkv.bytes() + ffn.bytes()).sum();
        layers + self.head.bytes()
    }

    pub(crate) fn launcher(&self) -> Launcher<'_> {
        Launcher { gpu: &self.gpu, room: &self.room, method: self.method }
    }

    pub(crate) fn write(&self, to: &wgpu::Buffer, floats: &[f32]) {
        self.gpu.queue.write_buffer(to, 0, bytemuck::cast_slice(floats));
    }
}

impl TokenWise for GpuModel {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.run(|on_gpu| on_gpu.qkv(layer, residual, qkv))
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.run(|on_gpu| on_gpu.feed_forward(layer, attended, residual, fed))
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.reopen()?;
        self.run(|on_gpu| on_gpu.head(residual, logits))
    }
}

impl SpanWise for GpuModel {
    fn run_span(&self, nodes: &[Node], rows: &mut SpanRows<'_>) -> Result<(), NotRun> {
        if nodes.is_empty() {
            return Ok(());
        }
        self.run(|on_gpu| on_gpu.loaded.span(&mut on_gpu.spans, &self.model, nodes, rows))?.or_refused()
    }
}
