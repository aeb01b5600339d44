//! Hints that memory will be read.

/// The cache that a hint brings a line to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchTo {
    /// The processor's first (L1).
    FirstCache,
    /// Its second (L2).
    SecondCache,
}

impl FetchTo {
    /// The 64 bytes at `from` will be read. Any address is allowed.
    #[inline(always)]
    pub(crate) fn line(self, from: *const u8) {
        match self {
            Self::FirstCache => to_first_cache(from),
            Self::SecondCache => to_second_cache(from),
        }
    }
}

/// The same as [`FetchTo::line`], where the place is no choice of the machine's.
#[inline(always)]
pub(crate) fn to_first_cache(from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch may name any address, and every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch may name any address.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{from}]", from = in(reg) from.addr(), options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = from;
}

/// The same for the second cache.
#[inline(always)]
pub(crate) fn to_second_cache(from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch may name any address, and every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch may name any address.
    unsafe {
        core::arch::asm!("prfm pldl2keep, [{from}]", from = in(reg) from.addr(), options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = from;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_may_be_named() {
        for to in [FetchTo::FirstCache, FetchTo::SecondCache] {
            to.line(std::ptr::null());
            to.line(std::ptr::without_provenance(usize::MAX));
        }
    }
}
