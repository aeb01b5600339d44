//! The processor features of each instruction set, each list written once.
//!
//! A list is handed to whoever names it: [`detected`] asks the processor, [`compiled_for`] compiles a function with the
//! features, and [`names`] is for messages. **Invariant:** what is enabled is therefore what was detected.

/// Hands AVX2's features, in brackets, to the macro `$then`, before its other arguments.
macro_rules! avx2_features {
    ($then:ident!($($rest:tt)*)) => {
        $then! { ["avx2" "fma" "f16c"] $($rest)* }
    };
}

/// The same for AVX2 with AVX-VNNI.
macro_rules! avx2_vnni_features {
    ($then:ident!($($rest:tt)*)) => {
        $then! { ["avx2" "fma" "f16c" "avxvnni"] $($rest)* }
    };
}

/// The same for AVX-512 with its VNNI. Its kernels reduce in narrower registers, with AVX2's instructions.
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

/// Whether this machine has the feature that is called `$name`, one of the list.
macro_rules! detected {
    ([$($feature:tt)+] $name:expr) => {
        match $name {
            $($feature => is_x86_feature_detected!($feature),)+
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

pub(crate) use {avx2_features, avx2_vnni_features, avx512_features, compiled_for, detected, names};
