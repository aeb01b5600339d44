//! Qualcomm's HTP (the NPU of Snapdragon) as a device, by way of ONNX Runtime and Qualcomm's execution provider for it.
//!
//! Both are found when they are first wanted and never linked. On aarch64 the provider drives the HTP of the machine. On
//! x86_64 its package holds the same compiler and an emulator of the HTP: that is for tests, it is as slow as an
//! emulator is. Blocks are written as ONNX models of integers (`duet_graphs::onnx`), which the HTP computes in: weights of
//! eight bits with one scale for each output, activations of sixteen bits on calibrated grids.
//!
//! **No silicon has run this yet.** What is tested is tested on the emulator: that graphs compile for several
//! generations of the HTP, with no node left to the CPU, and compute what they should. How fast they are on a Snapdragon,
//! and whether its results are the emulator's to the bit, nobody has measured.
//!
//! | what | file |
//! | --- | --- |
//! | the runtime and its provider | `runtime.rs`, `provider.rs` |
//! | a device, and which generation it compiles for | `device.rs`, `generation.rs` |
//! | compiling, and taking up what was compiled | `session.rs` |
//! | a graph and its ports | `graph.rs`, `ports.rs` |
//! | memory that is lent | `lent.rs` |
//! | the thread of inferences, and devices that never answer | `lane.rs` |
//! | errors of ONNX Runtime | `error.rs` |
//!
//! Invariants:
//! - no node of a graph runs on the CPU's own kernels in the HTP's place: what the HTP does not take is refused;
//! - memory that was lent stays with an inference until it has ended, whatever is dropped or given up;
//! - what ONNX Runtime refuses is an error with its own words.

mod device;
mod error;
mod generation;
mod graph;
mod lane;
mod lent;
mod ports;
mod provider;
mod runtime;
mod session;

pub use device::Device;
pub use generation::Generation;
pub use runtime::Runtime;
