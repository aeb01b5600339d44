//! Progressive graph scheduling: prefill graphs are exchanged for decode graphs, block by block, while a prompt is read.
//! (CoordGen §3.2, appendix A; sd.npu §4.2)
//!
//! Accelerators with static shapes want two graphs of each block of layers: one of many rows, that reads prompts (`G¹`),
//! and one of few rows, that decodes (`G²`). Both at once hold the weights twice. So the prefill graphs are exchanged
//! while the prompt is read: a block's decode graph is loaded behind the computation of other blocks, and what is left of
//! the prompt passes that block several times on its few rows, which computes the same.
//!
//! | what | file |
//! | --- | --- |
//! | blocks, and what their graphs cost | `blocks.rs` |
//! | a prompt in chunks, and the places of its computation | `prompt.rs` |
//! | what is to be scheduled, and under which budget | `problem.rs` |
//! | a plan: what is loaded when | `plan.rs` |
//! | following a plan, and abandoning it | `progress.rs` |
//! | what a plan takes, as predicted | `timeline.rs` |
//! | the paper's greedy rule (eq. 1-2), and its relatives | `greedy.rs` |
//! | the latest start that still hides the loads, and the way back (ours) | `just_in_time.rs` |
//! | one graph, both graphs, synchronous, naive asynchronous | `baselines.rs` |
//! | the optimum, for few blocks and chunks | `exact.rs` |
//! | how many blocks, and which rows | `choice.rs` |
//!
//! Invariants:
//! - a plan is a function of the problem alone; what follows it asks for no time and makes no choice that the plan did
//!   not make;
//! - every row passes every block once, in order; a block computes on a graph that is resident, and none is loaded while
//!   another one is;
//! - at no moment do resident graphs, and the one that is loaded, exceed the budget.

mod baselines;
mod blocks;
mod choice;
mod exact;
mod greedy;
mod just_in_time;
mod plan;
mod problem;
mod progress;
mod prompt;
#[cfg(test)]
mod properties;
mod timeline;

pub use baselines::{asynchronous, both_resident, shared, synchronous};
pub use blocks::{Block, Blocks, BlocksError, GraphCost, Pair, PassTime, Role};
pub use choice::{Candidate, Choice, Point, Trial, Use, choose};
pub use exact::exact;
pub use greedy::{Hiding, Next, Rule, greedy, greedy_by};
pub use just_in_time::{just_in_time, just_in_time_within};
pub use plan::{Exchange, Load, Plan};
pub use problem::{Problem, ProblemError, Resident};
pub use progress::{Progress, Todo};
pub use prompt::{Place, Prompt};
pub use timeline::{Computed, Loaded, Timeline};
