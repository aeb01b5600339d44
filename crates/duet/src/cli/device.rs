//! Flags about accelerators.

use crate::bad_input::BadInput;
use crate::offloading::{AttentionPlace, DeviceName, DeviceSpec, ShapesName};
use clap::{Args, ValueEnum};
use duet_engine::Fallback;
use duet_moe::Overflow;
use duet_offload::{ExpertScheme, ExpertSettings};
use duet_types::Bytes;
use std::path::PathBuf;

/// Devices beside the cores, each a lane of its own.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Run the model on an accelerator too, by its name in `duet devices`; given again, on several. Each is measured with
    /// the model and gets what it does well, beside the cores, which stand in where it fails. After the name may follow
    /// `,shapes=fixed` (chunks of prompts, and whole prompts on graphs that are compiled for their length while they wait)
    /// or `,shapes=any`, where the device has the choice; `,threads=N`; `,graph-memory=BYTES`; of a GPU
    /// `,memory=BYTES`, where it holds as many layers as have room; and `,name=NAME`, as it is
    /// called in figures. `cpu` is the cores, which are always there [default: the devices that work and pay, as is
    /// measured; `cpu` alone for none]
    #[arg(long = "device", value_name = "NAME[,OPTION=VALUE]...")]
    pub(crate) devices: Vec<DeviceSpec>,
    /// Share of a lane that may be used at most, so that the rest is left to the display or to other programs: the lane by
    /// its name, or `cpu`. May be given again
    #[arg(long, value_name = "LANE=SHARE", value_parser = share)]
    pub(crate) occupancy: Vec<(String, f64)>,
    /// Memory for the graphs of the only device: where it holds one set, those that read prompts are exchanged for those
    /// that decode while a prompt is read [default: room for both]
    #[arg(long, value_name = "BYTES", requires = "devices", value_parser = super::bytes)]
    pub(crate) graph_memory: Option<Bytes>,
    /// Disk for compiled graphs, of all models [default: what this model's may take, and 4 GiB at least]
    #[arg(long, value_name = "BYTES", requires = "devices", value_parser = super::bytes)]
    pub(crate) graph_cache: Option<Bytes>,
    /// Of a model with experts: what becomes of tokens that an expert has no room for on the device. `spill`: the CPU
    /// computes them; `prune`: those whose attention found least are left out
    #[arg(long, value_name = "RULE", requires = "devices", default_value = "spill")]
    pub(crate) expert_overflow: OverflowName,
    /// Of a model with experts: how they are placed. `all` is the method; `dense-only`, `naive`, `base`, `tiers` and
    /// `groups` are what it is compared with
    #[arg(long, value_name = "NAME", requires = "devices", default_value = "all")]
    pub(crate) expert_scheme: ExpertScheme,
    /// Devices attend, too, while prompts are read, in graphs of a few fixed lengths over keys and values that stay where
    /// they read them: for chunks and contexts where that is measured to be sooner done than on the cores
    #[arg(long, requires = "devices")]
    pub(crate) device_attention: bool,
    /// Fail where a device does, with nothing to stand in for it
    #[arg(long, requires = "devices")]
    pub(crate) no_fallback: bool,
}

impl DeviceArgs {
    /// These devices as they come.
    pub(crate) fn only(devices: impl Iterator<Item = DeviceName>) -> Self {
        Self {
            devices: devices.map(DeviceSpec::of).collect(),
            occupancy: Vec::new(),
            graph_memory: None,
            graph_cache: None,
            expert_overflow: OverflowName::Spill,
            expert_scheme: ExpertScheme::default(),
            device_attention: false,
            no_fallback: false,
        }
    }

    /// What happens to work that a device does not do.
    pub(crate) fn fallback(&self) -> Fallback {
        if self.no_fallback { Fallback::Never } else { Fallback::Crew }
    }

    /// The devices that are not the cores.
    pub(crate) fn accelerators(&self) -> impl Iterator<Item = &DeviceSpec> {
        self.devices.iter().filter(|spec| spec.device != DeviceName::Cpu)
    }

    /// Refuses what no model and no device makes sense of together, before either is looked for. What depends on the model
    /// (whether it has experts) or on the device (how large its graphs are) is found out later.
    pub(crate) fn check(&self) -> Result<(), BadInput> {
        let devices: Vec<&DeviceSpec> = self.accelerators().collect();
        for (index, spec) in devices.iter().enumerate() {
            spec.check()?;
            if let Some(other) = devices[..index].iter().find(|other| other.label() == spec.label()) {
                let text = format!(
                    "--device {} is given twice: leave one out, or give one a name of its own, as in `{},name=second`",
                    other.label(),
                    spec.device
                );
                return Err(BadInput(text));
            }
            let same = |other: &&&DeviceSpec| other.device.is_same(&spec.device) && other.device != spec.device;
            if let Some(other) = devices[..index].iter().find(same) {
                let (one, other) = (&other.device, &spec.device);
                return Err(BadInput(format!("--device {one} and --device {other} are one device: leave one out")));
            }
        }
        let exchanging = devices.iter().filter(|spec| spec.graph_memory.is_some()).count();
        if self.graph_memory.is_some() && (devices.len() > 1 || exchanging > 0) {
            let text = "--graph-memory is for the only device: give it to one of several as `,graph-memory=BYTES`";
            return Err(BadInput(text.to_owned()));
        }
        if exchanging > 1 {
            return Err(BadInput("graph-memory is for one device: the others need room for their graphs".to_owned()));
        }
        let mut all_fixed = devices.iter().filter(|spec| spec.shapes == Some(ShapesName::Fixed));
        let fixed = all_fixed.next();
        if let (Some(one), Some(other)) = (fixed, all_fixed.next()) {
            let text = "prompts are read on one device of fixed shapes: leave one out, or give it shapes=any";
            return Err(BadInput(format!("--device {one} and --device {other}: {text}")));
        }
        let exchanges = self.graph_memory.is_some() || fixed.is_some_and(|spec| spec.graph_memory.is_some());
        match fixed {
            Some(spec) if exchanges => Err(BadInput(format!(
                "--device {spec}: a device that exchanges its graphs (graph-memory) makes none for prompts of their own \
                 (shapes=fixed): leave one of them out"
            ))),
            Some(spec) if self.experts() != ExpertSettings::default() => Err(BadInput(format!(
                "--device {spec}: experts have groups of fixed shapes of their own: leave `shapes=fixed` out, or \
                 --expert-scheme and --expert-overflow"
            ))),
            _ => Ok(()),
        }
    }

    /// How experts are placed.
    pub(crate) fn experts(&self) -> ExpertSettings {
        let overflow = match self.expert_overflow {
            OverflowName::Spill => Overflow::Spill,
            OverflowName::Prune => Overflow::Prune,
        };
        ExpertSettings { scheme: self.expert_scheme, overflow, ..ExpertSettings::default() }
    }

    /// Who attends while prompts are read.
    pub(crate) fn attention(&self) -> AttentionPlace {
        if self.device_attention { AttentionPlace::DeviceWhereItPays } else { AttentionPlace::Cores }
    }

    /// Threads of the cores beside the devices, of which those that are made of cores have theirs.
    pub(crate) fn cores(&self, threads: Option<u16>) -> Option<u16> {
        let of_cores: Vec<&DeviceSpec> = self.accelerators().filter(|spec| spec.device.is_made_of_cores()).collect();
        if of_cores.is_empty() {
            return threads;
        }
        let all = threads.unwrap_or_else(crate::offloading::cores);
        let taken: u16 = of_cores.iter().map(|spec| spec.threads_taken()).sum();
        Some(all.saturating_sub(taken).max(1))
    }
}

fn share(text: &str) -> Result<(String, f64), String> {
    let parsed = text.split_once('=').and_then(|(lane, share)| Some((lane.to_owned(), share.parse::<f64>().ok()?)));
    let valid = parsed.filter(|(lane, share)| !lane.is_empty() && (0.01..=1.0).contains(share));
    valid.ok_or_else(|| "a lane and a share from 0.01 to 1 are wanted, as in `openvino:GPU=0.7`".to_owned())
}

/// What becomes of tokens that there is no room for, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OverflowName {
    Spill,
    Prune,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        device: DeviceArgs,
    }

    fn checked(line: &str) -> Result<(), String> {
        let words = std::iter::once("duet").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.device.check().map_err(|error| error.0)
    }

    #[test]
    fn devices_that_cannot_be_together_are_refused_with_what_would_work() {
        for line in [
            "",
            "--device cpu",
            "--device openvino:NPU --device openvino:GPU --device cpu",
            "--device openvino:CPU,shapes=fixed,threads=1 --device openvino:CPU,name=igpu",
            "--device openvino:NPU,graph-memory=1g --device openvino:GPU",
            "--device openvino:NPU,shapes=fixed --device-attention",
            "--device openvino:GPU --occupancy openvino:GPU=0.7 --occupancy cpu=0.5",
        ] {
            assert_eq!(checked(line), Ok(()), "{line}");
        }
        for (line, words) in [
            ("--device openvino:CPU --device openvino:CPU", "name=second"),
            ("--device openvino:GPU --device openvino:GPU.0", "are one device"),
            ("--device openvino:NPU --device openvino:GPU --graph-memory 1g", "graph-memory=BYTES"),
            ("--device openvino:NPU,shapes=fixed --graph-memory 1g", "leave one of them out"),
            ("--device openvino:NPU,shapes=fixed --expert-scheme naive", "shapes=fixed"),
            ("--device openvino:NPU,shapes=round", "fixed"),
            ("--device openvino:NPU,colour=red", "threads=N"),
            ("--device openvino:NPU,shapes=fixed --device openvino:GPU,shapes=fixed", "shapes=any"),
            ("--device openvino:GPU,name=cpu2", "take another"),
            ("--device cpu,threads=2", "--threads"),
            ("--device cuda:0", "duet devices"),
            ("--occupancy cpu=1.5", "from 0.01 to 1"),
            ("--graph-memory 1g", "--device"),
        ] {
            let refused = checked(line).unwrap_err();
            assert!(refused.contains(words), "{line}: {refused}");
        }
    }
}
