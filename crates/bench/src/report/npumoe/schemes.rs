//! The paper's system, its baselines and its ablation: who computes attention, and on which plan experts are. (NPUMoE §5.1,
//! §5.8)

use super::assumptions::{Assumptions, CpuExperts};
use super::costs::Unit;
use super::plans::Plan;

/// A way to read a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// "Core ML (CPU)": everything on the CPU.
    Cpu,
    /// "CoreML (naïve)": a graph for each expert, where Core ML puts it; attention stays on the CPU.
    Naive,
    /// ANEMLL: attention on the NPU, experts on the CPU.
    DenseOnly,
    /// Attention on the NPU, a graph for each expert, one capacity.
    Base,
    /// And capacities in tiers.
    Tiers,
    /// And experts in groups.
    Groups,
    /// And cold groups on the CPU: the paper's system.
    All,
    /// The same without dropping: what has no room is computed on the CPU. And answers are decoded there.
    Duet,
    /// Everything on the GPU.
    Gpu,
}

/// Where experts of a plan's groups are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Groups {
    /// On the NPU.
    Npu,
    /// On the NPU, where launches are at least this share of the time, but for a share that falls back to the CPU.
    Naive { dispatch: f64, fallback: f64 },
    /// On the CPU, with their padding.
    Cpu,
}

impl Scheme {
    /// All of them.
    pub(super) const ALL: [Self; 9] = [
        Self::Cpu,
        Self::Naive,
        Self::DenseOnly,
        Self::Base,
        Self::Tiers,
        Self::Groups,
        Self::All,
        Self::Duet,
        Self::Gpu,
    ];
    /// What the paper compares its system with.
    pub(super) const BASELINES: [Self; 3] = [Self::Cpu, Self::Naive, Self::DenseOnly];

    /// What rows call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Naive => "naïve",
            Self::DenseOnly => "dense-only",
            Self::Base => "base",
            Self::Tiers => "T",
            Self::Groups => "TG",
            Self::All => "all",
            Self::Duet => "duet",
            Self::Gpu => "GPU",
        }
    }

    /// Who computes attention and the projections around it.
    pub(super) fn attention(self) -> Unit {
        match self {
            // "Large dimension tensors in attention" fall back where nobody has made graphs that do not. (§1)
            Self::Cpu | Self::Naive => Unit::Cpu,
            Self::Gpu => Unit::Gpu,
            _ => Unit::Npu,
        }
    }

    /// On which plan experts are.
    pub(super) fn plan(self, assumptions: &Assumptions) -> Plan {
        match self {
            Self::Cpu | Self::DenseOnly => match assumptions.cpu_experts {
                CpuExperts::Rows => Plan::OnCpu,
                CpuExperts::Slots => Plan::Single(assumptions.room),
            },
            Self::Gpu => Plan::OnCpu,
            Self::Naive | Self::Base => Plan::Single(assumptions.room),
            Self::Tiers => Plan::Tiers,
            Self::Groups => Plan::Groups,
            Self::All => Plan::Resident,
            Self::Duet => Plan::Exact,
        }
    }

    /// Where groups are computed.
    pub(super) fn groups(self, assumptions: &Assumptions) -> Groups {
        match self {
            Self::Cpu | Self::DenseOnly => Groups::Cpu,
            Self::Naive => Groups::Naive { dispatch: assumptions.naive_dispatch, fallback: assumptions.naive_fallback },
            _ => Groups::Npu,
        }
    }

    /// Which scheme an answer is decoded by: the paper's prototype decodes by the pipeline that it reads prompts with (§5.8).
    pub(super) fn decodes_by(self) -> Self {
        if self == Self::Duet { Self::Cpu } else { self }
    }
}
