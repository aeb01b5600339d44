//! `duet profile`: its flags.

use super::EngineArgs;
use crate::offloading::DeviceName;
use clap::{Args, ValueEnum};
use duet_engine::profile::Effort;
use duet_types::Bytes;
use std::path::PathBuf;

/// `duet profile`
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Measure many kernels and say how far the profile's predictions are off
    #[arg(long)]
    pub(crate) check: bool,
    /// How much time to take: what the first start of a model takes, or some tens of seconds
    #[arg(long, value_name = "EFFORT", value_enum, default_value_t = EffortArg::Thorough)]
    pub(crate) effort: EffortArg,
    /// Print one JSON object, and with --device one more for each shape and each candidate
    #[arg(long)]
    pub(crate) json: bool,
    /// What is measured of a device.
    #[command(flatten)]
    pub(crate) graphs: GraphProfileArgs,
    /// How to run.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// How much time a profile takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffortArg {
    /// A second or two, as at the first start of a model.
    Quick,
    /// Some tens of seconds.
    Thorough,
}

impl From<EffortArg> for Effort {
    fn from(effort: EffortArg) -> Self {
        match effort {
            EffortArg::Quick => Self::Quick,
            EffortArg::Thorough => Self::Thorough,
        }
    }
}

/// What is measured of a device that takes compiled graphs.
#[derive(Debug, Args)]
pub(crate) struct GraphProfileArgs {
    /// Measure with this accelerator: a GPU beside the cores, as `--device` runs it; of one that takes compiled graphs its graphs
    /// as well, to choose how they are exchanged while a prompt is read
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<DeviceName>,
    /// Numbers of rows that graphs are measured with
    #[arg(
        long,
        value_name = "ROWS,..",
        value_delimiter = ',',
        default_value = "16,32,64,128,256,512",
        requires = "device",
        value_parser = super::count()
    )]
    pub(crate) graph_rows: Vec<usize>,
    /// Memory that graphs may take at once [default: for one set of them and a tenth of one]
    #[arg(long, value_name = "BYTES", requires = "device", value_parser = super::bytes)]
    pub(crate) graph_memory: Option<Bytes>,
    /// Choose for the lengths of these prompts, one JSON object a line [default: for prompts of 256, 1024 and 2048 tokens]
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "device")]
    pub(crate) workload: Vec<PathBuf>,
}
