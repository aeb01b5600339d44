//! Launches one after another, submitted some at a time. Launches lie in one pass until something is copied, and what one of them
//! writes and a later one reads is there by then.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::launches::Launches;
use crate::pipelines::Pipeline;
use crate::prepared::{Groups, Launch, Part, Prepared};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Launches that are submitted together: at first few, so that a GPU begins while others are recorded, and then twice as many each
/// time, up to so many.
const FIRST_TOGETHER: u32 = 8;
const TOGETHER_MAX: u32 = 64;

/// Launches that are being recorded.
pub(crate) struct Recording<'a> {
    gpu: &'a Gpu,
    encoder: wgpu::CommandEncoder,
    /// Under way; ended before anything else is encoded.
    pass: Option<wgpu::ComputePass<'static>>,
    /// Launches of the part that is made, to be kept.
    noted: Option<Vec<Launch>>,
    /// Launches since some were submitted, and after how many that is done again.
    launched: u32,
    together: u32,
    /// Whether anything is copied.
    copied: bool,
    /// Passes whose beginning and end the adapter's clock writes down; none if nobody asks.
    timed: Option<u32>,
    /// Names of launches, where each is timed.
    names: Vec<String>,
}

impl<'a> Recording<'a> {
    pub(crate) fn new(gpu: &'a Gpu) -> Self {
        Self {
            gpu,
            encoder: gpu.encoder(),
            pass: None,
            noted: None,
            launched: 0,
            together: FIRST_TOGETHER,
            copied: false,
            timed: None,
            names: Vec::new(),
        }
    }

    /// One whose launches are timed, by the adapter's own clock where it has one.
    pub(crate) fn timed(gpu: &'a Gpu) -> Self {
        Self { timed: Some(0), ..Self::new(gpu) }
    }

    /// A launch of a shader on some buffers, in the order in which it binds them, told these numbers.
    pub(crate) fn launch(
        &mut self,
        pipeline: &Arc<Pipeline>,
        buffers: &[wgpu::BufferBinding<'_>],
        told: &[u32],
        groups: Groups,
    ) {
        let resources = buffers.iter().map(|buffer| wgpu::BindingResource::Buffer(buffer.clone()));
        let entries: Vec<_> =
            (0..).zip(resources).map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource }).collect();
        let described = wgpu::BindGroupDescriptor { label: None, layout: &pipeline.layout, entries: &entries };
        let bound = self.gpu.device.create_bind_group(&described);
        let launch = Launch { pipeline: Arc::clone(pipeline), bound, told: told.to_vec(), groups };
        self.again(&launch);
        if let Some(noted) = &mut self.noted {
            noted.push(launch);
        }
    }

    /// A launch that was made before.
    pub(crate) fn again(&mut self, launch: &Launch) {
        if self.launched == self.together {
            self.submit_some();
        }
        self.launched += 1;
        let Launch { pipeline, bound, told, groups } = launch;
        let pass = self.pass_of(pipeline);
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, bound, &[]);
        if !told.is_empty() {
            pass.set_immediates(0, bytemuck::cast_slice(told));
        }
        // Limits were asked for: groups of columns stay below those of the largest vocabulary, rows below a room's.
        pass.dispatch_workgroups(groups.0 as u32, groups.1 as u32, 1);
    }

    /// A part of a pass: launches that were made before, or those that `make` makes, which are kept then.
    pub(crate) fn part(
        &mut self,
        prepared: &mut Prepared,
        part: Part,
        make: impl FnOnce(&mut Self) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        if let Some(launches) = prepared.get(part) {
            launches.iter().for_each(|launch| self.again(launch));
            return Ok(());
        }
        self.noted = Some(Vec::new());
        let made = make(self);
        let launches = self.noted.take().unwrap_or_default();
        made?;
        prepared.keep(part, launches);
        Ok(())
    }

    /// The pass that a launch goes to: one of its own where each is timed.
    fn pass_of(&mut self, pipeline: &Pipeline) -> &mut wgpu::ComputePass<'static> {
        let Some(clock) = self.gpu.launches.get().and_then(Launches::clock) else { return self.pass() };
        let mut number = self.names.len() as u32;
        self.names.push(pipeline.name.clone());
        // The one before ends before this one begins.
        self.pass = None;
        let timestamp_writes = clock.writes(&mut number);
        let described = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
        self.pass.insert(self.encoder.begin_compute_pass(&described).forget_lifetime())
    }

    /// The pass under way, or a new one.
    fn pass(&mut self) -> &mut wgpu::ComputePass<'static> {
        let Self { gpu, encoder, pass, timed, .. } = self;
        pass.get_or_insert_with(|| {
            let clock = gpu.clock.as_ref().zip(timed.as_mut());
            let writes = clock.and_then(|(clock, passes)| clock.writes(passes));
            encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes: writes })
                .forget_lifetime()
        })
    }

    /// Copies floats from a place in a buffer to a place in another one.
    pub(crate) fn copy(&mut self, from: (&wgpu::Buffer, usize), to: (&wgpu::Buffer, usize), floats: usize) {
        (self.pass, self.copied) = (None, true);
        let [source, target, bytes] = [from.1, to.1, floats].map(|floats| (floats * size_of::<f32>()) as u64);
        self.encoder.copy_buffer_to_buffer(from.0, source, to.0, target, bytes);
    }

    /// Copies bytes within a buffer by way of another, since no command copies from a buffer to itself.
    pub(crate) fn copy_within(&mut self, buffer: &wgpu::Buffer, by: &wgpu::Buffer, from: u64, to: u64, bytes: u64) {
        (self.pass, self.copied) = (None, true);
        self.encoder.copy_buffer_to_buffer(buffer, from, by, 0, bytes);
        self.encoder.copy_buffer_to_buffer(by, 0, buffer, to, bytes);
    }

    /// Submits what is recorded so far.
    fn submit_some(&mut self) {
        self.pass = None;
        let encoder = std::mem::replace(&mut self.encoder, self.gpu.encoder());
        self.gpu.queue.submit([encoder.finish()]);
        (self.launched, self.together) = (0, (2 * self.together).min(TOGETHER_MAX));
    }

    /// Submits all of it, if there is anything, and does not wait: what is submitted later, or written, comes behind.
    pub(crate) fn submit_any(mut self) {
        self.pass = None;
        if self.launched > 0 || self.copied {
            self.gpu.queue.submit([self.encoder.finish()]);
        }
    }

    /// Submits all of it, and waits. How long its launches took: by the adapter's clock if they were timed and it has one, which
    /// leaves out what others had it do before; else by the processor's.
    ///
    /// # Errors
    /// [`GpuError`].
    pub(crate) fn run(mut self) -> Result<Duration, GpuError> {
        self.pass = None;
        let clock = self.gpu.clock.as_ref().zip(self.timed).filter(|(clock, passes)| clock.has(*passes));
        if let Some((clock, passes)) = clock {
            clock.resolve(&mut self.encoder, passes);
        }
        let count = self.names.len() as u32;
        let each = self.gpu.launches.get().filter(|launches| launches.clock().is_some_and(|clock| clock.has(count)));
        if let Some(clock) = each.and_then(Launches::clock) {
            clock.resolve(&mut self.encoder, count);
        }
        let began = Instant::now();
        self.gpu.run(self.encoder.finish())?;
        let elapsed = began.elapsed();
        if let Some((launches, clock)) = each.and_then(|launches| Some((launches, launches.clock()?))) {
            launches.note(self.names, self.gpu.times(clock, count)?.unwrap_or_default());
        }
        let found = clock.map(|(clock, passes)| self.gpu.times(clock, passes)).transpose()?.flatten();
        Ok(found.map(|all| all.iter().sum()).filter(|sum: &Duration| !sum.is_zero()).unwrap_or(elapsed))
    }
}
