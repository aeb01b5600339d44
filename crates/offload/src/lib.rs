//! A model's token-wise blocks as compiled graphs on an accelerator.
//!
//! `layers` makes the fused blocks of a loaded model's weights, `calibration` finds out between which numbers their values
//! lie, for devices that compute in integers, `known_ranges` keeps that, `shapes` says for how many rows graphs are compiled and cuts rows to them,
//! `source` emits a block for them, `ready` is a graph that was tried, `slot` one block on one device, `placed` the whole
//! model; `exact` makes graphs for exactly a prompt's rows beside it. `routing` counts where a model's routers send rows,
//! `expert_file` keeps that beside the model, and `experts` places a model that has some. `patience` says when a device is taken to hang. `switching` exchanges graphs while a prompt is read. Attention,
//! rope and the cache stay on the CPU: they are sequence-wise, and static graphs are not for them. (Agent.xpu §4.2-4.3)
//!
//! Precision: weights are the file's own groups of 32, to the bit, on devices that take groups (`weights` says which and
//! what the others have), and activations are rounded to eight bits in groups of 32 as the CPU's kernels round them. (The
//! HTP: sixteen bits on calibrated grids, and weights of eight bits with one scale for each output.) A product then differs
//! from theirs in the order of sums only, by some 1e-7, and where groups have minima by a small part of what rounding
//! costs. That is not the same bits, and it grows: where it tips an activation to the next step, the products after it
//! differ by a thousandth, and after a few layers the errors of rounding, about one per cent of a block, have nothing in
//! common any more. So answers of the device and of the CPU are equally near to what no rounding would say, and no nearer
//! to each other than to that.

mod calibration;
mod exact;
mod expert_file;
mod experts;
mod identity;
mod known_ranges;
mod layers;
mod patience;
mod placed;
mod ready;
mod routing;
mod shapes;
mod slot;
mod source;
pub mod switching;
mod weights;

pub use calibration::{CalibrateError, Seen};
pub use exact::ExactModel;
pub use expert_file::{expert_file, read_experts, write_experts};
pub use experts::{
    AttentionPlace, ExpertScheme, ExpertSettings, PlacedExperts, Saliency, VirtualExperts, VirtualSettings,
    expert_block,
};
pub use layers::{LayerBlocks, LayersError, head_block, layer_blocks};
pub use placed::{OffloadError, PlacedModel, PlacedProgress};
pub use routing::{RoutingError, calibrate_experts};
