//! Models on OpenVINO's CPU device, beside the CPU's own kernels. Skipped, with a word, where there is no runtime.

mod attention;
mod common;
mod experts;
mod placed;
mod precision;
mod requantised;
mod room;
