//! The threads that run kernels: the CPU's cores as lanes and teams, and a thread for each device that waits for it.
//!
//! A *lane* is one serial queue over a set of cores; a *team* is one or more lanes that run one job together, led by
//! the first of their threads that is not *away* because another program has its core. Jobs report their own completion, on
//! the thread that ran them: there is no dispatcher. A lane with nothing to do uses no CPU.

mod absence;
mod affinity;
mod core_time;
mod cpu;
mod gate;
mod job;
mod lane_thread;
mod leaving;
#[cfg(target_os = "linux")]
mod lost_file;
mod round;
mod team;
mod topology;

pub use absence::Absences;
pub use affinity::available_cores;
pub use core_time::CoreTime;
pub use cpu::{Cpu, CpuConfig, CpuLanes, Pinning};
pub use job::{Job, LanesStopped};
pub use leaving::leave;
#[cfg(target_os = "linux")]
pub use lost_file::explain_lost_files;
pub use team::Team;
pub use topology::{Core, CoreId, CoreKind, Speed};
