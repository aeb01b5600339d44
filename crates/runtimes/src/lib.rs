//! What devices have in common whose runtimes are found at run time and take graphs that are compiled ahead of time.
//!
//! A toolchain is a crate of its own (`openvino`, `qnn`) that implements [`GraphDevice`]. Who wants blocks run knows
//! nothing else of it: so a cache, a plan of faults or another toolchain can stand where any device stands.
//!
//! | what | file |
//! | --- | --- |
//! | where a runtime is, or how to get it | `package.rs`, `find.rs`, `platform.rs`, `python.rs` |
//! | what the engine needs of a device | `graph_device.rs`, `info.rs`, `port.rs`, `error.rs` |
//! | memory that is lent | `buffer.rs` |
//! | word that work has ended, and devices that never answer | `completion.rs`, `watchdog.rs` |
//! | whether a device computes what it should | `self_test.rs` |
//! | products that tests multiply | `product.rs` |
//! | graphs that were compiled before, on disk | `cache.rs`, `blob_file.rs`, `blob_key.rs` |
//! | devices that fail on demand, for tests | `faults.rs` |
//!
//! Invariants:
//! - nothing of a toolchain is loaded, linked or called here;
//! - memory that a device may still use is not given back, whatever is dropped, forgotten or given up;
//! - a compiled graph that is not there, not whole or another one is compiled again, never an error.

mod blob_file;
mod blob_key;
mod buffer;
mod cache;
mod completion;
mod error;
mod faults;
mod find;
mod graph_device;
mod info;
mod package;
mod platform;
mod port;
pub mod product;
mod python;
mod self_test;
#[cfg(test)]
mod tests;
mod watchdog;

pub use blob_key::{BlobKey, BlobSource, Digest, EXTENSION as GRAPH_EXTENSION};
pub use buffer::{ALIGNMENT, Buffer, Tensors};
pub use cache::{BlobCache, Obtained, Origin};
pub use completion::{Completion, Then};
/// Which rows a device's graphs may have, as [`GraphDevice::rules`] says it.
pub use duet_graphs::RowRule;
pub use error::{Error, Side};
pub use faults::{FaultPlan, FaultyDevice};
pub use find::{Found, Lack, Looked, Missing, Place, find};
pub use graph_device::{Emitted, Graph, GraphDevice, GraphSource};
pub use info::{DeviceInfo, DeviceKind, Peak};
pub use package::{ONNX_RUNTIME, OPENVINO, Package, QNN_PROVIDER};
pub use port::{Dimension, LentRows, Port, Ports};
pub use self_test::{SelfTest, self_test};
pub use watchdog::{UnderWay, Watched};
