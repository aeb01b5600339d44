//! A model's token-wise blocks as compiled graphs on an accelerator.
//!
//! Rope and the cache stay on the CPU, and attention, unless it is asked for: they are sequence-wise, and static graphs are
//! not for them. (Agent.xpu §4.2-4.3)
//!
//! | what | module |
//! | --- | --- |
//! | the fused blocks of a loaded model's weights | `layers`, `weights` |
//! | the ranges of their values, for devices that compute in integers | `calibration`, kept by `known_ranges` |
//! | for how many rows graphs are compiled, and how rows are cut to them | `shapes` |
//! | a block as a device's compiler takes it | `source` |
//! | how much room compiled graphs want in the cache | `room` |
//! | a graph that was tried, and how long it may take later | `ready`, `patience` |
//! | one block on one device, and the whole model | `slot`, `placed` |
//! | graphs for exactly a prompt's rows | `exact` |
//! | where a model's routers send rows, and the file that keeps that | `routing`, `expert_file` |
//! | a model that has experts | `experts` |
//! | attention of chunks, and the keys and values that it reads | `attention` |
//! | exchanging graphs while a prompt is read | `switching` |
//!
//! Precision: weights are the file's own groups of 32, to the bit, on devices that take groups (`weights` says which and
//! what the others have), and activations are rounded to eight bits in groups of 32 as the CPU's kernels round them. (The
//! HTP: sixteen bits on calibrated grids, and weights of eight bits with one scale for each output.) A product then differs
//! from theirs in the order of sums only, by some 1e-7, and where groups have minima by a small part of what rounding
//! costs. That is not the same bits, and it grows: where it tips an activation to the next step, the products after it
//! differ by a thousandth, and after a few layers the two sets of rounding errors, about one per cent of a block, are
//! unrelated. So device and CPU answers deviate from unrounded results by similar amounts, and from each other by as much.

mod attention;
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
mod room;
mod routing;
mod shapes;
mod slot;
mod source;
pub mod switching;
mod weights;

pub use attention::PlacedAttention;
pub use calibration::{CalibrateError, Seen};
pub use exact::ExactModel;
pub use expert_file::{expert_file, read_experts, write_experts};
pub use experts::{
    ExpertScheme, ExpertSettings, PlacedExperts, Saliency, VirtualExperts, VirtualSettings, expert_block,
};
pub use layers::{LayerBlocks, LayersError, head_block, layer_blocks};
pub use placed::{OffloadError, PlacedModel, PlacedProgress};
pub use room::{GraphRoom, GraphUse};
pub use routing::{RoutingError, calibrate_experts};
pub use shapes::rows_taken;
