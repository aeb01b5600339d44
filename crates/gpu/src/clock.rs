//! An adapter's own clock: when launches began and ended there, whatever the queue held before them.

use crate::error::GpuError;
use crate::gpu::Gpu;
use std::time::Duration;

/// Places for the times of a submission.
#[derive(Debug)]
pub(crate) struct Clock {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
    /// Nanoseconds of a tick.
    period: f64,
}

/// Passes of a submission that have a place: what is copied between launches makes another.
const PASSES: u32 = 8;

const BYTES: u64 = 2 * PASSES as u64 * wgpu::QUERY_SIZE as u64;

impl Clock {
    /// Of a device, if it has one.
    pub(crate) fn of(device: &wgpu::Device, queue: &wgpu::Queue) -> Option<Self> {
        if !device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return None;
        }
        let buffer = |label, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: BYTES,
                usage,
                mapped_at_creation: false,
            })
        };
        Some(Self {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("times"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * PASSES,
            }),
            resolved: buffer("times", wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            read: buffer("times read", wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ),
            period: f64::from(queue.get_timestamp_period()),
        })
    }

    /// Where the next pass of a submission writes, if there is room.
    pub(crate) fn writes(&self, passes: &mut u32) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let pass = *passes;
        *passes += 1;
        (pass < PASSES).then_some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(2 * pass),
            end_of_pass_write_index: Some(2 * pass + 1),
        })
    }

    /// Whether it has the times of so many passes.
    pub(crate) fn has(&self, passes: u32) -> bool {
        (1..=PASSES).contains(&passes)
    }

    /// Copies the times of some passes to where they are read.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, passes: u32) {
        encoder.resolve_query_set(&self.queries, 0..2 * passes, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.read, 0, BYTES);
    }

    /// How long the passes of a submission that has ended took together. Nothing if the clock went backwards meanwhile.
    pub(crate) fn read(&self, gpu: &Gpu, passes: u32) -> Result<Option<Duration>, GpuError> {
        let mut times = [0_u64; 2 * PASSES as usize];
        gpu.read_mapped(&self.read, bytemuck::cast_slice_mut(&mut times))?;
        let ticks =
            times[..2 * passes as usize].as_chunks::<2>().0.iter().try_fold(0_u64, |sum, [began, ended]| {
                ended.checked_sub(*began).and_then(|ticks| sum.checked_add(ticks))
            });
        Ok(ticks.filter(|&ticks| ticks > 0).map(|ticks| Duration::from_nanos((ticks as f64 * self.period) as u64)))
    }
}
