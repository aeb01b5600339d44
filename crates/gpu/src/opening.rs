//! Opens an adapter, and tries what it does: how it adds products, and whether it shares the host's memory.

use crate::adapters::{Adapter, CacheAccess};
use crate::error::GpuError;
use crate::fusing::DOUBLES;
use crate::gpu::Gpu;
use crate::host_memory::{self, Grant, HostMemory};
use crate::tried_fusing;
use duet_kernels::memory::Aligned;

impl Gpu {
    /// Opens an adapter, so that it shares the host's memory if it has no other and its driver knows how.
    ///
    /// # Errors
    /// If its driver does not open it, or it does not compile and run a shader.
    pub fn open(adapter: &Adapter) -> Result<Self, GpuError> {
        if adapter.cache_access() == CacheAccess::InPlace {
            match Self::open_with(adapter, CacheAccess::InPlace) {
                Ok(gpu) => return Ok(gpu),
                Err(why) => {
                    tracing::warn!(
                        "{} does not share memory, so weights, keys and values are copied: {why}",
                        adapter.name
                    )
                }
            }
        }
        Self::open_with(adapter, CacheAccess::Copied)
    }

    fn open_with(adapter: &Adapter, access: CacheAccess) -> Result<Self, GpuError> {
        let offered = adapter.adapter.features();
        let wanted = wgpu::DeviceDescriptor {
            label: Some("duet"),
            required_features: wgpu::Features::IMMEDIATES | offered & (wgpu::Features::TIMESTAMP_QUERY | DOUBLES),
            // All that there is: weights come in large buffers.
            required_limits: adapter.adapter.limits(),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..wgpu::DeviceDescriptor::default()
        };
        let refused = |error: wgpu::RequestDeviceError| GpuError::Refused(error.to_string());
        let sharing = match access {
            CacheAccess::InPlace => host_memory::open(&adapter.adapter, &wanted)?,
            CacheAccess::Copied => None,
        };
        let (device, queue, host_memory) = match sharing {
            Some((device, queue, host_memory)) => (device, queue, Some(host_memory)),
            None => {
                let opened = pollster::block_on(adapter.adapter.request_device(&wanted));
                let (device, queue) = opened.map_err(refused)?;
                (device, queue, None)
            }
        };
        let mut gpu = Self::new(adapter, (device, queue), host_memory);
        gpu.fusing = tried_fusing::found(&mut gpu)?;
        if let Some(sharing) = gpu.host_memory {
            gpu.try_sharing(sharing)?;
        }
        Ok(gpu)
    }

    /// Whether the adapter sees what the host wrote, and the host what it wrote.
    ///
    /// # Errors
    /// If the driver refuses it, or either is not so.
    fn try_sharing(&self, sharing: HostMemory) -> Result<(), GpuError> {
        let mut memory = Aligned::<u8>::zeroed(TRIED);
        let (half, region) = (TRIED / 2, memory.region());
        let region = region.ok_or_else(|| GpuError::Refused("the system has no pages to share".to_owned()))?;
        let between = self.empty("tried", PART);
        let byte = |at: usize, round: usize| (at * 7 + round * 31) as u8;
        let imported = self.import(sharing, (&region, 0), Grant::Write)?;
        let none = || GpuError::Refused("it takes no memory of the host's".to_owned());
        let (buffer, _) = imported.ok_or_else(none)?;
        for round in 0..2 {
            memory[..PART].iter_mut().enumerate().for_each(|(at, to)| *to = byte(at, round));
            let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.copy_buffer_to_buffer(&buffer, 0, &between, 0, PART as u64);
            encoder.copy_buffer_to_buffer(&between, 0, &buffer, half as u64, PART as u64);
            self.run(encoder.finish())?;
            if (0..PART).any(|at| memory[half + at] != byte(at, round)) {
                return Err(GpuError::Refused("it does not share the host's memory, though it says so".to_owned()));
            }
        }
        Ok(())
    }
}

/// Enough for memory of the system's own, and a part of it that is written and read.
const TRIED: usize = 4 << 20;
const PART: usize = 4096;
