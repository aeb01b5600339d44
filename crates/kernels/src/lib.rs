//! CPU kernels: packed integer matrix products, attention, norms, rope; and those of encoders.
//!
//! Every kernel is written once over [`simd::Simd`] and runs on the instruction set that [`isa::Isa`] found. What a
//! kernel computes for a row depends on that row alone: not on the other rows of the call, the crew, or the machine.

pub mod attention;
pub mod crew;
pub mod encoder;
mod fetch_to;
pub mod fused;
pub mod isa;
pub mod matmul;
pub mod memory;
pub mod packed;
pub mod probe;
pub mod quantize;
pub mod read_ahead;
pub mod rows;
pub mod simd;
