//! Which instruction set the kernels use, chosen when the program starts.

use crate::simd::Kernel;
use crate::simd::portable::Portable;
#[cfg(target_arch = "x86_64")]
use crate::simd::{
    avx2::{Avx2, Avx2Vnni},
    avx512::Avx512,
};
use std::fmt;
use std::sync::OnceLock;

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// AVX2, FMA, F16C.
    Avx2,
    /// The same and AVX-VNNI.
    Avx2Vnni,
    /// AVX-512 (F, BW, DQ, VL) and its VNNI.
    Avx512Vnni,
}

impl Isa {
    /// All sets this machine has, the fastest last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
                sets.push(Self::Avx2);
                if is_x86_feature_detected!("avxvnni") {
                    sets.push(Self::Avx2Vnni);
                }
            }
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                sets.push(Self::Avx512Vnni);
            }
        }
        sets
    }

    /// The fastest available, or the one that the environment variable `DUET_ISA` names if the machine has it.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let sets = Self::available();
            let wanted = std::env::var("DUET_ISA").ok();
            let named = sets.iter().find(|isa| wanted.as_deref() == Some(isa.to_string().as_str()));
            named.or(sets.last()).copied().unwrap_or(Self::Portable)
        })
    }

    /// Runs `kernel` compiled for this set.
    ///
    /// # Panics
    /// If the machine lacks it: take values from [`Self::available`] or [`Self::best`].
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        static AVAILABLE: OnceLock<Vec<Isa>> = OnceLock::new();
        assert!(AVAILABLE.get_or_init(Self::available).contains(&self), "this machine has no {self}");
        match self {
            Self::Portable => kernel.run(Portable),
            // SAFETY: the features of this set were detected, see the assertion above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { run_avx2(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Vnni => unsafe { run_avx2_vnni(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => unsafe { run_avx512(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            other => panic!("{other} is not available on this machine"),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx2Vnni => "avx2-vnni",
            Self::Avx512Vnni => "avx512-vnni",
        })
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: our caller has detected the features, and this function enables them.
    kernel.run(unsafe { Avx2::new() })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn run_avx2_vnni<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: our caller has detected the features, and this function enables them.
    kernel.run(unsafe { Avx2Vnni::new() })
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: our caller has detected the features, and this function enables them.
    kernel.run(unsafe { Avx512::new() })
}
