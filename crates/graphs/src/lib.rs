//! One description of a fused block, emitted for several toolchains.
//!
//! Accelerators that compile ahead of time take graphs, not kernels: OpenVINO's plugins read its intermediate
//! representation, Qualcomm's HTP reads ONNX by way of ONNX Runtime. Here the fused kernels of a layer (Agent.xpu §4.2) are written down once, as a [`Block`], and
//! [`openvino`] and [`onnx`] say them in either language, in the shape that a device's [`LayoutRules`] ask for; [`mod@reference`] computes what they mean.
//!
//! Bytes go in and bytes come out: there is no device, file, model or clock here, and nothing of either toolchain is
//! linked. Nothing that a block holds can make an emitter panic: it was checked when it was made.

pub mod attention;
mod block;
mod blocks;
mod builder;
mod check;
pub mod onnx;
pub mod openvino;
mod ranges;
pub mod reference;
mod shape;
mod weights;

pub use attention::ChunkAttention;
pub use block::{Activation, Block, Linear, Norm, Op, Port, ValueId};
pub use blocks::{FeedForward, GatedFeed, port};
pub use builder::BlockBuilder;
pub use check::BlockError;
pub use ranges::{CalibrationError, Range, RangeError, Ranges, calibrate};
pub use shape::{ActivationRule, LayoutRules, LinearForm, RowRule, Rows, ShapeError, WeightRule};
pub use weights::{Bits, Group, Grouped, Int8, LinearWeights, Origin, Precision, Quants, WeightsError};
