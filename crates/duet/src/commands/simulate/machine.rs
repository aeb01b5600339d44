//! The machine that is simulated: one that comes with duet, a file like it, or this one, as `duet profile` measured it.

use crate::bad_input::BadInput;
use crate::cli::{SimulateArgs, TuningArgs};
use duet_engine::PolicyName;
use duet_engine::profile::Profile;
use duet_scheduler::Heg;
use duet_sim::soc::{self, SocProfile};
use duet_sim::{ModelShape, Simulation, shape};
use duet_types::{Nanos, Tokens};
use std::path::Path;

/// A machine.
pub(super) enum Machine {
    /// Described by published figures.
    Soc(Box<SocProfile>),
    /// Measured.
    Measured(Box<Profile>),
}

impl Machine {
    /// Finds it.
    ///
    /// # Errors
    /// If there is none of this name, or its file is not one.
    pub(super) fn find(name: &str) -> Result<Self, BadInput> {
        let path = Path::new(name);
        let is_file = path.extension().is_some_and(|extension| extension == "toml" || extension == "json");
        if !is_file {
            let known = soc::built_in().find(|profile| profile.name == name);
            return known.map(|profile| Self::Soc(Box::new(profile))).ok_or_else(|| unknown(name));
        }
        let wrong = |problem: String| BadInput(format!("--profile {name}: {problem}"));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        if name.ends_with(".json") {
            let profile = Profile::parse(&text).map_err(wrong)?;
            return Ok(Self::Measured(Box::new(profile)));
        }
        let profile: SocProfile = text.parse().map_err(|error: soc::SocError| wrong(error.to_string()))?;
        Ok(Self::Soc(Box::new(profile)))
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Soc(profile) => &profile.name,
            Self::Measured(profile) => &profile.of.isa,
        }
    }

    /// A simulation of a model on it.
    pub(super) fn simulation(&self, heg: &Heg, policy: PolicyName, tuning: &TuningArgs) -> Simulation {
        let simulation = match self {
            Self::Soc(profile) => Simulation::on_soc(profile, heg, policy),
            Self::Measured(profile) => Simulation::on_machine(profile.machine.clone(), heg, policy),
        };
        tuned(simulation, tuning)
    }
}

/// The shape that was asked for.
pub(super) fn model(arguments: &SimulateArgs) -> Result<ModelShape, BadInput> {
    let name = arguments.model.as_str();
    ModelShape::named(name).ok_or_else(|| {
        let names: Vec<&str> = shape::SHAPES.iter().map(|shape| shape.name).collect();
        BadInput(format!("--model: no shape is called `{name}`; there are {}", names.join(", ")))
    })
}

fn unknown(name: &str) -> BadInput {
    let names: Vec<String> = soc::built_in().map(|profile| profile.name).collect();
    let names = names.join(", ");
    BadInput(format!("--profile: no machine is called `{name}`; there are {names}, and files (.toml, .json)"))
}

fn tuned(mut simulation: Simulation, tuning: &TuningArgs) -> Simulation {
    let config = &mut simulation.config;
    let limits = &mut config.limits;
    limits.chunk = tuning.chunk.map_or(limits.chunk, Tokens);
    limits.prefill_rows = limits.prefill_rows.max(limits.chunk);
    limits.batch = tuning.batch.unwrap_or(limits.batch);
    limits.batch_cap = tuning.batch_cap.unwrap_or(limits.batch_cap);
    limits.stretch = tuning.stretch.unwrap_or(limits.stretch);
    limits.age = tuning.proactive_age.map_or(limits.age, |seconds| Nanos((seconds * 1e9) as u64));
    if let Some(share) = tuning.occupancy {
        config.machine.cap_decode_lane(share);
    }
    config.mechanisms = tuning.without.iter().fold(config.mechanisms, |all, &mechanism| all.without(mechanism));
    simulation
}
