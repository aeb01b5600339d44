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

/// A piece of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) first: usize,
    pub(crate) floats: usize,
}

impl Piece {
    /// The first floats of a buffer.
    pub(crate) fn beginning(buffer: &wgpu::Buffer, floats: usize) -> Self {
        Self { buffer: buffer.clone(), first: 0, floats }
    }
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
        recording: Recording<'_>,
        from: &[(&wgpu::Buffer, usize)],
        out: &mut [f32],
    ) -> Result<Duration, GpuError> {
        let from: Vec<_> = from.iter().map(|&(buffer, floats)| Piece::beginning(buffer, floats)).collect();
        self.show_after(gpu, recording, &from, |floats| out.copy_from_slice(floats))
    }

    /// Submits what is recorded, and shows pieces of buffers then, one after the other, where they arrive: nothing can fail any more
    /// by then.
    ///
    /// # Errors
    /// [`GpuError`]; nothing was shown.
    pub(crate) fn show_after(
        &mut self,
        gpu: &Gpu,
        mut recording: Recording<'_>,
        from: &[Piece],
        show: impl FnOnce(&[f32]),
    ) -> Result<Duration, GpuError> {
        let bytes = from.iter().map(|piece| piece.floats * size_of::<f32>()).sum::<usize>();
        let buffer = self.sized(gpu, bytes as u64)?;
        let mut at = 0;
        for piece in from.iter().filter(|piece| piece.floats > 0) {
            recording.copy((&piece.buffer, piece.first), (buffer, at), piece.floats);
            at += piece.floats;
        }
        let took = recording.run()?;
        gpu.with_mapped(buffer, bytes, |bytes| show(bytemuck::cast_slice(bytes)))?;
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
