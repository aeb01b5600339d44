//! The paper's machines. (NPUMoE §5.1)

use super::targets::Target;
use duet_sim::soc::{self, SocProfile};
use duet_types::Bytes;

/// A machine of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    /// M2 Ultra, 192 GB.
    Ultra,
    /// M2 Max, 64 GB.
    Max,
}

/// A model on a machine that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) machine: Machine,
    pub(super) target: Target,
}

impl Machine {
    /// Both of them.
    pub(super) const ALL: [Self; 2] = [Self::Ultra, Self::Max];

    /// What rows call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ultra => "M2 Ultra",
            Self::Max => "M2 Max",
        }
    }

    /// Its profile.
    pub(super) fn soc(self) -> SocProfile {
        let name = match self {
            Self::Ultra => "apple-m2-ultra",
            Self::Max => "apple-m2-max",
        };
        soc::built_in().find(|soc| soc.name == name).expect("the machines' profiles come with the simulator")
    }

    /// Cores that a product runs on. (§5.1)
    pub(super) fn cores(self) -> f64 {
        match self {
            Self::Ultra => 24.0,
            Self::Max => 12.0,
        }
    }

    /// Its clusters of cores: two of performance cores and one of efficiency cores on each of one or two dies.
    pub(super) fn clusters(self) -> f64 {
        match self {
            Self::Ultra => 6.0,
            Self::Max => 3.0,
        }
    }

    /// Its memory. (§5.1)
    pub(super) fn memory(self) -> Bytes {
        match self {
            Self::Ultra => Bytes(192_000_000_000),
            Self::Max => Bytes(64_000_000_000),
        }
    }
}

impl Place {
    /// Every model on every machine whose memory holds it: all weights are resident. (§2, second scenario)
    pub(super) fn all() -> Vec<Self> {
        let pairs = Machine::ALL.into_iter().flat_map(|machine| Target::ALL.map(|target| Self { machine, target }));
        pairs.filter(|place| place.target.bytes() <= place.machine.memory()).collect()
    }

    /// What rows call it.
    pub(super) fn name(self) -> String {
        format!("{}, {}", self.machine.name(), self.target.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_cannot_hold_is_not_run_on_it() {
        let places = Place::all();
        assert!(places.contains(&Place { machine: Machine::Ultra, target: Target::PhiMoe }));
        assert!(!places.contains(&Place { machine: Machine::Max, target: Target::PhiMoe }));
        assert_eq!(places.len(), 5);
    }
}
