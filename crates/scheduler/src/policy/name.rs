//! The policies by name.

use super::{AgentXpu, ContinuousBatching, Duet, Policy, Restart, Serial, Timeshare};
use std::fmt;
use std::str::FromStr;

/// A policy's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PolicyName {
    /// Our best.
    #[default]
    Duet,
    /// Agent.xpu, as the paper describes it.
    AgentXpu,
    /// Continuous batching on the dynamic lane, as OpenVINO's serving.
    IgpuBatching,
    /// Continuous batching on all CPU lanes, as llama.cpp's server.
    CpuBatching,
    /// One request after another, its work divided between the lanes once and for all.
    Serial,
    /// A reactive request throws away what runs. (Fig. 6 a)
    Restart,
    /// All requests in turns. (Fig. 6 b)
    Timeshare,
    /// Priority, on one device.
    PriorityOnly,
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl PolicyName {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Duet,
        Self::AgentXpu,
        Self::IgpuBatching,
        Self::CpuBatching,
        Self::Serial,
        Self::Restart,
        Self::Timeshare,
        Self::PriorityOnly,
    ];

    /// The policy of this name.
    #[must_use]
    pub fn policy(self) -> Box<dyn Policy> {
        match self {
            Self::Duet => Box::new(Duet::default()),
            Self::AgentXpu => Box::new(AgentXpu::default()),
            Self::IgpuBatching => Box::new(ContinuousBatching::igpu()),
            Self::CpuBatching => Box::new(ContinuousBatching::cpu()),
            Self::Serial => Box::new(Serial::default()),
            Self::Restart => Box::new(Restart),
            Self::Timeshare => Box::new(Timeshare::default()),
            Self::PriorityOnly => Box::new(ContinuousBatching::with_priority()),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Duet => "duet",
            Self::AgentXpu => "agent-xpu",
            Self::IgpuBatching => "igpu-batching",
            Self::CpuBatching => "cpu-batching",
            Self::Serial => "serial",
            Self::Restart => "restart",
            Self::Timeshare => "timeshare",
            Self::PriorityOnly => "priority-only",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|policy| policy.as_str() == name);
        known.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = PolicyName::ALL.iter().map(|policy| policy.as_str()).collect();
        write!(f, "no policy is called `{}`; there are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownPolicy {}
