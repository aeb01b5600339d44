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
mod answers;
pub mod checkers;
mod client;
mod compiler;
mod copies;
mod counters;
mod device_graphs;
mod disk;
mod drafting;
mod dram;
mod faults;
pub mod fidelity;
mod figures;
pub mod flows;
pub mod fuzz;
mod kernel_log;
mod kv;
mod lanes;
mod latencies;
pub mod lengths;
pub mod machines;
mod meter;
mod metrics;
mod node_counts;
mod paced;
mod passes;
mod random;
mod recorded;
mod replayed;
mod reuse;
mod scenario;
pub mod shape;
mod simulation;
pub mod soc;
mod speed;
mod timeline;
pub mod traffic;
mod truth;
mod watchdog;
mod workload;
mod world;

pub use ablation::Ablation;
pub use answers::{Answers, KnownLengths};
pub use client::{Client, Continues, Failing, Follows, Graphs};
pub use counters::Counters;
pub use faults::Faults;
pub use figures::{ClassFigures, Figures, LaneFigures, percentile};
pub use flows::Flows;
pub use kernel_log::{KernelLog, KernelRun};
pub use kv::Kept;
pub use latencies::{Latencies, Times};
pub use meter::{Busy, Meter};
pub use metrics::{Metrics, Summary};
pub use random::Random;
pub use recorded::{Beside, Probed, Recorded};
pub use replayed::{DraftStep, Replayed};
pub use reuse::Reuse;
pub use scenario::{Scenario, ScenarioError};
pub use shape::ModelShape;
pub use simulation::Simulation;
pub use soc::SocProfile;
pub use speed::{Speed, SpeedTimeline};
pub use timeline::Timeline;
pub use traffic::Traffic;
pub use truth::Truth;
pub use workload::{Stream, Workload};
pub use world::VirtualWorld;
