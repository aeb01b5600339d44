//! The scheduler: which kernel of which request runs next, on which lanes, and why.
//!
//! It is sans-IO: [`Event`]s come in with the time they happened, [`Command`]s go out. There is no clock, thread,
//! lock, tensor or token in here, and no random choice: the same events give the same commands. The engine drives it
//! with real lanes, the simulator with virtual ones; both through the driver's one loop.
//!
//! Where the mechanisms of Agent.xpu are (§ of the paper):
//!
//! | mechanism | file |
//! | --- | --- |
//! | request table (§4.1) | `request_table.rs` |
//! | dual queues (§4.1) | `queues.rs` |
//! | heterogeneous execution graph (§4.2) | `heg.rs` and `duet-types`' `nodes.rs`, cut in kernels by `kernel.rs` and `span.rs` |
//! | annotations, two-anchor roofline (§4.2, appendix A) | `annotation.rs`, `machine.rs`, corrected by `drift.rs` |
//! | decoupled pipelines (§4.3 ①②) | `policy/agent_xpu.rs`, `policy/pipeline.rs` |
//! | arbitration, prefill first (§4.3 ③) | `arbitration.rs` |
//! | elastic tensor parallelism (§4.3 ④, Algorithm 1) | `elastic.rs`, launched by `split.rs`; within a team `division.rs` |
//! | graph warm-up and reclaim (§4.3 ⑤) | `warm_up.rs`, `graphs.rs` |
//! | contention deferral (§4.3 ⑤) | `contention.rs` |
//! | preemption, double activation buffer (§4.4) | `preemption.rs`, `pass.rs` |
//! | adaptive decode batching (§4.5 ②, Algorithm 2) | `batching.rs` |
//! | slack-aware piggybacking (§4.5 ①) | `piggyback.rs` |
//! | starvation prevention (§4.5 ③) | `ageing.rs` |
//! | progressive graph scheduling (CoordGen §3.2) | `progressive/`, followed in serving by `residency.rs` |
//! | rows of drafts, by what they cost and are worth (CoordGen §3.4, and ours) | `speculation.rs` |
//! | order among equals (ours) | `order.rs` |
//! | memory manager (§4.1) | `memory.rs`, `room.rs`, `reuse.rs` |
//! | copies of keys and values in a device's own memory (ours) | `mirrors.rs` |
//! | layers of a model on a device that has no room for all (ours) | `layers.rs` |
//! | lanes given back by passes that wait for a disk (ours) | `disk_wait.rs` |
//! | what executors can do, whether they do, and whether that pays (ours) | `capabilities.rs`, `health.rs`, `pays.rs` |
//! | the policies, ours and the baselines | `policy/` |
//!
//! Invariants:
//! - a lane runs at most one kernel at a time; rows of a pass are on at most one lane; nodes come in order;
//! - a request is in at most one pass, and there is one pass for each class and stage (two activation buffers each);
//! - a request that was submitted is released exactly once, and nothing is launched for it afterwards;
//! - the scheduler counts tokens but never sees one, and no view of it knows how long an answer will be.

mod ageing;
pub mod annotation;
mod arbitration;
mod batching;
mod capabilities;
mod command;
mod config;
mod contention;
mod decision;
mod disk_wait;
pub mod division;
mod drift;
pub mod elastic;
mod event;
pub mod few_rows;
mod graphs;
mod health;
pub mod heg;
mod kernel;
pub mod layers;
pub mod machine;
mod mechanism;
mod memory;
mod memory_limits;
pub mod mirrors;
mod offer;
mod order;
mod pass;
mod pays;
mod piggyback;
pub mod policy;
mod preemption;
pub mod progressive;
mod queues;
mod reason;
mod request_table;
mod residency;
mod reuse;
mod room;
mod running;
mod scheduler;
mod span;
mod speculation;
mod split;
mod view;
mod warm_up;

pub use command::{Command, End, Graph, GraphId};
pub use config::{Limits, SchedulerConfig, Verify};
pub use event::{Event, Generated, Outcome, Prefix, Request, Source};
pub use graphs::GraphState;
pub use heg::Heg;
pub use kernel::{Completes, HeadRows, Kernel, Member, OnMiss, PassId, Share, Span, Yields};
pub use machine::Machine;
pub use mechanism::{Mechanism, Mechanisms};
pub use memory::Pages;
pub use memory_limits::{MemoryLimits, StatePages, WindowPages};
pub use offer::{Chance, Offer};
pub use pass::Pass;
pub use pays::pays;
pub use queues::Line;
pub use reason::Reason;
pub use request_table::{Phase, Progress};
pub use residency::{GraphLoad, GraphSet, layers_of};
pub use scheduler::Scheduler;
pub use span::Cut;
pub use speculation::{decode_share, row_share};
pub use view::{RequestView, RunningView, View};
