//! The policies that sections compare, by what they are there for.

use duet_scheduler::policy::PolicyName;

/// The paper's system and its baselines, and what is better, in the order of every plot. (Agent.xpu §6.1)
pub(crate) const COMPARED: [PolicyName; 5] =
    [PolicyName::AgentXpu, PolicyName::Duet, PolicyName::IgpuBatching, PolicyName::Serial, PolicyName::CpuBatching];

/// What the paper's reductions are against: OpenVINO's serving on the iGPU.
pub(crate) const BASELINE: PolicyName = PolicyName::IgpuBatching;

/// The two that put reactive requests first on both units.
pub(crate) const OURS: [PolicyName; 2] = [PolicyName::AgentXpu, PolicyName::Duet];
