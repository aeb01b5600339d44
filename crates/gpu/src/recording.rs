//! Launches one after another, as one submission. Launches lie in one pass until something is copied, and what one of them
//! writes and a later one reads is there by then.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::pipelines::Pipeline;
use std::time::{Duration, Instant};

/// Launches that are being recorded.
pub(crate) struct Recording<'a> {
    gpu: &'a Gpu,
    encoder: wgpu::CommandEncoder,
    /// Under way; ended before anything else is encoded.
    pass: Option<wgpu::ComputePass<'static>>,
    /// Passes whose beginning and end the adapter's clock writes down; none if nobody asks.
    timed: Option<u32>,
}

/// How many workgroups a launch has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups(pub(crate) usize, pub(crate) usize);

impl<'a> Recording<'a> {
    pub(crate) fn new(gpu: &'a Gpu) -> Self {
        let encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("duet") });
        Self { gpu, encoder, pass: None, timed: None }
    }

    /// One whose launches are timed, by the adapter's own clock where it has one.
    pub(crate) fn timed(gpu: &'a Gpu) -> Self {
        Self { timed: Some(0), ..Self::new(gpu) }
    }

    /// A launch of a shader on some buffers, in the order in which it binds them, told these numbers.
    pub(crate) fn launch(
        &mut self,
        pipeline: &Pipeline,
        buffers: &[wgpu::BufferBinding<'_>],
        told: &[u32],
        groups: Groups,
    ) {
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(buffer.clone()),
            })
            .collect();
        let bound = self.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.layout,
            entries: &entries,
        });
        let pass = self.pass();
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &bound, &[]);
        if !told.is_empty() {
            pass.set_immediates(0, bytemuck::cast_slice(told));
        }
        // Limits were asked for: groups of columns stay below those of the largest vocabulary, rows below a room's.
        pass.dispatch_workgroups(groups.0 as u32, groups.1 as u32, 1);
    }

    /// The pass under way, or a new one.
    fn pass(&mut self) -> &mut wgpu::ComputePass<'static> {
        let Self { gpu, encoder, pass, timed } = self;
        pass.get_or_insert_with(|| {
            let clock = gpu.clock.as_ref().zip(timed.as_mut());
            let writes = clock.and_then(|(clock, passes)| clock.writes(passes));
            encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes: writes })
                .forget_lifetime()
        })
    }

    /// Copies the first floats of a buffer to a place in another one.
    pub(crate) fn copy(&mut self, from: &wgpu::Buffer, to: &wgpu::Buffer, at: usize, floats: usize) {
        self.pass = None;
        self.encoder.copy_buffer_to_buffer(from, 0, to, (at * 4) as u64, (floats * 4) as u64);
    }

    /// Copies bytes within a buffer by way of another, since no command copies from a buffer to itself.
    pub(crate) fn copy_within(&mut self, buffer: &wgpu::Buffer, by: &wgpu::Buffer, from: u64, to: u64, bytes: u64) {
        self.pass = None;
        self.encoder.copy_buffer_to_buffer(buffer, from, by, 0, bytes);
        self.encoder.copy_buffer_to_buffer(by, 0, buffer, to, bytes);
    }

    /// Submits all of it, and does not wait: what is submitted later, or written, comes behind.
    pub(crate) fn submit(mut self) {
        self.pass = None;
        self.gpu.queue.submit([self.encoder.finish()]);
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
        let began = Instant::now();
        self.gpu.run(self.encoder.finish())?;
        let found = clock.map(|(clock, passes)| clock.read(self.gpu, passes)).transpose()?.flatten();
        Ok(found.unwrap_or_else(|| began.elapsed()))
    }
}
