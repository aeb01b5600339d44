//! Which cores a machine has: one hardware thread of each physical core, the fastest first.
//!
//! Two hardware threads of a core share its multipliers and its caches, so a second one adds nothing to kernels and takes
//! from other programs. Slow cores (Intel's E cores, ARM's middle ones) compute along; cores made for idling (Intel's LP-E
//! cores, without the cache that the others share; ARM's smallest) are left to the rest of the machine: a kernel ends when
//! its last share does. Linux tells all this in files, Windows in records, macOS in a few numbers; what a system does not tell
//! counts as equal.

#[cfg(any(test, target_os = "linux"))]
pub(crate) mod linux;
#[cfg(any(test, target_os = "macos"))]
pub(crate) mod macos;
#[cfg(any(test, windows))]
pub(crate) mod windows;

/// A hardware thread, by the operating system's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoreId(pub usize);

/// A physical core, by one of its hardware threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// The hardware thread that is used.
    pub id: CoreId,
    /// What it is for.
    pub kind: CoreKind,
    /// How fast it is.
    pub speed: Speed,
}

/// Of the fastest core's speed, so many thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speed(pub u32);

impl Speed {
    /// The fastest core's.
    pub const FULL: Self = Self(1000);
    /// An E core's beside a P core's, where nobody tells: it has half the multipliers and three quarters of the clock, and
    /// more than that of the memory.
    pub(crate) const OF_ATOM: Self = Self(550);
}

/// What a core is for; the fastest kind first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoreKind {
    /// As fast as they come on this machine.
    Fast,
    /// Slower, and worth its share.
    Slow,
    /// For idling.
    LowPower,
}

impl Core {
    /// One of the fastest.
    pub(crate) fn fast(id: CoreId) -> Self {
        Self { id, kind: CoreKind::Fast, speed: Speed::FULL }
    }
}

/// The fastest kind first, and those for idling only where there are no others.
pub(crate) fn fastest_first(mut cores: Vec<Core>) -> Vec<Core> {
    if cores.iter().any(|core| core.kind < CoreKind::LowPower) {
        cores.retain(|core| core.kind < CoreKind::LowPower);
    }
    cores.sort_by_key(|core| (core.kind, core.id));
    cores
}
