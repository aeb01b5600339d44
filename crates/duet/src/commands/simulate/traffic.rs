//! Requests of known lengths: nothing is computed but decisions.

use super::figures::{Line, page};
use super::machine::{self, Machine};
use crate::bad_input::BadInput;
use crate::cli::SimulateArgs;
use crate::failure::print;
use duet_sim::lengths::{Lengths, Mix, proactive_mix, reactive_mix};
use duet_sim::traffic::{Stream, Traffic};
use duet_types::{Class, Nanos, Tokens};
use std::time::Instant;

pub(super) fn simulate(arguments: &SimulateArgs) -> anyhow::Result<()> {
    let (machine, model) = (Machine::find(&arguments.profile)?, machine::model(arguments)?);
    let (traffic, heg) = (traffic(arguments)?, model.heg());
    let mut lines = Vec::new();
    for policy in arguments.policies() {
        let simulation = machine.simulation(&heg, policy, &arguments.tuning);
        let begun = Instant::now();
        let figures = simulation.run(traffic.clients(), traffic.window);
        let wall = begun.elapsed();
        lines.push(Line::new(policy, machine.name(), model.name, &figures, traffic.window, wall));
    }
    if !arguments.json {
        return print(&page(&lines));
    }
    lines.iter().try_for_each(|line| print(&(serde_json::to_string(line)? + "\n")))
}

fn traffic(arguments: &SimulateArgs) -> Result<Traffic, BadInput> {
    let [reactive, proactive] = mixes(arguments)?;
    Ok(Traffic {
        seed: arguments.seed,
        window: Nanos((arguments.minutes * 60e9) as u64),
        context: CONTEXT,
        reactive: stream(arguments.reactive, reactive, Class::Reactive)?,
        proactive: stream(arguments.proactive, proactive, Class::Proactive)?,
    })
}

/// Longest context, the paper's.
const CONTEXT: Tokens = Tokens(4096);

fn stream(per_minute: f64, mix: Option<Mix>, class: Class) -> Result<Stream, BadInput> {
    let name = if class == Class::Reactive { "reactive" } else { "proactive" };
    match mix {
        Some(mix) => Ok(Stream { per_minute, mix }),
        // A stream of nothing needs no lengths.
        None if per_minute == 0.0 && class == Class::Reactive => Ok(Stream { per_minute, mix: reactive_mix() }),
        None if per_minute == 0.0 => Ok(Stream { per_minute, mix: proactive_mix() }),
        None => Err(BadInput(format!("--{name} {per_minute}: no data set that was chosen is {name}; use --{name} 0"))),
    }
}

/// The lengths of both classes, if there are any.
fn mixes(arguments: &SimulateArgs) -> Result<[Option<Mix>; 2], BadInput> {
    let classes = [Class::Reactive, Class::Proactive];
    let Some(path) = &arguments.lengths else {
        let mixes = [reactive_mix(), proactive_mix()];
        return chosen(mixes.map(Some), &arguments.data_set);
    };
    let wrong = |problem: String| BadInput(format!("--lengths {}: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let lengths: Lengths = text.parse().map_err(|error: duet_sim::lengths::LengthsError| wrong(error.to_string()))?;
    chosen(classes.map(|class| lengths.mix(class).ok()), &arguments.data_set)
}

/// Only the data sets of these names, or all without names.
fn chosen(mixes: [Option<Mix>; 2], names: &[String]) -> Result<[Option<Mix>; 2], BadInput> {
    if names.is_empty() {
        return Ok(mixes);
    }
    let all: Vec<_> = mixes.iter().flatten().flat_map(|mix| mix.data_sets()).map(|data_set| data_set.name()).collect();
    if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(BadInput(format!("--data-set: none is called `{unknown}`; there are {}", all.join(", "))));
    }
    Ok(mixes.map(|mix| mix.and_then(|mix| mix.only(names))))
}
