//! An adapter that is open: its queue, what it has been told to compile, and what became of it.
//!
//! Waiting has a limit. A device that was lost stays so: who wants to go on opens it again ([`Gpu::open`]).

use crate::adapters::{Adapter, CacheAccess, Kind};
use crate::clock::{self, Clock};
use crate::display::Displays;
use crate::error::GpuError;
use crate::fusing::Fusing;
use crate::host_memory::{Grant, HostMemory};
use crate::launches::Launches;
use crate::pipelines::Pipelines;
use crate::windows::Windows;
use duet_kernels::memory::Region;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A device.
#[derive(Debug)]
pub struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) pipelines: Pipelines,
    /// What sort of adapter it is.
    pub(crate) kind: Kind,
    /// Pages that a workgroup attends to at once, where there are few rows.
    pub(crate) pages_at_once: usize,
    /// The most that one binding reads.
    pub(crate) binding_max: u64,
    /// What it draws beside.
    pub(crate) displays: Displays,
    /// Its clock, if it has one.
    pub(crate) clock: Option<Clock>,
    /// What each launch takes, once somebody has asked.
    pub(crate) launches: OnceLock<Launches>,
    /// How it is given the host's memory, if it shares that.
    pub(crate) host_memory: Option<HostMemory>,
    /// Weights that it was given where they are.
    pub(crate) windows: Windows,
    /// How it adds products.
    pub(crate) fusing: Fusing,
    /// Bytes that were read back.
    pub(crate) read: AtomicU64,
    /// Bytes of keys and values that were copied there.
    pub(crate) copied: AtomicU64,
    /// What the driver last said was wrong.
    trouble: Arc<Mutex<Option<GpuError>>>,
    /// A [`Fault`] that is to come, for tests.
    fault: AtomicU8,
}

/// What a test lets go wrong with the next submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device goes away, as with a driver that is reset.
    Lost,
    /// There is no memory for a buffer.
    NoMemory,
    /// What was submitted does not end.
    Hung,
}

impl Gpu {
    /// A device that an adapter was opened as. How it adds products is not known yet.
    pub(crate) fn new(
        adapter: &Adapter,
        (device, queue): (wgpu::Device, wgpu::Queue),
        host_memory: Option<HostMemory>,
    ) -> Self {
        let trouble = Arc::new(Mutex::new(None));
        let lost = Arc::clone(&trouble);
        device.set_device_lost_callback(move |_, why| note(&lost, GpuError::Lost(why)));
        let failed = Arc::clone(&trouble);
        device.on_uncaptured_error(Arc::new(move |error| note(&failed, GpuError::Refused(first_line(&error)))));
        let pipelines = Pipelines::default();
        let (fault, read, copied) = (AtomicU8::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (binding_max, fusing) = (adapter.binding_max, Fusing::Apart);
        let clock = Clock::of(&device, &queue, clock::FEW);
        let displays = Displays::of(adapter.kind, &adapter.adapter.get_info().device_pci_bus_id);
        Self {
            device,
            queue,
            pipelines,
            kind: adapter.kind,
            pages_at_once: adapter.pages_at_once,
            binding_max,
            displays,
            clock,
            launches: OnceLock::new(),
            host_memory,
            windows: Windows::default(),
            fusing,
            read,
            copied,
            trouble,
            fault,
        }
    }

    /// Memory of the host's as a buffer, by an adapter that takes it ([`HostMemory::import`]).
    ///
    /// # Errors
    /// If the driver refuses that.
    pub(crate) fn import(
        &self,
        sharing: HostMemory,
        part: (&Region, usize),
        grant: Grant,
    ) -> Result<Option<(wgpu::Buffer, usize)>, GpuError> {
        let imported = sharing.import((&self.device, self.binding_max), part, grant)?;
        self.check()?;
        Ok(imported)
    }

    /// How long passes of a submission that has ended took each, by a clock. Nothing if that went backwards meanwhile.
    pub(crate) fn times(&self, clock: &Clock, passes: u32) -> Result<Option<Vec<Duration>>, GpuError> {
        let mut ticks = vec![[0_u64; 2]; passes as usize];
        self.read_mapped(clock.buffer(), bytemuck::cast_slice_mut(ticks.as_flattened_mut()))?;
        Ok(clock.times(&ticks))
    }

    /// Whether a workgroup may have so many threads, and bytes that they share.
    pub(crate) fn takes_workgroup(&self, threads: usize, bytes: usize) -> bool {
        let limits = self.device.limits();
        let most = limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x);
        threads <= most as usize && bytes <= limits.max_compute_workgroup_storage_size as usize
    }

    /// How it comes to keys and values.
    pub(crate) fn cache_access(&self) -> CacheAccess {
        if self.host_memory.is_some() { CacheAccess::InPlace } else { CacheAccess::Copied }
    }

    /// What has gone wrong with it; then it is of no use any more.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<(), GpuError> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.clone().map_or(Ok(()), Err)
    }

    /// Notes for who asks what launches take how long the processor was busy with, since it began with it.
    pub(crate) fn note(&self, what: &str, began: Instant) {
        if let Some(launches) = self.launches.get() {
            launches.note_host(what, began.elapsed());
        }
    }

    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("duet") })
    }

    /// Submits what was recorded and waits for it, no longer than a submission may take.
    ///
    /// # Errors
    /// [`GpuError`].
    pub(crate) fn run(&self, commands: wgpu::CommandBuffer) -> Result<(), GpuError> {
        let began = Instant::now();
        let to_host = self.host_memory.map(|host_memory| host_memory.to_host(&self.device, self.encoder()));
        let submitted = self.queue.submit([commands].into_iter().chain(to_host));
        self.note("submitting", began);
        let began = Instant::now();
        self.wait(submitted)?;
        self.note("waiting", began);
        Ok(())
    }

    /// Waits for a submission.
    fn wait(&self, submitted: wgpu::SubmissionIndex) -> Result<(), GpuError> {
        let hangs = self.provoked()?;
        self.wait_for(Some(submitted), if hangs { 0 } else { SLICES })
    }

    /// Reads the first bytes of a buffer that can be mapped, whose commands have ended.
    pub(crate) fn read_mapped(&self, buffer: &wgpu::Buffer, out: &mut [u8]) -> Result<(), GpuError> {
        self.with_mapped(buffer, out.len(), |bytes| out.copy_from_slice(bytes))
    }

    /// Shows the first bytes of a buffer that can be mapped, whose commands have ended.
    pub(crate) fn with_mapped(
        &self,
        buffer: &wgpu::Buffer,
        count: usize,
        show: impl FnOnce(&[u8]),
    ) -> Result<(), GpuError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let range = 0..count as u64;
        buffer.map_async(wgpu::MapMode::Read, range.clone(), move |mapped| {
            // Nobody waits for it after an error.
            let _ = sender.send(mapped);
        });
        let began = Instant::now();
        self.wait_for(None, SLICES)?;
        self.note("mapping", began);
        let began = Instant::now();
        let refused = |error: &dyn std::fmt::Display| GpuError::Refused(error.to_string());
        receiver.try_recv().map_err(|error| refused(&error))?.map_err(|error| refused(&error))?;
        show(&buffer.get_mapped_range(range).map_err(|error| refused(&error))?);
        self.note("reading", began);
        buffer.unmap();
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for so many slices of time: a process that was stopped meanwhile, or a machine that slept, loses one of them.
    fn wait_for(&self, submission_index: Option<wgpu::SubmissionIndex>, slices: u64) -> Result<(), GpuError> {
        for _ in 0..slices {
            let submission_index = submission_index.clone();
            let waiting = wgpu::PollType::Wait { submission_index, timeout: Some(SLICE) };
            match self.device.poll(waiting) {
                Ok(_) => return self.check(),
                Err(wgpu::PollError::Timeout) => {}
                Err(error) => return Err(GpuError::Refused(error.to_string())),
            }
        }
        let hung = GpuError::Hung((SLICE * SLICES as u32).as_secs());
        note(&self.trouble, hung.clone());
        Err(hung)
    }

    /// Lets the next submission go wrong: for tests of what follows.
    pub fn provoke(&self, fault: Fault) {
        self.fault.store(fault as u8 + 1, Ordering::Relaxed);
    }

    /// Does what a test has asked for, by the way that the driver would. Whether the submission is to hang.
    fn provoked(&self) -> Result<bool, GpuError> {
        match self.fault.swap(0, Ordering::Relaxed) {
            0 => return Ok(false),
            fault if fault == Fault::Hung as u8 + 1 => return Ok(true),
            fault if fault == Fault::Lost as u8 + 1 => self.device.destroy(),
            _ => {
                let usage = wgpu::BufferUsages::STORAGE;
                let size = u64::MAX / 4;
                drop(self.device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("too large"),
                    size,
                    usage,
                    mapped_at_creation: false,
                }));
            }
        }
        // Callbacks come with a poll.
        let _ = self.device.poll(wgpu::PollType::Poll);
        self.check()?;
        Ok(false)
    }
}

/// A kernel takes milliseconds. Drivers give up after two seconds on some systems and after ten on others; a program on the
/// processor, beside others, may take long: a minute.
const SLICES: u64 = 60;
const SLICE: Duration = Duration::from_secs(1);

/// The first trouble is the cause of the others.
fn note(trouble: &Mutex<Option<GpuError>>, error: GpuError) {
    tracing::warn!("{error}");
    trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
}

/// Errors of shaders quote them.
fn first_line(error: &wgpu::Error) -> String {
    let text = error.to_string();
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(6).collect();
    lines.join("; ")
}
