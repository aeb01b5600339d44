//! CPU kernels: packed integer matrix products, attention, norms, rope, top-k.

pub mod crew;
