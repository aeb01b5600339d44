//! Memory that a GPU writes and the CPU reads.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::recording::Recording;

/// A buffer for results on their way to the CPU, as large as was ever needed.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    buffer: Option<wgpu::Buffer>,
}

impl Staging {
    /// Reads the first floats of some buffers, one after the other.
    ///
    /// # Errors
    /// [`GpuError`]; `out` is as it was.
    pub(crate) fn read(&mut self, gpu: &Gpu, from: &[(&wgpu::Buffer, usize)], out: &mut [f32]) -> Result<(), GpuError> {
        let recording = Recording::new(gpu);
        self.read_after(gpu, recording, from, out)
    }

    /// Submits what is recorded, and reads then.
    ///
    /// # Errors
    /// [`GpuError`]; `out` is as it was.
    pub(crate) fn read_after(
        &mut self,
        gpu: &Gpu,
        mut recording: Recording<'_>,
        from: &[(&wgpu::Buffer, usize)],
        out: &mut [f32],
    ) -> Result<(), GpuError> {
        let bytes = size_of_val(out) as u64;
        let buffer = self.sized(gpu, bytes)?;
        let mut at = 0;
        for &(from, floats) in from {
            recording.copy(from, buffer, at, floats);
            at += floats;
        }
        recording.run()?;
        let (sender, receiver) = std::sync::mpsc::channel();
        buffer.map_async(wgpu::MapMode::Read, 0..bytes, move |mapped| {
            // Nobody waits for it after an error.
            let _ = sender.send(mapped);
        });
        gpu.wait_for_maps()?;
        let refused = |error: &dyn std::fmt::Display| GpuError::Refused(error.to_string());
        receiver.try_recv().map_err(|error| refused(&error))?.map_err(|error| refused(&error))?;
        {
            let view = buffer.get_mapped_range(0..bytes).map_err(|error| refused(&error))?;
            out.copy_from_slice(bytemuck::cast_slice(&view));
        }
        buffer.unmap();
        Ok(())
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
