//! What the section on sensitivity varies: constants of the profile, and what it does not say.

use super::lab::Lab;
use super::section::Entry;
use duet_sim::soc::Path;
use duet_sim::{Simulation, SocProfile};
use std::fmt;

/// What the machine is, or what of it is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Varied {
    /// As the profile says.
    Nothing,
    /// A constant at an end of its interval.
    Constant(Path, End),
    /// As many graphs for single prompts at most, whatever memory holds.
    Graphs(usize),
    /// Kernels that take up to so many per cent more or less than predicted.
    Jitter(u32),
}

/// An end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The lowest that the sources allow.
    Low,
    /// The highest.
    High,
}

/// By how much kernels may be off, in per cent, beside not at all.
pub(crate) const JITTERS: [u32; 3] = [10, 20, 30];

impl Varied {
    /// The profile as it is, then every end of every interval, then what is no constant.
    pub(crate) fn all(lab: &Lab<'_>) -> Vec<Self> {
        let uncertain = lab.soc.constants().into_iter().filter(|(_, constant)| constant.interval().is_some());
        let paths = uncertain.map(|(path, _)| path).step_by(lab.plan.constant_of);
        let ends = paths.flat_map(|path| [End::Low, End::High].map(|end| Self::Constant(path, end)));
        let graphs = [0, lab.soc.graphs.resident.value as usize].map(Self::Graphs);
        [Self::Nothing].into_iter().chain(ends).chain(graphs).chain(JITTERS.map(Self::Jitter)).collect()
    }

    /// Whether it is a constant of the profile.
    pub(crate) fn is_constant(self) -> bool {
        matches!(self, Self::Constant(..))
    }

    /// The profile with one constant at an end of its interval.
    pub(crate) fn profile(self, soc: &SocProfile) -> SocProfile {
        let Self::Constant(path, end) = self else { return soc.clone() };
        let constant = soc.constants().into_iter().find(|(known, _)| *known == path);
        let interval = constant.and_then(|(_, constant)| constant.interval());
        interval.map_or_else(|| soc.clone(), |(low, high)| soc.with(path, if end == End::Low { low } else { high }))
    }

    /// The simulation with what is no constant.
    pub(crate) fn apply(self, mut simulation: Simulation) -> Simulation {
        match self {
            Self::Nothing | Self::Constant(..) => {}
            Self::Graphs(count) => simulation.config.limits.graphs = count,
            Self::Jitter(percent) => simulation.truth.jitter = f64::from(percent) / 100.0,
        }
        simulation
    }

    /// What it is set to.
    pub(crate) fn value(self, soc: &SocProfile) -> Entry {
        match self {
            Self::Nothing => Entry::text("–"),
            Self::Constant(path, _) => {
                let changed = self.profile(soc);
                let constant = changed.constants().into_iter().find(|(known, _)| *known == path);
                constant.map_or(Entry::text("–"), |(_, constant)| Entry::text(constant.value))
            }
            Self::Graphs(count) => Entry::text(count),
            Self::Jitter(percent) => Entry::text(percent),
        }
    }
}

impl fmt::Display for Varied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("as it is"),
            Self::Constant(path, End::Low) => write!(f, "{path} low"),
            Self::Constant(path, End::High) => write!(f, "{path} high"),
            Self::Graphs(0) => f.write_str("no graphs at all"),
            Self::Graphs(_) => f.write_str("graphs, whatever memory holds"),
            Self::Jitter(percent) => write!(f, "jitter of ± {percent} %"),
        }
    }
}
