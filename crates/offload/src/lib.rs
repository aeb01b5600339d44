//! A model's token-wise blocks as compiled graphs on an accelerator.
//!
//! `layers` makes the fused blocks of a loaded model's weights, `calibration` finds out between which numbers their values
//! lie, for devices that compute in integers, `shapes` says for how many rows graphs are compiled and cuts rows to them,
//! `source` emits a block for them, `ready` is a graph that was tried, `slot` one block on one device, `placed` the whole
//! model. `patience` says when a device is taken to hang. `switching` exchanges graphs while a prompt is read. Attention,
//! rope and the cache stay on the CPU: they are sequence-wise, and static graphs are not for them. (Agent.xpu §4.2-4.3)
//!
//! Precision: weights are rounded again to eight bits with one scale for each output, and activations to eight bits in
//! groups of 32 inputs where OpenVINO's devices do so, or to sixteen bits on calibrated grids where the HTP does: what
//! that adds to the weights' rounding is some tenths of a per cent. Results are not those of the CPU's kernels to the
//! bit; the tests say how near they are.

mod calibration;
mod layers;
mod patience;
mod placed;
mod ready;
mod shapes;
mod slot;
mod source;
pub mod switching;

pub use calibration::{CalibrateError, Seen};
pub use layers::{LayerBlocks, LayersError, head_block, layer_blocks};
pub use placed::{OffloadError, PlacedModel, PlacedProgress, compile_options};
