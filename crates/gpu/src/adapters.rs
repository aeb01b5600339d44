//! The GPUs of this machine, and whether each can be used.
//!
//! Names are `gpu`, or `gpu:0`, `gpu:1` in the order in which the interfaces name them; `gpu` is the first that is one. An
//! adapter that is a program on the processor (lavapipe, WARP) is used only if its number is given: it is for tests, and
//! takes the cores that duet computes on.
//!
//! What is asked of an adapter here is what any model needs; what one model needs is asked when that is placed.

use crate::error::GpuError;
use std::fmt;

/// What was found.
#[derive(Clone, Debug)]
pub struct Adapters {
    all: Vec<Adapter>,
}

/// A GPU.
#[derive(Clone, Debug)]
pub struct Adapter {
    pub(crate) adapter: wgpu::Adapter,
    /// `gpu:0`.
    pub name: String,
    /// Its maker's name for it.
    pub full_name: String,
    /// The driver and its version.
    pub driver: String,
    /// The interface it is reached by.
    pub interface: String,
    /// Where its memory is.
    pub kind: Kind,
    /// The most that one binding of a shader reads.
    pub binding_max: u64,
    /// Whether it can be used.
    pub verdict: Verdict,
    /// How it may come to keys and values.
    cache_access: CacheAccess,
    /// Pages that a workgroup attends to at once, where there are few rows.
    pub(crate) pages_at_once: usize,
}

/// How a GPU comes to the cache's keys and values, and to weights that lie in memory of the process's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAccess {
    /// It reads and writes the cache itself, in the processor's memory, and reads weights there.
    InPlace,
    /// It has copies.
    Copied,
}

/// What sort of adapter it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It shares the processor's memory.
    Integrated,
    /// It has memory of its own.
    Discrete,
    /// A part of one that another system shares out.
    Virtual,
    /// A program on the processor.
    Software,
    /// The driver does not tell.
    Unknown,
}

/// Whether an adapter can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By anybody who asks for a GPU.
    Used,
    /// Only if it is asked for by its number.
    ByName,
    /// Not: why.
    Unused(String),
}

impl Adapters {
    /// Looks for GPUs. Takes some tenths of a second; no device is opened.
    #[must_use]
    pub fn look() -> Self {
        let mut wanted = wgpu::InstanceDescriptor::new_without_display_handle();
        wanted.backends = BACKENDS;
        // What the environment says of validation layers is for who develops shaders.
        wanted.flags = wgpu::InstanceFlags::empty();
        let found = pollster::block_on(wgpu::Instance::new(wanted).enumerate_adapters(BACKENDS));
        Self { all: found.into_iter().enumerate().map(|(index, adapter)| Adapter::of(index, adapter)).collect() }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Adapter] {
        &self.all
    }

    /// The one that is called so: `gpu` is the first that is a GPU, `gpu:N` any.
    ///
    /// # Errors
    /// If there is none, or it cannot be used.
    pub fn named(&self, name: &str) -> Result<&Adapter, GpuError> {
        if self.all.is_empty() {
            return Err(GpuError::NoAdapter);
        }
        let found = match name {
            FIRST => self.all.iter().find(|adapter| adapter.verdict == Verdict::Used),
            _ => self.all.iter().find(|adapter| adapter.name == name),
        };
        let unknown = || {
            let there: Vec<_> = self.all.iter().map(|adapter| format!("{} ({adapter})", adapter.name)).collect();
            GpuError::Unknown { name: name.to_owned(), there: there.join(", ") }
        };
        let found = found.ok_or_else(unknown)?;
        match &found.verdict {
            Verdict::Unused(why) => Err(GpuError::Unusable { name: found.name.clone(), why: why.clone() }),
            Verdict::Used | Verdict::ByName => Ok(found),
        }
    }
}

/// The name of whichever GPU comes first.
pub const FIRST: &str = "gpu";

/// Those with compute shaders that read and write storage buffers.
const BACKENDS: wgpu::Backends = wgpu::Backends::VULKAN.union(wgpu::Backends::METAL).union(wgpu::Backends::DX12);

impl Adapter {
    fn of(index: usize, adapter: wgpu::Adapter) -> Self {
        let (info, limits) = (adapter.get_info(), adapter.limits());
        let kind = match info.device_type {
            wgpu::DeviceType::IntegratedGpu => Kind::Integrated,
            wgpu::DeviceType::DiscreteGpu => Kind::Discrete,
            wgpu::DeviceType::VirtualGpu => Kind::Virtual,
            wgpu::DeviceType::Cpu => Kind::Software,
            wgpu::DeviceType::Other => Kind::Unknown,
        };
        Self {
            verdict: verdict(kind, &limits, adapter.features()),
            cache_access: match kind {
                Kind::Integrated | Kind::Software => CacheAccess::InPlace,
                Kind::Discrete | Kind::Virtual | Kind::Unknown => CacheAccess::Copied,
            },
            // Threads that wait for each other take turns on a processor.
            pages_at_once: if kind == Kind::Software { 1 } else { SPAN_PAGES },
            name: format!("{FIRST}:{index}"),
            full_name: info.name,
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            interface: info.backend.to_string(),
            kind,
            binding_max: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size),
            adapter,
        }
    }

    /// How it may come to keys and values, if its driver knows how.
    #[must_use]
    pub fn cache_access(&self) -> CacheAccess {
        self.cache_access
    }

    /// Whether it may be given memory of a process: by Vulkan, where the system has such memory.
    pub(crate) fn may_be_given_memory(&self) -> bool {
        let is_vulkan = self.adapter.get_info().backend == wgpu::Backend::Vulkan;
        cfg!(unix) && is_vulkan && self.cache_access == CacheAccess::InPlace
    }

    /// The same adapter, on which a workgroup is to attend to so many pages at once where there are few rows, eight at most.
    #[must_use]
    pub fn with_pages_at_once(self, pages: usize) -> Self {
        Self { pages_at_once: pages.next_power_of_two().min(SPAN_PAGES), ..self }
    }

    /// The same adapter, which is to have copies whatever its driver knows.
    #[must_use]
    pub fn with_copies(self) -> Self {
        Self { cache_access: CacheAccess::Copied, ..self }
    }
}

/// What any model needs, in the order in which it is told.
fn verdict(kind: Kind, limits: &wgpu::Limits, features: wgpu::Features) -> Verdict {
    let needs: [(&str, u64, u64); 6] = [
        ("bytes in a binding", limits.max_storage_buffer_binding_size, BINDING_MIN),
        ("bytes in a buffer", limits.max_buffer_size, BINDING_MIN),
        ("buffers of a shader", limits.max_storage_buffers_per_shader_stage.into(), BUFFERS.into()),
        ("threads of a group", limits.max_compute_invocations_per_workgroup.into(), THREADS.into()),
        ("bytes that a group shares", limits.max_compute_workgroup_storage_size.into(), SHARED_BYTES.into()),
        ("groups of a launch", limits.max_compute_workgroups_per_dimension.into(), GROUPS_MIN),
    ];
    if let Some((what, has, wants)) = needs.into_iter().find(|(_, has, wants)| has < wants) {
        return Verdict::Unused(format!("{has} {what} are fewer than the {wants} that models need"));
    }
    if !features.contains(wgpu::Features::IMMEDIATES) || limits.max_immediate_size < IMMEDIATE_BYTES {
        return Verdict::Unused("it takes no numbers with a launch (push constants)".to_owned());
    }
    if kind == Kind::Software { Verdict::ByName } else { Verdict::Used }
}

/// Rows of the widest matrices that are in use, with some to spare.
const BINDING_MIN: u64 = 64 << 20;

/// Pages of a span, after which the CPU's kernels merge as well.
pub(crate) const SPAN_PAGES: usize = 8;

/// The most that a shader here binds.
pub(crate) const BUFFERS: u32 = 8;

/// The most threads of a workgroup here.
pub(crate) const THREADS: u32 = 128;

/// The most memory that a workgroup here shares.
pub(crate) const SHARED_BYTES: u32 = 10 << 10;

/// Workgroups for the largest vocabularies.
const GROUPS_MIN: u64 = 32_768;

/// The most that a launch here is told.
pub(crate) const IMMEDIATE_BYTES: u32 = 64;

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {} by {}", self.full_name, self.driver, self.kind, self.interface)?;
        match &self.verdict {
            Verdict::Used => Ok(()),
            Verdict::ByName => write!(f, ": used only as `{}`, by that name", self.name),
            Verdict::Unused(why) => write!(f, ": not used, {why}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integrated => "in the processor's memory",
            Self::Discrete => "with memory of its own",
            Self::Virtual => "virtual",
            Self::Software => "a program on the processor",
            Self::Unknown => "of unknown sort",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able() -> (wgpu::Limits, wgpu::Features) {
        let limits = wgpu::Limits { max_immediate_size: 128, ..wgpu::Limits::default() };
        (limits, wgpu::Features::IMMEDIATES)
    }

    #[test]
    fn a_program_is_used_only_by_its_name() {
        let (limits, features) = able();
        assert_eq!(verdict(Kind::Integrated, &limits, features), Verdict::Used);
        assert_eq!(verdict(Kind::Software, &limits, features), Verdict::ByName);
    }

    #[test]
    fn what_is_lacking_is_told() {
        let (limits, features) = able();
        let small = wgpu::Limits { max_storage_buffer_binding_size: 1 << 20, ..limits.clone() };
        let why = |verdict| match verdict {
            Verdict::Unused(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(why(verdict(Kind::Discrete, &small, features)).starts_with("1048576 bytes in a binding"));
        assert!(why(verdict(Kind::Discrete, &limits, wgpu::Features::empty())).contains("push constants"));
    }

    #[test]
    fn one_of_another_number_is_none() {
        let none = Adapters { all: Vec::new() };
        assert_eq!(none.named(FIRST).unwrap_err(), GpuError::NoAdapter);
        let found = Adapters::look();
        if !found.all().is_empty() {
            let error = found.named("gpu:99").unwrap_err().to_string();
            assert!(error.contains("gpu:0"), "{error}");
        }
    }
}
