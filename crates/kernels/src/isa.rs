//! Which instruction set the kernels use, chosen when the program starts.
//!
//! A set is run only where the processor has every feature that its code is compiled with: both come from one list
//! ([`crate::simd`]). `DUET_ISA` chooses one by name; a name that this machine cannot honour is an error
//! ([`Isa::chosen`]), never a quiet choice of another set.

mod amx;
mod trial;

#[cfg(target_arch = "x86_64")]
pub use amx::assume_amx;

use crate::simd::Kernel;
use crate::simd::portable::Portable;
#[cfg(target_arch = "x86_64")]
use crate::simd::{
    amx::MatrixUnit,
    avx2::{Avx2, Avx2Vnni},
    avx512::Avx512,
    features::{avx2_features, avx2_vnni_features, avx512_features, compiled_for, detected, names, names_with_amx},
};
#[cfg(target_arch = "aarch64")]
use crate::simd::{
    features::{compiled_for, detected, names, neon_features, neon_i8mm_features},
    neon::{Neon, NeonI8mm},
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
    /// AVX2, FMA, F16C, AVX-512 (F, BW, DQ, VL) and its VNNI.
    Avx512Vnni,
    /// The same and AMX's products of bytes, for products of many rows.
    AmxInt8,
    /// NEON and `sdot` (dotprod).
    Neon,
    /// The same and `usdot` (i8mm).
    NeonI8mm,
}

/// Why an instruction set cannot be used by its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// No set has this name.
    #[error("DUET_ISA: there is no instruction set `{name}`; this machine has {}", listed(.available))]
    Unknown {
        /// As it was given.
        name: String,
        /// What could be used here.
        available: Vec<Isa>,
    },
    /// The processor cannot run it.
    #[error("DUET_ISA: this machine lacks {} for `{isa}`; it has {}", .missing.join(", "), listed(.available))]
    Missing {
        /// The set.
        isa: Isa,
        /// The features that the processor lacks.
        missing: Vec<&'static str>,
        /// What could be used here.
        available: Vec<Isa>,
    },
}

impl Isa {
    /// All sets, of each architecture the fastest last, whether this machine has them or not.
    pub const ALL: [Self; 7] =
        [Self::Portable, Self::Avx2, Self::Avx2Vnni, Self::Avx512Vnni, Self::AmxInt8, Self::Neon, Self::NeonI8mm];

    /// All sets this machine has, the fastest last, as far as it can be told without a trial.
    #[must_use]
    pub fn available() -> Vec<Self> {
        available_with(has_feature)
    }

    /// The fastest that this machine has, whatever the environment says. A matrix unit has to prove itself first, in a
    /// short trial.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| match Self::available().as_slice() {
            [.., ordinary, Self::AmxInt8] => trial::faster(*ordinary, Self::AmxInt8),
            [.., last] => *last,
            [] => Self::Portable,
        })
    }

    /// The set that the environment variable `DUET_ISA` names; the fastest if it is empty or not there.
    ///
    /// # Errors
    /// [`IsaError`] if it names no set, or one that this machine lacks.
    pub fn chosen() -> Result<Self, IsaError> {
        static CHOSEN: OnceLock<Result<Isa, IsaError>> = OnceLock::new();
        CHOSEN
            .get_or_init(|| Self::by_name(&std::env::var_os("DUET_ISA").unwrap_or_default().to_string_lossy()))
            .clone()
    }

    /// The set of this name, if this machine has it; the fastest if the name is empty.
    ///
    /// # Errors
    /// [`IsaError`] if no set has this name, or this machine lacks it.
    pub fn by_name(name: &str) -> Result<Self, IsaError> {
        if name.is_empty() {
            return Ok(Self::best());
        }
        let available = Self::available();
        let Some(isa) = Self::ALL.into_iter().find(|isa| isa.name() == name) else {
            return Err(IsaError::Unknown { name: name.to_owned(), available });
        };
        if available.contains(&isa) {
            return Ok(isa);
        }
        let missing = isa.features().iter().copied().filter(|feature| !has_feature(feature)).collect();
        Err(IsaError::Missing { isa, missing, available })
    }

    /// Its name: what `DUET_ISA` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx2Vnni => "avx2-vnni",
            Self::Avx512Vnni => "avx512-vnni",
            Self::AmxInt8 => "amx-int8",
            Self::Neon => "neon",
            Self::NeonI8mm => "neon-i8mm",
        }
    }

    /// The features that a processor needs for it, all that its code is compiled with; of the sets of another architecture,
    /// that architecture.
    #[must_use]
    pub const fn features(self) -> &'static [&'static str] {
        match self {
            Self::Portable => &[],
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2_features!(names!()),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Vnni => avx2_vnni_features!(names!()),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => avx512_features!(names!()),
            #[cfg(target_arch = "x86_64")]
            Self::AmxInt8 => avx512_features!(names_with_amx!()),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx2Vnni | Self::Avx512Vnni | Self::AmxInt8 => &["x86_64"],
            #[cfg(target_arch = "aarch64")]
            Self::Neon => neon_features!(names!()),
            #[cfg(target_arch = "aarch64")]
            Self::NeonI8mm => neon_i8mm_features!(names!()),
            #[cfg(not(target_arch = "aarch64"))]
            Self::Neon | Self::NeonI8mm => &["aarch64"],
        }
    }

    /// Runs `kernel` compiled for this set.
    ///
    /// # Panics
    /// If the machine lacks it: take values from [`Self::available`], [`Self::best`] or [`Self::chosen`].
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
            Self::Avx512Vnni => unsafe { run_avx512(kernel, None) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::AmxInt8 => unsafe { run_avx512(kernel, Some(MatrixUnit::new())) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Self::Neon => unsafe { run_neon(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Self::NeonI8mm => unsafe { run_neon_i8mm(kernel) },
            // Of another architecture.
            other => panic!("{other} is not available on this machine"),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The sets of a machine that has the features for which `has` holds.
fn available_with(has: impl Fn(&str) -> bool) -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.features().iter().all(|feature| has(feature))).collect()
}

/// Whether this machine has a feature of any set.
#[cfg(target_arch = "x86_64")]
fn has_feature(name: &str) -> bool {
    avx2_vnni_features!(detected!(name)) || avx512_features!(detected!(name)) || amx::has(name)
}

#[cfg(target_arch = "aarch64")]
fn has_feature(name: &str) -> bool {
    neon_i8mm_features!(detected!(name))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_feature(_name: &str) -> bool {
    false
}

fn listed(sets: &[Isa]) -> String {
    sets.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(target_arch = "x86_64")]
avx2_features!(compiled_for!(
    unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: our caller has detected the features, and this function enables them.
        kernel.run(unsafe { Avx2::new() })
    }
));

#[cfg(target_arch = "x86_64")]
avx2_vnni_features!(compiled_for!(
    unsafe fn run_avx2_vnni<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: our caller has detected the features, and this function enables them.
        kernel.run(unsafe { Avx2Vnni::new() })
    }
));

#[cfg(target_arch = "x86_64")]
avx512_features!(compiled_for!(
    unsafe fn run_avx512<K: Kernel>(kernel: K, unit: Option<MatrixUnit>) -> K::Output {
        // SAFETY: our caller has detected the features, and this function enables them.
        kernel.run(unsafe { Avx512::new(unit) })
    }
));

#[cfg(target_arch = "aarch64")]
neon_features!(compiled_for!(
    unsafe fn run_neon<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: our caller has detected the features, and this function enables them.
        kernel.run(unsafe { Neon::new() })
    }
));

#[cfg(target_arch = "aarch64")]
neon_i8mm_features!(compiled_for!(
    unsafe fn run_neon_i8mm<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: our caller has detected the features, and this function enables them.
        kernel.run(unsafe { NeonI8mm::new() })
    }
));

#[cfg(test)]
mod tests {
    use super::*;

    /// A set that enables what was not detected would run instructions that the processor does not have.
    #[test]
    fn a_machine_that_lacks_one_feature_lacks_every_set_that_is_compiled_with_it() {
        assert_eq!(available_with(|_| true), Isa::ALL);
        assert_eq!(available_with(|_| false), [Isa::Portable]);
        for lacking in Isa::ALL.iter().flat_map(|isa| isa.features()) {
            let without: Vec<_> = Isa::ALL.into_iter().filter(|isa| !isa.features().contains(lacking)).collect();
            assert_eq!(available_with(|feature| feature != *lacking), without, "without {lacking}");
        }
    }

    /// The vectors of AVX-512 are reduced, halved and widened with AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn avx512_is_not_there_without_what_its_kernels_narrow_to() {
        for feature in ["avx2", "fma", "f16c"] {
            assert!(!available_with(|other| other != feature).contains(&Isa::Avx512Vnni), "{feature}");
        }
    }

    #[test]
    fn features_of_all_sets_can_be_asked_for() {
        let available = Isa::available();
        for isa in Isa::ALL {
            assert_eq!(available.contains(&isa), isa.features().iter().all(|feature| has_feature(feature)), "{isa}");
        }
        assert!(!has_feature("no-such-feature"));
    }

    #[test]
    fn a_name_that_cannot_be_honoured_is_refused_with_what_there_is() {
        let here = listed(&Isa::available());
        for isa in Isa::ALL {
            let missing: Vec<_> = isa.features().iter().filter(|feature| !has_feature(feature)).copied().collect();
            match Isa::by_name(isa.name()) {
                Ok(found) => assert_eq!((found, missing), (isa, Vec::new())),
                Err(error) => {
                    let lacks = missing.join(", ");
                    assert_eq!(
                        error.to_string(),
                        format!("DUET_ISA: this machine lacks {lacks} for `{isa}`; it has {here}")
                    );
                }
            }
        }
        for typo in ["avx3", "AVX2", "avx2 ", "avx512vnni", "\u{fffd}"] {
            assert_eq!(
                Isa::by_name(typo).unwrap_err().to_string(),
                format!("DUET_ISA: there is no instruction set `{typo}`; this machine has {here}")
            );
        }
        assert_eq!(Isa::by_name(""), Ok(Isa::best()));
    }
}
