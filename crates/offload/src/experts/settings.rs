//! How a model's experts are placed: the paper's method, what it is compared with, and what it is made of. (NPUMoE §5.1,
//! §5.8)

use duet_moe::{Overflow, Provision};
use duet_types::{Bytes, Tokens};
use std::fmt;
use std::str::FromStr;

/// A way to place experts on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpertScheme {
    /// No experts: only what a dense model has, too. (ANEMLL-like)
    DenseOnly,
    /// A graph for each expert, all of one capacity that the busiest one needs, all on the device.
    Naive,
    /// A graph for each expert, all of the base capacity.
    Base,
    /// Calibrated tiers, a graph for each expert. (T)
    Tiers,
    /// The same in groups. (TG)
    Groups,
    /// And only groups that save time are on the device, as traffic goes.
    #[default]
    All,
}

/// How experts are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertSettings {
    /// By which scheme.
    pub scheme: ExpertScheme,
    /// What becomes of rows that an expert has no room for.
    pub overflow: Overflow,
    /// Rows that capacities are for.
    pub chunk: Tokens,
    /// Experts of a group at most, where there are groups.
    pub group_max: usize,
    /// Tiers of a layer at most, where there are tiers.
    pub tiers_max: usize,
    /// Where there are tiers, an expert has room for its expected load times this.
    pub headroom: f64,
    /// What graphs of experts may take on the device.
    pub memory: Bytes,
    /// Threads of the crew: how long they take for experts together is measured.
    pub threads: usize,
}

/// How much a row would be missed by an expert that has no room for it: the least are pruned first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saliency {
    /// How long its attention output is: the paper's. (NPUMoE §3.2)
    AttentionNorm,
    /// What the router gives to the expert, which is what its result is multiplied by.
    RouterWeight,
}

/// Which of a layer's groups are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Launched {
    /// All that have a row.
    All,
    /// Those whose rows of the chunk amortise it.
    IfWorthIt,
}

impl Default for ExpertSettings {
    fn default() -> Self {
        Self {
            scheme: ExpertScheme::All,
            overflow: Overflow::Spill,
            chunk: Tokens(256),
            group_max: 8,
            tiers_max: 2,
            headroom: 1.25,
            memory: Bytes(u64::MAX),
            threads: 1,
        }
    }
}

impl ExpertSettings {
    /// Capacities; none where no expert is on the device.
    pub(super) fn provision(&self) -> Option<Provision> {
        match self.scheme {
            ExpertScheme::DenseOnly => None,
            ExpertScheme::Base => Some(Provision::Uniform),
            ExpertScheme::Naive => Some(Provision::Calibrated { tiers_max: 1, headroom: self.headroom }),
            ExpertScheme::Tiers | ExpertScheme::Groups | ExpertScheme::All => {
                Some(Provision::Calibrated { tiers_max: self.tiers_max, headroom: self.headroom })
            }
        }
    }

    /// By what rows are pruned, if they are.
    pub(super) fn saliency(&self) -> Option<Saliency> {
        (self.overflow == Overflow::Prune).then_some(Saliency::AttentionNorm)
    }

    /// Experts of a graph at most.
    pub(super) fn group_size(&self) -> usize {
        match self.scheme {
            ExpertScheme::DenseOnly | ExpertScheme::Naive | ExpertScheme::Base | ExpertScheme::Tiers => 1,
            ExpertScheme::Groups | ExpertScheme::All => self.group_max.max(1),
        }
    }

    pub(super) fn launched(&self) -> Launched {
        if self.scheme == ExpertScheme::All { Launched::IfWorthIt } else { Launched::All }
    }
}

impl ExpertScheme {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::DenseOnly, Self::Naive, Self::Base, Self::Tiers, Self::Groups, Self::All];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DenseOnly => "dense-only",
            Self::Naive => "naive",
            Self::Base => "base",
            Self::Tiers => "tiers",
            Self::Groups => "groups",
            Self::All => "all",
        }
    }
}

impl fmt::Display for ExpertScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ExpertScheme {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| format!("there is no scheme `{name}`; there are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_found_by_their_names() {
        for scheme in ExpertScheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
        }
        assert!("tier".parse::<ExpertScheme>().unwrap_err().contains("dense-only, naive, base, tiers, groups, all"));
    }
}
