//! The processor features of each instruction set, each list written once.
//!
//! A list is handed to whoever names it: [`detected`] asks the processor, [`compiled_for`] compiles a function with the
//! features, and [`names`] is for messages. **Invariant:** what is enabled is therefore what was detected.

/// Hands NEON's features, and those of its products of bytes, in brackets, to the macro `$then`, before its other arguments.
#[cfg(target_arch = "aarch64")]
macro_rules! neon_features {
    ($then:ident!($($rest:tt)*)) => {
        $then! { ["neon" "dotprod"] $($rest)* }
    };
}

/// The same with the products of unsigned with signed bytes.
#[cfg(target_arch = "aarch64")]
macro_rules! neon_i8mm_features {
    ($then:ident!($($rest:tt)*)) => {
        $then! { ["neon" "dotprod" "i8mm"] $($rest)* }
    };
}

/// Hands AVX2's features, in brackets, to the macro `$then`, before its other arguments.
#[cfg(target_arch = "x86_64")]
macro_rules! avx2_features {
    ($then:ident!($($rest:tt)*)) => {
        $then! { ["avx2" "fma" "f16c"] $($rest)* }
    };
}

/// The same for AVX2 with AVX-VNNI.
#[cfg(target_arch = "x86_64")]
macro_rules! avx2_vnni_features {
    ($then:ident!($($rest:tt)*)) => {
        $then! { ["avx2" "fma" "f16c" "avxvnni"] $($rest)* }
    };
}

/// The same for AVX-512 with its VNNI. Its kernels reduce in narrower registers, with AVX2's instructions.
#[cfg(target_arch = "x86_64")]
macro_rules! avx512_features {
    ($then:ident!($($rest:tt)*)) => {
        $then! { ["avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni"] $($rest)* }
    };
}

/// The features' names.
macro_rules! names {
    ([$($feature:tt)+]) => {
        &[$($feature),+]
    };
}

/// The same and AMX's, which no function is compiled with: its instructions are assembly.
#[cfg(target_arch = "x86_64")]
macro_rules! names_with_amx {
    ([$($feature:tt)+]) => {
        &[$($feature,)+ "amx-tile", "amx-int8"]
    };
}

/// Whether this machine has the feature that is called `$name`, one of the list.
#[cfg(target_arch = "x86_64")]
macro_rules! detected {
    ([$($feature:tt)+] $name:expr) => {
        match $name {
            $($feature => is_x86_feature_detected!($feature),)+
            _ => false,
        }
    };
}

/// Whether this machine has the feature that is called `$name`, one of the list.
#[cfg(target_arch = "aarch64")]
macro_rules! detected {
    ([$($feature:tt)+] $name:expr) => {
        match $name {
            $($feature => std::arch::is_aarch64_feature_detected!($feature),)+
            _ => false,
        }
    };
}

/// Compiles a function with the features.
macro_rules! compiled_for {
    ([$($feature:tt)+] $($item:tt)*) => {
        $(#[target_feature(enable = $feature)])+
        $($item)*
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) use {avx2_features, avx2_vnni_features, avx512_features, names_with_amx};
pub(crate) use {compiled_for, detected, names};
#[cfg(target_arch = "aarch64")]
pub(crate) use {neon_features, neon_i8mm_features};
