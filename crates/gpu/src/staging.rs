//! Memory that a GPU writes and the CPU reads.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::recording::Recording;
use std::time::Duration;

/// A buffer for results on their way to the CPU, as large as was ever needed.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    buffer: Option<wgpu::Buffer>,
}

impl Staging {
    /// Submits what is recorded, and reads the first floats of some buffers then, one after the other. How long that took, as
    /// [`Recording::run`] says.
    ///
    /// # Errors
    /// [`GpuError`]; `out` is as it was.
    pub(crate) fn read_after(
        &mut self,
        gpu: &Gpu,
        mut recording: Recording<'_>,
        from: &[(&wgpu::Buffer, usize)],
        out: &mut [f32],
    ) -> Result<Duration, GpuError> {
        let bytes = size_of_val(out) as u64;
        let buffer = self.sized(gpu, bytes)?;
        let mut at = 0;
        for &(from, floats) in from {
            recording.copy(from, buffer, at, floats);
            at += floats;
        }
        let took = recording.run()?;
        gpu.read_mapped(buffer, bytemuck::cast_slice_mut(out))?;
        Ok(took)
    }

    fn sized(&mut self, gpu: &Gpu, bytes: u64) -> Result<&wgpu::Buffer, GpuError> {
        if self.buffer.as_ref().is_none_or(|buffer| buffer.size() < bytes) {
            self.buffer = None;
            let buffer = gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("staging"),
                size: bytes.next_power_of_two().max(1 << 16),
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            gpu.check()?;
            self.buffer = Some(buffer);
        }
        self.buffer.as_ref().ok_or_else(|| GpuError::Refused("there is no memory to read into".to_owned()))
    }
}
