//! What results depend on that the processor has or lacks.

/// Whether the processor has instructions for products of bytes (VNNI). OpenVINO's plugin for CPUs rounds activations to
/// eight bits with these only: without them it computes in floats, whatever it was asked for.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn multiplies_bytes() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni") || std::arch::is_x86_feature_detected!("avxvnni")
}

/// Whether the processor has instructions for products of bytes, as far as OpenVINO's plugin for CPUs uses them.
#[cfg(not(target_arch = "x86_64"))]
#[must_use]
pub fn multiplies_bytes() -> bool {
    false
}
