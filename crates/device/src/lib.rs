//! Accelerators: what runs kernels. Here: the CPU's cores as lanes and teams.
//!
//! A *lane* is one serial queue over a set of cores; a *team* is one or more lanes that run one job together, led by
//! the first thread of the first lane. Jobs report their own completion, on the thread that ran them: there is no
//! dispatcher. A lane with nothing to do uses no CPU.

mod accelerator;
mod affinity;
mod core_time;
mod cpu;
mod gate;
mod lane_thread;
mod round;
mod team;

pub use accelerator::{Accelerator, Descriptor, DeviceStopped, Job, Kind, Shapes};
pub use affinity::{CoreId, available_cores};
pub use core_time::CoreTime;
pub use cpu::{Cpu, CpuConfig, CpuLanes, Pinning};
pub use team::Team;
