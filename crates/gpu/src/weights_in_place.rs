//! Weights where the processor has them, for an adapter that shares its memory: it reads the bytes that the cores read, and there is
//! no second copy. (Agent.xpu §2: one memory for CPU, iGPU and NPU.)
//!
//! Memory is imported a window at a time, each as large as a binding may be. What lies across the end of one is in the next one
//! whole. Weights that lie elsewhere, a mapped file's for one, are copied, and so are those that a driver does not take.
//!
//! Invariant: nothing writes to a window: it is imported to be read, and shaders bind weights to read them.

use crate::gpu::Gpu;
use crate::host_memory::Grant;
use crate::windows::Window;
use duet_kernels::memory::Region;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Quants or scales, as a shader binds them.
#[derive(Debug)]
pub(crate) enum Panels {
    /// All of a buffer.
    Copied(wgpu::Buffer),
    /// A part of a window.
    InPlace {
        window: wgpu::Buffer,
        /// Where they begin in it.
        at: u64,
        bytes: NonZeroU64,
    },
}

impl Panels {
    pub(crate) fn bound(&self) -> wgpu::BufferBinding<'_> {
        match self {
            Self::Copied(buffer) => wgpu::BufferBinding { buffer, offset: 0, size: None },
            Self::InPlace { window, at, bytes } => {
                wgpu::BufferBinding { buffer: window, offset: *at, size: Some(*bytes) }
            }
        }
    }

    /// Bytes of the adapter's own memory.
    pub(crate) fn copied(&self) -> u64 {
        match self {
            Self::Copied(buffer) => buffer.size(),
            Self::InPlace { .. } => 0,
        }
    }

    /// Bytes that the cores read as well.
    pub(crate) fn shared(&self) -> u64 {
        match self {
            Self::Copied(_) => 0,
            Self::InPlace { bytes, .. } => bytes.get(),
        }
    }
}

impl Gpu {
    /// Weights as shaders bind them: where they are, or a copy.
    pub(crate) fn panels(&self, label: &'static str, bytes: &[u8], region: Option<&Region>) -> Panels {
        let in_place = region.and_then(|region| {
            let at = region.place_of(bytes)?;
            self.part_in_place(region, at..at + bytes.len())
        });
        in_place.unwrap_or_else(|| Panels::Copied(self.filled(label, bytes)))
    }

    /// The same of experts, all as long, which are bound one behind the other: where they are, if they lie so.
    pub(crate) fn panels_of_experts(&self, experts: &[&[u8]], region: Option<&Region>) -> Panels {
        let in_place = region.and_then(|region| {
            let (first, len) = (region.place_of(experts.first()?)?, experts.first()?.len());
            let lies = |(index, expert): (usize, &&[u8])| region.place_of(expert) == Some(first + index * len);
            experts
                .iter()
                .enumerate()
                .all(lies)
                .then(|| self.part_in_place(region, first..first + experts.len() * len))?
        });
        in_place.unwrap_or_else(|| {
            let all = self.empty("experts", experts.iter().map(|expert| expert.len()).sum());
            let mut at = 0;
            for expert in experts {
                self.write(&all, at, expert);
                at += expert.len() as u64;
            }
            Panels::Copied(all)
        })
    }

    /// A part of a region where it is; nothing if the adapter does not take it.
    fn part_in_place(&self, region: &Region, part: Range<usize>) -> Option<Panels> {
        let sharing = self.host_memory.filter(|_| !self.windows.refused.load(Ordering::Relaxed))?;
        let limits = self.device.limits();
        // A binding is of whole words.
        let bytes = NonZeroU64::new(part.len() as u64).filter(|bytes| bytes.get().is_multiple_of(4))?;
        if bytes.get() > self.slab_max(Some(region)) {
            return None;
        }
        let mut open = self.windows.open.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open.iter().find_map(|window| Some((window.buffer.clone(), window.place_of(region, &part)?)));
        let (window, at) = known.or_else(|| {
            let imported = self.import(sharing, (region, part.start), Grant::Read).unwrap_or_else(|why| {
                self.windows.refused.store(true, Ordering::Relaxed);
                tracing::warn!("a GPU that shares memory is not given weights, which are copied: {why}");
                None
            });
            let (buffer, from) = imported?;
            let window = Window { region: region.clone(), from, buffer };
            let found = (window.buffer.clone(), window.place_of(region, &part)?);
            open.push(window);
            Some(found)
        })?;
        let is_aligned = at.is_multiple_of(u64::from(limits.min_storage_buffer_offset_alignment));
        is_aligned.then_some(Panels::InPlace { window, at, bytes })
    }

    /// The most that a slab of a region's weights takes to fit into a window, wherever it begins.
    pub(crate) fn slab_max(&self, region: Option<&Region>) -> u64 {
        let before = self.host_memory.filter(|_| region.is_some()).map_or(0, |sharing| 2 * sharing.alignment() as u64);
        self.binding_max.saturating_sub(before).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_memory::HostMemory;
    use crate::recording::Recording;
    use crate::self_test::opened;
    use crate::staging::Staging;
    use duet_kernels::memory::Aligned;

    #[test]
    fn parts_are_found_in_windows_and_what_no_window_holds_is_copied() {
        let Some(mut gpu) = opened().filter(|gpu| gpu.host_memory.is_some()) else { return };
        let alignment = gpu.host_memory.map_or(0, HostMemory::alignment);
        gpu.binding_max = 4 * alignment as u64;
        let mut memory = Aligned::<f32>::zeroed((8 << 20) / 4);
        memory.iter_mut().enumerate().for_each(|(at, to)| *to = at as f32);
        let region = memory.region().unwrap();
        let read = |panels: &Panels| {
            let Panels::InPlace { window, at, bytes } = panels else { panic!("{panels:?}") };
            let mut found = vec![0.0; bytes.get() as usize / 4];
            let (mut recording, between) = (Recording::new(&gpu), gpu.empty("read", bytes.get() as usize));
            recording.copy((window, *at as usize / 4), (&between, 0), found.len());
            Staging::default().read_after(&gpu, recording, &[(&between, found.len())], &mut found).unwrap();
            found
        };
        let windows = || gpu.windows.open.lock().unwrap().len();
        // The second across the first one's end, the third within the second, the last at the end of all.
        let end = region.bytes() / alignment * alignment;
        let parts = [(256, 512, 1), (4 * alignment - 256, 1024, 2), (5 * alignment, 4096, 2), (end - 4096, 4096, 3)];
        for (from, len, count) in parts {
            let found = gpu.part_in_place(&region, from..from + len).unwrap();
            if from + len <= 8 << 20 {
                assert_eq!(read(&found), memory[from / 4..(from + len) / 4], "{from}");
            }
            assert_eq!(windows(), count, "{from}");
        }
        // No binding begins at two bytes.
        let refused = [0..5 * alignment, 0..0, 2..6, region.bytes()..region.bytes() + 4];
        assert!(refused.into_iter().all(|part| gpu.part_in_place(&region, part).is_none()));
        let elsewhere = gpu.panels("elsewhere", &[1; 64], Some(&region));
        assert_eq!((elsewhere.copied(), elsewhere.shared()), (64, 0));
        // A driver that refuses once is not asked again; none has.
        assert!(!gpu.windows.refused.load(Ordering::Relaxed));
        gpu.windows.refused.store(true, Ordering::Relaxed);
        let bytes = bytemuck::cast_slice(&memory[..64]);
        assert_eq!(gpu.panels("refused", bytes, Some(&region)).copied(), 256);
    }
}
