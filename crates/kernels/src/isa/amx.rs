//! Whether there are AMX's tiles: the processor has them, and the operating system keeps them for this process.
//!
//! Linux keeps eight kilobytes of tiles a thread only for a process that has asked for them (`arch_prctl(2)`, since 5.16); other
//! systems are not asked. Enabling is for the whole process, once.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there is a feature of AMX of this name, that a process can use.
#[cfg(target_arch = "x86_64")]
pub(super) fn has(name: &str) -> bool {
    match name {
        "amx-tile" => EMULATED.load(Ordering::Relaxed) || can_use_tiles(),
        "amx-int8" => EMULATED.load(Ordering::Relaxed) || processor_says(AMX_INT8),
        _ => false,
    }
}

/// Set before anybody asks.
#[cfg(target_arch = "x86_64")]
static EMULATED: AtomicBool = AtomicBool::new(false);

/// From now on AMX counts as there, whatever the processor says: for tests, which bring what executes its instructions.
///
/// # Safety
/// Somebody executes them as they are defined: a handler of the signal that the processor raises instead. No instruction set
/// has been asked for or run before.
#[cfg(target_arch = "x86_64")]
pub unsafe fn assume_amx() {
    EMULATED.store(true, Ordering::Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn can_use_tiles() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| processor_says(AMX_TILE) && system_keeps_tiles() && process_may_use_tiles())
}

/// Bits of EDX that `cpuid` has for leaf 7, subleaf 0. (SDM volume 2, CPUID)
#[cfg(target_arch = "x86_64")]
const AMX_TILE: u32 = 1 << 24;
#[cfg(target_arch = "x86_64")]
const AMX_INT8: u32 = 1 << 25;

#[cfg(target_arch = "x86_64")]
fn processor_says(bit: u32) -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & bit != 0
}

/// Whether the operating system saves tiles and their shapes.
#[cfg(target_arch = "x86_64")]
fn system_keeps_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, _xgetbv};
    const OSXSAVE: u32 = 1 << 27;
    /// Tiles' shapes, and tiles.
    const STATES: u64 = 1 << 17 | 1 << 18;
    // SAFETY: there is `xgetbv` where the system has enabled `xsave`.
    __cpuid(1).ecx & OSXSAVE != 0 && unsafe { _xgetbv(0) } & STATES == STATES
}

/// Asks Linux for tiles.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn process_may_use_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: the call takes two numbers and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn process_may_use_tiles() -> bool {
    false
}
