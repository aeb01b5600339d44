//! A model's nodes on a GPU, by way of Vulkan, Metal or DirectX 12 (`wgpu`), on any vendor's.
//!
//! [`adapters`] says what there is and whether it can be used, [`gpu`] watches over one that is open, [`matrix`] has packed
//! weights there, byte for byte as the CPU's kernels have them, [`nodes`] records what a node of a pass is made of, and
//! [`placed`] is a whole model as the engine's lanes know it. The kernels are WGSL in `shaders/`, a file for each step, and
//! none is made for a model: what differs are constants of pipelines.
//!
//! Invariant: what is computed has the CPU's bits, attention and what is rounded into the cache included: sums of integers are
//! exact in any order, and what is not exact has the CPU's order. This holds on an adapter whose `fma` rounds once, and on one
//! with double precision (`fusing.rs`); on another last bits differ.
//!
//! Weights, keys and values stay where they are if the adapter has no memory of its own and its driver takes the host's
//! ([`weights_in_place`], [`in_place`]), and are copied otherwise ([`pages`]).
//!
//! Invariant: an adapter that fails, is lost or hangs is an error of the call, after which nothing of a pass has changed.

pub mod adapters;
mod attending;
mod back;
mod best;
mod choosing;
mod clock;
mod compiling;
mod display;
mod divided;
mod error;
mod experts;
mod fusing;
mod given;
mod given_up;
pub mod gpu;
mod heads;
mod held;
mod host_memory;
mod in_place;
mod kept;
mod launches;
mod loaded;
mod matrix;
mod nodes;
mod opening;
mod pages;
mod pipelines;
pub mod placed;
mod prepared;
mod products;
mod recording;
mod room;
mod self_test;
mod shader;
mod sharing;
mod sought;
mod spans;
mod staging;
mod tiled;
mod tried_fusing;
mod weights_in_place;
mod windows;

pub use adapters::{Adapter, Adapters, CacheAccess, Verdict};
pub use error::GpuError;
pub use fusing::Fusing;
pub use gpu::{Fault, Gpu};
pub use launches::{LaunchTime, Timed};
pub use placed::{GpuModel, shares_weights};
pub use self_test::{SelfTest, self_test};
