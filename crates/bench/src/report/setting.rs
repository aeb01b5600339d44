//! What is simulated: a model, a policy and a load.

use duet_scheduler::heg::Heg;
use duet_scheduler::policy::PolicyName;
use duet_sim::{ModelShape, Simulation};
use std::fmt;

/// The models of the paper. (Agent.xpu §6.1)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    /// Llama-3.2-3B.
    Small,
    /// Llama-3.1-8B.
    Large,
}

/// How many requests a minute come, of which kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Of the reactive mix.
    pub(crate) reactive: f64,
    /// Of the proactive mix, or of one data set of it.
    pub(crate) proactive: f64,
    /// What proactive requests are of.
    pub(crate) of: ProactiveOf,
    /// Whether clients come again.
    pub(crate) turns: Turns,
}

/// How often clients come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    /// Once.
    One,
    /// Several times, with what was said: requests a minute are first turns.
    Several,
}

/// What proactive requests are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProactiveOf {
    /// All data sets, evenly.
    Mix,
    /// ProactiveBench.
    ProactiveBench,
    /// SAMSum.
    Samsum,
    /// CNN/DailyMail.
    CnnDailymail,
}

/// A model, a policy and a load, with everything else as it is in the report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    /// Which model.
    pub(crate) size: Size,
    /// Who decides.
    pub(crate) policy: PolicyName,
    /// What comes.
    pub(crate) load: Load,
}

/// A simulation and its load.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The machine, the model and the policy.
    pub(crate) simulation: Simulation,
    /// What comes.
    pub(crate) load: Load,
}

impl Size {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Its execution graph.
    pub(crate) fn heg(self) -> Heg {
        let name = match self {
            Self::Small => "llama-3.2-3b",
            Self::Large => "llama-3.1-8b",
        };
        ModelShape::named(name).expect("shapes of the paper's models come with the simulator").heg()
    }

    /// The paper's figure for this model, of the two that it gives.
    pub(crate) fn choose<T>(self, [small, large]: [T; 2]) -> T {
        match self {
            Self::Small => small,
            Self::Large => large,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.choose(["3B", "8B"]))
    }
}

impl Load {
    /// Of the mixes of both classes.
    pub(crate) const fn mixed(reactive: f64, proactive: f64) -> Self {
        Self { reactive, proactive, of: ProactiveOf::Mix, turns: Turns::One }
    }

    /// Of flows of the mixes of both classes.
    pub(crate) const fn flows(reactive: f64, proactive: f64) -> Self {
        Self { turns: Turns::Several, ..Self::mixed(reactive, proactive) }
    }

    /// Of proactive requests alone.
    pub(crate) fn only(of: ProactiveOf, proactive: f64) -> Self {
        Self { reactive: 0.0, proactive, of, turns: Turns::One }
    }

    /// The same reactive requests without the others.
    pub(crate) fn alone(self) -> Self {
        Self { proactive: 0.0, ..self }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.of, self.turns) {
            (ProactiveOf::Mix, Turns::One) => write!(f, "{} + {} a minute", self.reactive, self.proactive),
            (ProactiveOf::Mix, Turns::Several) => write!(f, "{} + {} flows a minute", self.reactive, self.proactive),
            (of, _) => write!(f, "{of}, {} a minute", self.proactive),
        }
    }
}

impl ProactiveOf {
    /// The data sets. (Agent.xpu Fig. 10)
    pub(crate) const DATA_SETS: [Self; 3] = [Self::ProactiveBench, Self::Samsum, Self::CnnDailymail];

    /// The simulator's name of the data set, if it is one.
    pub(crate) fn data_set(self) -> Option<&'static str> {
        match self {
            Self::Mix => None,
            Self::ProactiveBench => Some("proactive-bench"),
            Self::Samsum => Some("samsum"),
            Self::CnnDailymail => Some("cnn-dailymail"),
        }
    }
}

impl fmt::Display for ProactiveOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mix => "all data sets",
            Self::ProactiveBench => "ProactiveBench",
            Self::Samsum => "SAMSum",
            Self::CnnDailymail => "CNN/DailyMail",
        })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.size, self.load, self.policy)
    }
}
