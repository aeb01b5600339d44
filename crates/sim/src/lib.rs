//! A world in virtual time: lanes that take as long as their annotations say, clients who know how long their answers
//! will be (the scheduler does not), and faults on demand.
//!
//! The scheduler and the loop around it are those of the engine; only the world is another. It trusts the scheduler in
//! nothing: every command is checked against what the world knows, and a broken rule is a panic that names it. What is
//! checked is listed where it is: lanes and shapes in `lanes.rs`, rows and nodes in `passes.rs`, KV in `kv.rs`.
//!
//! Everything is deterministic: integer time, ties in the order in which they were scheduled, seeded jitter.

pub mod ablation;
mod client;
mod compiler;
mod counters;
mod faults;
pub mod fidelity;
mod kernel_log;
mod kv;
mod lanes;
pub mod machines;
mod metrics;
mod passes;
mod random;
mod recorded;
mod reuse;
mod scenario;
mod speed;
mod timeline;
mod workload;
mod world;

pub use ablation::Ablation;
pub use client::{Client, Continues, Failing, Graphs};
pub use counters::Counters;
pub use faults::Faults;
pub use kernel_log::{KernelLog, KernelRun};
pub use metrics::{Metrics, Summary};
pub use random::Random;
pub use recorded::{Beside, Probed, Recorded};
pub use reuse::Reuse;
pub use scenario::{Scenario, ScenarioError};
pub use speed::{Speed, SpeedTimeline};
pub use timeline::Timeline;
pub use workload::{Stream, Workload};
pub use world::{Truth, VirtualWorld};
