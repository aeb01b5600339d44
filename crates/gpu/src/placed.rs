//! A whole model on a GPU, as the engine's lanes know it.
//!
//! A device that failed is opened anew, with all weights, by the first probe (`head`) that the engine sends it: that is how it
//! comes back. Whatever else is asked of it before is refused.

use crate::adapters::{Adapter, CacheAccess};
use crate::best::{self, BEST_MAX};
use crate::error::GpuError;
use crate::experts;
use crate::fusing::Fusing;
use crate::given_up::GivenUp;
use crate::gpu::{Fault, Gpu};
use crate::held::Shares;
use crate::launches::{LaunchTime, Launches, Timed};
use crate::loaded::{Loaded, NO_LAYER};
use crate::prepared::{Chosen, Part};
use crate::recording::Recording;
use crate::room::{HEAD_ROWS, Widths};
use crate::spans::Spans;
use crate::staging::Staging;
use duet_model::Model;
use duet_model::arch::Extra;
use duet_model::forward::{BestOfRow, HoldsLayers, NotRun, SpanRows, SpanWise, TokenWise};
use duet_types::{Bytes, Node, RequestId};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A model on a GPU.
#[derive(Debug)]
pub struct GpuModel {
    model: Arc<Model>,
    adapter: Adapter,
    shares: Shares,
    /// How it came to keys and values when it was first opened.
    cache_access: CacheAccess,
    /// The layers that it holds, or will when it is opened again.
    held: Mutex<Range<usize>>,
    /// Requests whose copies are to go before anything else is done: who says so does not wait for the GPU.
    dropped: Mutex<Vec<RequestId>>,
    /// One lane at a time has it. Nothing after a failure, until a probe.
    loaded: Mutex<Option<OnGpu>>,
    given_up: GivenUp,
}

/// What a GPU has while it is open.
#[derive(Debug)]
struct OnGpu {
    loaded: Loaded,
    spans: Spans,
    staging: Staging,
}

/// Rows of a submission of one node.
const ROWS: usize = 256;

impl GpuModel {
    /// Brings a model to a GPU: its weights are copied, or read where they are by one that shares the processor's memory, if they lie
    /// in memory of the process's own ([`WeightsIn::OwnMemory`](duet_model::WeightsIn)).
    ///
    /// # Errors
    /// If it does not open, the model is none for it, or there is no memory for it.
    pub fn new(model: Arc<Model>, adapter: &Adapter) -> Result<Self, GpuError> {
        Self::within(model, adapter, None)
    }

    /// Brings as many of a model's layers to a GPU as have room in so much of its memory.
    ///
    /// # Errors
    /// As [`Self::new`]; and if not even one has.
    pub fn within(model: Arc<Model>, adapter: &Adapter, memory: Option<Bytes>) -> Result<Self, GpuError> {
        suits(&model)?;
        let shares = Shares::new(&model, Loaded::widths(&model), memory);
        let held = shares.longest()?;
        let on_gpu = OnGpu::new(&model, adapter, &held, shares.pages)?;
        let cache_access = on_gpu.loaded.gpu.cache_access();
        Ok(Self {
            model,
            adapter: adapter.clone(),
            shares,
            cache_access,
            held: Mutex::new(held),
            dropped: Mutex::default(),
            loaded: Mutex::new(Some(on_gpu)),
            given_up: GivenUp::default(),
        })
    }

    /// Whether it holds all layers of the model.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        self.held() == (0..self.model.blueprint().layers.len())
    }

    /// What its weights take of the GPU's own memory.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.locked().as_ref().map_or(0, |on_gpu| on_gpu.loaded.bytes().copied))
    }

    /// Weights that it reads where the cores have them.
    #[must_use]
    pub fn shared_bytes(&self) -> Bytes {
        Bytes(self.locked().as_ref().map_or(0, |on_gpu| on_gpu.loaded.bytes().shared))
    }

    /// How products are added there: whether its results have the CPU's bits.
    #[must_use]
    pub fn fusing(&self) -> Option<Fusing> {
        self.locked().as_ref().map(|on_gpu| on_gpu.loaded.gpu.fusing)
    }

    /// What was read back from it since it was opened.
    #[must_use]
    pub fn read_bytes(&self) -> Bytes {
        Bytes(self.locked().as_ref().map_or(0, |on_gpu| on_gpu.loaded.gpu.read.load(Ordering::Relaxed)))
    }

    /// Keys and values that were copied there since it was opened: none, where it reads the cache itself.
    #[must_use]
    pub fn copied_bytes(&self) -> Bytes {
        Bytes(self.locked().as_ref().map_or(0, |on_gpu| on_gpu.loaded.gpu.copied.load(Ordering::Relaxed)))
    }

    /// Sequences whose keys and values it has copies of.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.locked().as_ref().map_or(0, |on_gpu| on_gpu.spans.kept.copies())
    }

    /// Has the processor's work, or each launch, timed from now on, on an adapter that has a clock.
    pub fn time_launches(&self, timed: Timed) {
        let locked = self.locked();
        let Some(gpu) = locked.as_ref().map(|on_gpu| &on_gpu.loaded.gpu) else { return };
        if let Some(launches) = Launches::of(&gpu.device, &gpu.queue).filter(|_| gpu.launches.get().is_none()) {
            // Nobody else has it meanwhile: the model is locked.
            let _ = gpu.launches.set(launches);
        }
        gpu.launches.get().into_iter().for_each(|launches| launches.time(timed));
    }

    /// What each launch took since the last time that this was asked, or since they are timed.
    #[must_use]
    pub fn launch_times(&self) -> Vec<LaunchTime> {
        let locked = self.locked();
        let launches = locked.as_ref().and_then(|on_gpu| on_gpu.loaded.gpu.launches.get());
        launches.map(Launches::take).unwrap_or_default()
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
            let mut gone = locked.take();
            if let Some(on_gpu) = &mut gone {
                on_gpu.spans.kept.leave();
            }
            self.given_up.take_down(gone);
            NotRun::Failed(error.to_string())
        })
    }

    /// Whether the head is there, which goes with the last layer.
    fn with_head(&self) -> Result<(), NotRun> {
        if self.held().end < self.model.blueprint().layers.len() {
            return Err(NotRun::Unsupported("it holds other layers".to_owned()));
        }
        Ok(())
    }

    /// Opens the GPU again if it was given up.
    fn reopen(&self) -> Result<(), NotRun> {
        let mut locked = self.locked();
        if locked.is_none() {
            let on_gpu = OnGpu::new(&self.model, &self.adapter, &self.held(), self.shares.pages);
            *locked = Some(on_gpu.map_err(|error| NotRun::Failed(error.to_string()))?);
        }
        Ok(())
    }
}

/// Whether an adapter is one that reads this model's weights where the cores have them. Opens it, if it may be.
#[must_use]
pub fn shares_weights(model: &Model, adapter: &Adapter) -> bool {
    adapter.may_be_given_memory()
        && suits(model).is_ok()
        && Gpu::open(adapter).is_ok_and(|gpu| gpu.cache_access() == CacheAccess::InPlace)
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
    if blueprint.wide.is_some() {
        return Err(GpuError::Model("its layers differ in their heads"));
    }
    if blueprint.head_dim > 256 {
        return Err(GpuError::Model("its heads are wider than 256 dimensions"));
    }
    if blueprint.layer_input.is_some() {
        return Err(GpuError::Model("its layers have inputs of their own"));
    }
    if blueprint.logit_cap.is_some() {
        return Err(GpuError::Model("its logits are bounded"));
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
        Extra::ValueNorms | Extra::ValuesOfKeys => Some("it norms values"),
        Extra::LayerScales => Some("what its layers make is scaled"),
        Extra::OutputGate => Some("its attention has gates"),
        Extra::ExpertBiases => Some("its experts have biases"),
        Extra::BlockBeside => Some("its experts stand beside a dense block"),
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
    fn new(model: &Model, adapter: &Adapter, held: &Range<usize>, pages: u64) -> Result<Self, GpuError> {
        let loaded = Loaded::new(model, adapter, held)?;
        let spans = Spans::new(&loaded, model, pages)?;
        Ok(Self { loaded, spans, staging: Staging::default() })
    }

    fn qkv(&mut self, layer: usize, residual: &[f32], out: &mut [f32]) -> Result<(), GpuError> {
        let Self { loaded, staging, .. } = self;
        let Widths { hidden, qkv, .. } = loaded.widths;
        let (node, _) = loaded.layer(layer)?;
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
        let (_, node) = loaded.layer(layer)?;
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
        let Self { loaded, staging, spans } = self;
        let Widths { hidden, vocabulary, .. } = loaded.widths;
        let head = loaded.head.as_ref().ok_or(NO_LAYER)?;
        for (residual, logits) in residual.chunks(HEAD_ROWS * hidden).zip(logits.chunks_mut(HEAD_ROWS * vocabulary)) {
            loaded.write(&loaded.room.residual, residual);
            let (mut recording, rows) = (Recording::new(&loaded.gpu), residual.len() / hidden);
            recording.part(&mut spans.kept.prepared, Part::Head { rows }, |to| {
                loaded.launcher().head(to, head, &loaded.room.residual, (hidden, rows))
            })?;
            staging.read_after(&loaded.gpu, recording, &[(&loaded.room.logits, logits.len())], logits)?;
        }
        Ok(())
    }

    /// The best logits of rows, at most [`BEST_MAX`] of each.
    fn head_best(&mut self, residual: &[f32], count: usize) -> Result<Vec<BestOfRow>, GpuError> {
        let Self { loaded, staging, spans } = self;
        let hidden = loaded.widths.hidden;
        let head = loaded.head.as_ref().ok_or(NO_LAYER)?;
        let mut all = Vec::with_capacity(residual.len() / hidden);
        for residual in residual.chunks(HEAD_ROWS * hidden) {
            loaded.write(&loaded.room.residual, residual);
            let (mut recording, rows) = (Recording::new(&loaded.gpu), residual.len() / hidden);
            loaded.best(&mut recording, &mut spans.kept.prepared, head, (Chosen::First(rows), count))?;
            let mut words = vec![0.0; best::words_of(rows, count)];
            staging.read_after(&loaded.gpu, recording, &[(&loaded.room.best, words.len())], &mut words)?;
            all.extend(best::of_rows(&words, count));
        }
        Ok(all)
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
        self.with_head()?;
        self.run(|on_gpu| on_gpu.head(residual, logits))
    }

    fn head_best(&self, residual: &[f32], count: usize) -> Result<Option<Vec<BestOfRow>>, NotRun> {
        if !(1..=BEST_MAX).contains(&count) {
            return Ok(None);
        }
        self.with_head()?;
        self.run(|on_gpu| on_gpu.head_best(residual, count)).map(Some)
    }
}

impl SpanWise for GpuModel {
    fn run_span(&self, nodes: &[Node], rows: &mut SpanRows<'_>) -> Result<(), NotRun> {
        if nodes.is_empty() {
            return Ok(());
        }
        let run = self.run(|on_gpu| {
            let dropped = std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner));
            on_gpu.spans.kept.drop_copies(&dropped);
            on_gpu.loaded.span(&mut on_gpu.spans, &self.model, nodes, rows)
        });
        run?.or_refused()
    }

    fn copies_room(&self) -> Option<Bytes> {
        match self.cache_access {
            CacheAccess::InPlace => None,
            CacheAccess::Copied => Some(Bytes(self.shares.pages)),
        }
    }

    fn drop_copy(&self, request: RequestId) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }
}

impl HoldsLayers for GpuModel {
    fn room(&self) -> Bytes {
        self.shares.weights
    }

    fn bytes_of(&self, layer: usize) -> Bytes {
        self.shares.layers.get(layer).copied().unwrap_or(Bytes(u64::MAX))
    }

    fn held(&self) -> Range<usize> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hold(&self, layers: Range<usize>) -> Result<(), NotRun> {
        if !self.shares.fit(&layers) {
            return Err(NotRun::Failed(format!("layers {layers:?} do not fit its memory, or are none")));
        }
        let mut locked = self.locked();
        // What is there goes first: there is no room for both.
        *locked = None;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&layers);
        let on_gpu = OnGpu::new(&self.model, &self.adapter, &layers, self.shares.pages);
        *locked = Some(on_gpu.map_err(|error| NotRun::Failed(error.to_string()))?);
        Ok(())
    }
}
