//! Hints that memory will be read.

use std::sync::OnceLock;

/// The cache that a hint brings a line to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchTo {
    /// For what is read at once.
    FirstCache,
    /// For what need not be there at once.
    SecondCache,
}

impl FetchTo {
    /// Where what is read from memory once, a little later, is fetched to on this processor.
    ///
    /// Zen 4's first cache waits for few lines at a time (24: by their latency some 12 GB/s a core, which is what was seen), its
    /// second for more: products of one to six rows that fetched to the first were 10 to 30 % slower. With Zen 5 it is the other
    /// way round: to the first, one row is 7 to 17 % faster while memory is fast. No other processor was asked; they get what
    /// Zen 4 gets. (`examples/reading`)
    pub(crate) fn of_this_processor() -> Self {
        static CHOSEN: OnceLock<FetchTo> = OnceLock::new();
        *CHOSEN.get_or_init(|| if is_zen_5_or_later() { Self::FirstCache } else { Self::SecondCache })
    }

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

/// Whether this is a processor of AMD's of family 1Ah or a later one.
fn is_zen_5_or_later() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        let vendor = __cpuid(0);
        let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        is_amd_since(ZEN_5, vendor.as_flattened(), __cpuid(1).eax)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The family of Zen 5.
#[cfg(target_arch = "x86_64")]
const ZEN_5: u32 = 0x1A;

/// Whether what `cpuid` calls a processor's vendor and signature are AMD's, of this family or a later one.
#[cfg(target_arch = "x86_64")]
fn is_amd_since(first: u32, vendor: &[u8], signature: u32) -> bool {
    vendor == b"AuthenticAMD" && family(signature) >= first
}

/// The family that `cpuid` names in EAX of leaf 1. (AMD APM volume 3, CPUID Fn0000_0001)
#[cfg(target_arch = "x86_64")]
fn family(signature: u32) -> u32 {
    let (base, extended) = (signature >> 8 & 0xF, signature >> 20 & 0xFF);
    if base == 0xF { base + extended } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn processors_are_told_apart() {
        // Zen 4 (Genoa), Zen 5 (Turin), Zen (Naples), Golden Cove.
        let families = [0x00A1_0F11, 0x00B0_0F21, 0x0080_0F12, 0x0009_0672].map(family);
        assert_eq!(families, [0x19, 0x1A, 0x17, 6]);
        let zen_5 = |vendor: &[u8; 12], signature| is_amd_since(ZEN_5, vendor, signature);
        assert!(zen_5(b"AuthenticAMD", 0x00B0_0F21) && !zen_5(b"AuthenticAMD", 0x00A1_0F11));
        assert!(!zen_5(b"GenuineIntel", 0x00B0_0F21) && !zen_5(b"HygonGenuine", 0x00B0_0F21));
    }

    #[test]
    fn any_address_may_be_named() {
        for to in [FetchTo::FirstCache, FetchTo::SecondCache, FetchTo::of_this_processor()] {
            to.line(std::ptr::null());
            to.line(std::ptr::without_provenance(usize::MAX));
        }
    }
}
