//! Benchmarks: what `duet bench` runs.
//!
//! Every figure is measured by the run that prints it. Clouds change a core's speed within seconds, so the machine's
//! ceilings are probed beside every sample, and shares of a ceiling are shares of the probe next to the sample; `ceiling` says when a
//! probe is believed.

pub mod agents;
pub mod agreement;
mod bed;
mod ceiling;
mod cores;
mod forward;
pub mod functional;
pub mod graphs;
mod html;
pub mod load;
pub mod moe;
mod optimality;
mod plot;
mod probe;
pub mod quality;
pub mod report;
mod samples;
pub mod served;
pub mod speculate;
mod table_5;
pub mod throughput;
pub mod traces;
