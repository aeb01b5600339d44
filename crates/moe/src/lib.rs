//! Experts on devices that take static shapes: how many rows each is given room for, which share a graph, and where a
//! graph stays. And experts on disk: which are in memory.
//!
//! It is sans-IO: counts and routes come in, plans and commands go out. There is no clock, thread, file, tensor or random
//! choice in here, and what a row comes to is computed elsewhere.
//!
//! Where the mechanisms of NPUMoE are:
//!
//! | mechanism | file |
//! | --- | --- |
//! | offline calibration: popularity, imbalance, Overlap@K (§3.3, §5.8) | `calibration.rs` |
//! | static tiers for expert capacity (§4.1) | `tiers.rs` |
//! | grouped expert execution (§4.2) | `groups.rs` |
//! | gather, zero-pad, weighted scatter (§4.2) | `packing.rs` |
//! | load-aware residency (§4.3) | `residency.rs`, by `worth.rs` |
//! | overflow: spilled or pruned (§3.2, §4.1) | `overflow.rs` |
//! | a chunk's routes over all of these (§3.1) | `dispatch.rs` |
//! | what a device and a model say of themselves | `device.rs` |
//!
//! `expert_cache.rs` is of none of these: it says which experts are in memory when the rest are on disk.
//!
//! Invariants:
//! - every route of a chunk is computed on the accelerator, computed on the CPU, or counted as dropped, exactly once;
//! - a group has one capacity and fits in a graph; what is resident fits in the memory that is given;
//! - the same inputs give the same plans.

pub mod calibration;
pub mod device;
pub mod dispatch;
pub mod expert_cache;
pub mod groups;
pub mod overflow;
pub mod packing;
pub mod residency;
mod route;
pub mod tiers;
pub mod worth;

#[cfg(test)]
mod samples;

pub use calibration::{Calibration, LayerCounts, Load};
pub use device::{Device, MoeShape, Times};
pub use dispatch::{Dispatch, Dispatched};
pub use expert_cache::{Answer, CacheStats, ExpertCache, LayerShape, Place};
pub use groups::{Group, Grouping};
pub use overflow::Overflow;
pub use packing::Packing;
pub use residency::{GroupId, Residency};
pub use route::{ExpertId, Route};
pub use tiers::{Provision, Tiers};
