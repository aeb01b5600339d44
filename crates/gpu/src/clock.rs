//! An adapter's own clock: when launches began and ended there, whatever the queue held before them.

use std::time::Duration;

/// Places for the times of a submission.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Passes of a submission that have a place.
    passes: u32,
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
    /// Nanoseconds of a tick.
    period: f64,
}

/// Passes that recordings have: some launches are one, and what is copied between launches makes another.
pub(crate) const FEW: u32 = 64;
/// Passes where each launch is one, for who asks what each takes: the most that a set of queries takes.
pub(crate) const EACH: u32 = wgpu::QUERY_SET_MAX_QUERIES / 2;

impl Clock {
    /// Of a device, if it has one, with places for so many passes of a submission.
    pub(crate) fn of(device: &wgpu::Device, queue: &wgpu::Queue, passes: u32) -> Option<Self> {
        if !device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return None;
        }
        let bytes = bytes_of(passes);
        let buffer = |label, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: bytes,
                usage,
                mapped_at_creation: false,
            })
        };
        Some(Self {
            passes,
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("times"),
                ty: wgpu::QueryType::Timestamp,
                count: 2 * passes,
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
        (pass < self.passes).then_some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(2 * pass),
            end_of_pass_write_index: Some(2 * pass + 1),
        })
    }

    /// Whether it has the times of so many passes.
    pub(crate) fn has(&self, passes: u32) -> bool {
        (1..=self.passes).contains(&passes)
    }

    /// Copies the times of some passes to where they are read.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, passes: u32) {
        encoder.resolve_query_set(&self.queries, 0..2 * passes, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.read, 0, bytes_of(passes));
    }

    /// Where the times of a submission that has ended are read.
    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.read
    }

    /// How long passes took that began and ended at these ticks. Nothing if the clock went backwards meanwhile.
    pub(crate) fn times(&self, ticks: &[[u64; 2]]) -> Option<Vec<Duration>> {
        let of = |[began, ended]: &[u64; 2]| {
            let ticks = ended.checked_sub(*began)?;
            Some(Duration::from_nanos((ticks as f64 * self.period) as u64))
        };
        ticks.iter().map(of).collect()
    }
}

/// Of the times of so many passes.
fn bytes_of(passes: u32) -> u64 {
    2 * u64::from(passes) * u64::from(wgpu::QUERY_SIZE)
}
