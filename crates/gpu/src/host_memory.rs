//! Memory of the host's as a buffer of an adapter that has no other: the cores and the GPU read and write the same bytes.
//!
//! By Vulkan's `VK_EXT_external_memory_host`, which takes memory that there is; so what lies in it outlives a device that is lost.
//! `wgpu` knows nothing of it, and what it is handed is a buffer like any other. (Agent.xpu §2: one memory for CPU, iGPU and NPU.)
//!
//! Invariant: the memory stays until the adapter has done with the buffer, whoever dropped it before.

#[cfg(not(target_vendor = "apple"))]
mod vulkan;
#[cfg(target_vendor = "apple")]
mod vulkan {
    //! Metal is reached another way, which nobody has tried yet.

    use super::{GpuError, HostMemory, Region};
    use std::ops::Range;

    pub(crate) fn open(
        _adapter: &wgpu::Adapter,
        _wanted: &wgpu::DeviceDescriptor<'_>,
    ) -> Result<Option<(wgpu::Device, wgpu::Queue, HostMemory)>, GpuError> {
        Ok(None)
    }

    pub(super) fn import(
        _device: &wgpu::Device,
        _part: (&Region, Range<usize>),
        _how: (wgpu::BufferUsages, usize),
    ) -> Result<wgpu::Buffer, GpuError> {
        Err(GpuError::Model("memory of the host's"))
    }

    pub(super) fn to_host(_device: &wgpu::Device, encoder: wgpu::CommandEncoder) -> wgpu::CommandBuffer {
        encoder.finish()
    }
}

pub(crate) use vulkan::open;

use crate::error::GpuError;
use duet_kernels::memory::Region;

/// What submissions may do with memory that they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// They read it.
    Read,
    /// They read it, and write to it what nobody has borrowed.
    Write,
}

impl Grant {
    fn usage(self) -> wgpu::BufferUsages {
        let read = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        match self {
            Self::Read => read,
            Self::Write => read | wgpu::BufferUsages::COPY_DST,
        }
    }
}

/// That an adapter can be given the host's memory, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory {
    /// Bytes that what it is given begins and ends at a multiple of.
    alignment: u64,
}

impl HostMemory {
    /// A region as a buffer, from the last place before `from` on that it may begin at, as much of it as one binding reads; and that
    /// place. Nothing if nothing of it can be given. Nobody may have borrowed bytes of it that a submission writes.
    ///
    /// # Errors
    /// If the driver refuses that.
    pub(crate) fn import(
        self,
        (device, binding_max): (&wgpu::Device, u64),
        (region, from): (&Region, usize),
        grant: Grant,
    ) -> Result<Option<(wgpu::Buffer, usize)>, GpuError> {
        let alignment = self.alignment();
        let from = from / alignment * alignment;
        let most = usize::try_from(binding_max).unwrap_or(usize::MAX);
        let bytes = region.bytes().saturating_sub(from).min(most) / alignment * alignment;
        if bytes == 0 || !region.start().addr().get().is_multiple_of(alignment) {
            return Ok(None);
        }
        let part = (region, from..from + bytes);
        Ok(Some((vulkan::import(device, part, (grant.usage(), alignment))?, from)))
    }

    /// Bytes that what an adapter is given begins and ends at a multiple of.
    pub(crate) fn alignment(self) -> usize {
        usize::try_from(self.alignment).unwrap_or(usize::MAX)
    }

    /// What is submitted behind commands that write to the host's memory, so that the host sees it when they have ended.
    pub(crate) fn to_host(self, device: &wgpu::Device, encoder: wgpu::CommandEncoder) -> wgpu::CommandBuffer {
        vulkan::to_host(device, encoder)
    }
}
