//! Launches one after another, as one submission.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::pipelines::Pipeline;

/// Launches that are being recorded.
pub(crate) struct Recording<'a> {
    gpu: &'a Gpu,
    encoder: wgpu::CommandEncoder,
}

/// How many workgroups a launch has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups(pub(crate) usize, pub(crate) usize);

impl<'a> Recording<'a> {
    pub(crate) fn new(gpu: &'a Gpu) -> Self {
        let encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("duet") });
        Self { gpu, encoder }
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
        let mut pass = self.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, &bound, &[]);
        if !told.is_empty() {
            pass.set_immediates(0, bytemuck::cast_slice(told));
        }
        // Limits were asked for: groups of columns stay below those of the largest vocabulary, rows below a room's.
        pass.dispatch_workgroups(groups.0 as u32, groups.1 as u32, 1);
    }

    /// Copies the first floats of a buffer to a place in another one.
    pub(crate) fn copy(&mut self, from: &wgpu::Buffer, to: &wgpu::Buffer, at: usize, floats: usize) {
        self.encoder.copy_buffer_to_buffer(from, 0, to, (at * 4) as u64, (floats * 4) as u64);
    }

    /// Copies bytes within a buffer, to where none of them are.
    pub(crate) fn copy_within(&mut self, buffer: &wgpu::Buffer, from: u64, to: u64, bytes: u64) {
        self.encoder.copy_buffer_to_buffer(buffer, from, buffer, to, bytes);
    }

    /// Submits all of it, and does not wait: what is submitted later, or written, comes behind.
    pub(crate) fn submit(self) {
        self.gpu.queue.submit([self.encoder.finish()]);
    }

    /// Submits all of it, and waits.
    ///
    /// # Errors
    /// [`GpuError`].
    pub(crate) fn run(self) -> Result<(), GpuError> {
        self.gpu.run(self.encoder.finish())
    }
}
