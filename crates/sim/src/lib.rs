//! A world in virtual time: lanes that take as long as their annotations say, clients who know how long their answers
//! will be (the scheduler does not), and faults on demand.
//!
//! The scheduler and the loop around it are those of the engine; only the world is another. It trusts the scheduler in
//! nothing: every command is checked against what the world knows, and a broken rule is a panic that names it. What is
//! checked is listed where it is: lanes and shapes in `lanes.rs`, rows and nodes in `passes.rs`, KV in `kv.rs`.
//!
//! Rules that are about more than one command (bounds, order, idle lanes) are held by the [`checkers`], over any scenario
//! and over those that [`fuzz`] makes of seeds.
//!
//! Everything is deterministic: integer time, ties in the order in which they were scheduled, seeded jitter.

pub mod ablation;
pub mod checkers;
mod client;
mod compiler;
mod faults;
pub mod fuzz;
mod kv;
mod lanes;
pub mod machines;
mod metrics;
mod passes;
mod random;
mod scenario;
mod timeline;
mod watchdog;
mod workload;
mod world;

pub use ablation::Ablation;
pub use client::{Client, Continues, Failing, Graphs};
pub use faults::Faults;
pub use metrics::{Metrics, Summary};
pub use random::Random;
pub use scenario::{Scenario, ScenarioError};
pub use timeline::Timeline;
pub use workload::{Stream, Workload};
pub use world::{Truth, VirtualWorld};
