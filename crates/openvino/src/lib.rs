//! Intel's OpenVINO as a device: NPU, GPU and CPU through graphs that are compiled ahead of time.
//!
//! The runtime is found when it is first wanted and never linked: without it everything else of duet works. Of
//! OpenVINO only the C library is used, through functions that are bound once, so that a build needs nothing of it.
//!
//! | what | file |
//! | --- | --- |
//! | where the runtime is | `find.rs`, `platform.rs`, `python.rs` |
//! | its functions, objects and structures | `library.rs`, `handle.rs`, `raw.rs`, `text.rs` |
//! | the runtime and its devices | `runtime.rs`, `device.rs`, `info.rs` |
//! | compiling, exporting, importing | `compile.rs`, `options.rs`, `compiled.rs`, `port.rs` |
//! | memory that is lent | `buffer.rs`, `tensor.rs` |
//! | inferences: waited for at once, or started | `infer.rs`, `running.rs` |
//! | word that they have ended, and devices that never answer | `completion.rs`, `watchdog.rs` |
//! | whether a device computes what it should | `self_test.rs` |
//! | what the engine needs of such a device | `graph_device.rs` |
//! | graphs that were compiled before, on disk | `cache.rs`, `blob_file.rs`, `blob_key.rs` |
//! | devices that fail on demand, for tests | `faults.rs` |
//!
//! Invariants:
//! - no safe call reads or writes memory that was given back, however handles are dropped or forgotten;
//! - a device that hangs blocks nobody who gave it a time limit;
//! - whatever OpenVINO refuses is an error with OpenVINO's own words, never a panic.

mod blob_file;
mod blob_key;
mod buffer;
mod cache;
mod compile;
mod compiled;
mod completion;
mod device;
mod error;
mod faults;
mod find;
mod graph_device;
mod handle;
mod infer;
mod info;
mod library;
mod matmul;
mod options;
mod platform;
mod port;
mod python;
mod raw;
mod running;
mod runtime;
mod self_test;
mod tensor;
#[cfg(test)]
mod tests;
mod text;
mod watchdog;

pub use blob_key::{BlobKey, BlobSource, Digest};
pub use buffer::{ALIGNMENT, Buffer, Tensors};
pub use cache::{BlobCache, Obtained, Origin};
pub use compile::Ir;
pub use compiled::CompiledGraph;
pub use device::Device;
pub use error::{Error, Side};
pub use faults::{FaultPlan, FaultyDevice};
pub use find::{Found, Lack, Looked, Missing, Place, VERSION, find};
pub use graph_device::{Graph, GraphDevice};
pub use infer::InferRequest;
pub use info::{DeviceInfo, DeviceKind, Peak, Shapes};
pub use matmul::MatMul;
pub use options::{Activations, CompileOptions, Pinning, Precision};
pub use port::{Dimension, Port, Ports};
pub use running::{Finished, Running};
pub use runtime::Runtime;
pub use self_test::{SelfTest, self_test};
