//! Flags about accelerators.

use crate::failure::BadInput;
use crate::offloading::DeviceName;
use clap::{Args, ValueEnum};
use duet_engine::{DeviceUse, Fallback};
use duet_moe::Overflow;
use duet_offload::{AttentionPlace, ExpertScheme, ExpertSettings};
use duet_types::Bytes;
use std::path::PathBuf;

/// Where a model's matrix products are done.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Do the model's matrix products on an accelerator, by its name in `duet devices`; the CPU stands in where it fails
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<DeviceName>,
    /// Which work the device gets: `alone`, all matrix products; `lane`: what the scheduler gives it, side by side with the
    /// cores, which compute their share of the rows meanwhile; or `static`: chunks of prompts beside the cores, and whole
    /// prompts on graphs that are compiled for their length while they wait, if these are predicted to be ready in time
    #[arg(long, value_name = "USE", requires = "device", default_value = "alone")]
    pub(crate) device_use: DeviceUseName,
    /// Memory for the device's graphs: where it holds one set, those that read prompts are exchanged for those that decode
    /// while a prompt is read [default: room for both]
    #[arg(long, value_name = "BYTES", requires = "device", value_parser = super::bytes)]
    pub(crate) graph_memory: Option<Bytes>,
    /// Disk for compiled graphs, of all models [default: what this model's may take, and 4 GiB at least]
    #[arg(long, value_name = "BYTES", requires = "device", value_parser = super::bytes)]
    pub(crate) graph_cache: Option<Bytes>,
    /// Of a model with experts: what becomes of tokens that an expert has no room for on the device. `spill`: the CPU
    /// computes them; `prune`: those whose attention found least are left out
    #[arg(long, value_name = "RULE", requires = "device", default_value = "spill")]
    pub(crate) expert_overflow: OverflowName,
    /// Of a model with experts: how they are placed. `all` is the method; `dense-only`, `naive`, `base`, `tiers` and
    /// `groups` are what it is compared with
    #[arg(long, value_name = "NAME", requires = "device", default_value = "all")]
    pub(crate) expert_scheme: ExpertScheme,
    /// Of a model with experts: the device attends, too, while prompts are read, in graphs of a fixed length
    #[arg(long, requires = "device")]
    pub(crate) device_attention: bool,
    /// Fail where the device does, with nothing to stand in for it
    #[arg(long, requires = "device")]
    pub(crate) no_fallback: bool,
}

impl DeviceArgs {
    /// What happens to work that the device does not do.
    pub(crate) fn fallback(&self) -> Fallback {
        if self.no_fallback { Fallback::Never } else { Fallback::Crew }
    }

    /// Refuses flags that no model and no device makes sense of together, before either is looked for. What depends on the
    /// model (whether it has experts) or on the device (how large its graphs are) is found out later.
    pub(crate) fn check(&self) -> Result<(), BadInput> {
        let refuse = |text: &str| Err(BadInput(text.to_owned()));
        if self.device.is_none() || self.device_use == DeviceUseName::Alone {
            return Ok(());
        }
        if self.graph_memory.is_some() {
            return refuse("--graph-memory is for --device-use alone: leave one of them out");
        }
        if self.experts() != ExpertSettings::default() {
            return refuse(
                "--expert-scheme, --expert-overflow and --device-attention are for models with experts, which a device \
                 takes with --device-use alone only: leave --device-use out",
            );
        }
        Ok(())
    }

    /// How experts are placed.
    pub(crate) fn experts(&self) -> ExpertSettings {
        let overflow = match self.expert_overflow {
            OverflowName::Spill => Overflow::Spill,
            OverflowName::Prune => Overflow::Prune,
        };
        let attention = if self.device_attention { AttentionPlace::Device } else { AttentionPlace::Cpu };
        ExpertSettings { scheme: self.expert_scheme, overflow, attention, ..ExpertSettings::default() }
    }

    /// Threads of the device and of the cores beside it. A device that is made of the cores leaves them all but one if it
    /// is a lane beside them, and they wait for it else.
    pub(crate) fn threads(&self, threads: Option<u16>) -> (Option<u16>, Option<u16>) {
        let of_cores = self.device.as_ref().is_some_and(DeviceName::is_made_of_cores);
        if !of_cores || self.device_use == DeviceUseName::Alone {
            return (threads, threads);
        }
        let all = threads.unwrap_or_else(crate::offloading::cores);
        (Some(1), Some(all.saturating_sub(1).max(1)))
    }
}

/// Which work a device gets, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceUseName {
    Alone,
    Lane,
    Static,
}

/// What becomes of tokens that there is no room for, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverflowName {
    Spill,
    Prune,
}

impl From<DeviceUseName> for DeviceUse {
    fn from(name: DeviceUseName) -> Self {
        match name {
            DeviceUseName::Alone => Self::Alone,
            DeviceUseName::Lane => Self::Lane,
            DeviceUseName::Static => Self::Static,
        }
    }
}

/// `duet bench agreement`
#[derive(Debug, Args)]
pub(crate) struct AgreementArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Which device, by its name in `duet devices`
    #[arg(long, value_name = "NAME", default_value = "openvino:CPU")]
    pub(crate) device: DeviceName,
    /// Prompts, one JSON object a line
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub(crate) workload: Vec<PathBuf>,
    /// Prompts of each file at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = super::count())]
    pub(crate) limit: usize,
    /// Tokens of the answers at most
    #[arg(long, value_name = "TOKENS", default_value_t = 32, value_parser = super::count())]
    pub(crate) max_tokens: usize,
    /// Threads to compute with; all cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
