//! Intel's OpenVINO as a device: NPU, GPU and CPU through graphs that are compiled ahead of time.
//!
//! The runtime is found when it is first wanted and never linked: without it everything else of duet works. Of
//! OpenVINO only the C library is used, through functions that are bound once, so that a build needs nothing of it.
//!
//! | what | file |
//! | --- | --- |
//! | its functions, objects and structures | `library.rs`, `handle.rs`, `raw.rs`, `text.rs` |
//! | the runtime and its devices | `runtime.rs`, `device.rs`, `describe.rs` |
//! | compiling, exporting, importing | `compile.rs`, `compiled.rs` |
//! | how: what is wanted, and what a device takes of it | `options.rs`, `offer.rs` |
//! | memory that is lent | `tensor.rs` |
//! | inferences: waited for at once, or started | `infer.rs`, `running.rs` |
//! | as a device like those of other runtimes | `graph_device.rs` |
//!
//! Invariants:
//! - no safe call reads or writes memory that was given back, however handles are dropped or forgotten;
//! - no device is told an option that it does not list as its own;
//! - a device that hangs blocks nobody who gave it a time limit;
//! - whatever OpenVINO refuses is an error with OpenVINO's own words, never a panic.

mod compile;
mod compiled;
mod describe;
mod device;
mod graph_device;
mod handle;
mod infer;
mod library;
mod matmul;
mod offer;
mod options;
mod raw;
mod running;
mod runtime;
mod tensor;
#[cfg(test)]
mod tests;
mod text;

pub use compile::Ir;
pub use compiled::CompiledGraph;
pub use device::Device;
/// What this crate's devices have in common with those of other runtimes, and its own calls take and return.
pub use duet_runtimes::{
    ALIGNMENT, BlobCache, BlobKey, BlobSource, Buffer, DeviceInfo, DeviceKind, Digest, Dimension, Emitted, Error,
    FaultPlan, FaultyDevice, Graph, GraphDevice, GraphSource, Missing, Obtained, Origin, Peak, Port, Ports, SelfTest,
    Side, Tensors, self_test,
};
pub use infer::InferRequest;
pub use matmul::MatMul;
pub use offer::LeftOut;
pub use options::{Activations, CompileOptions, NpuFrontEnd, Pinning, Precision};
pub use running::{Finished, Running};
pub use runtime::Runtime;
