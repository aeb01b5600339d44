//! The lab: runs settings on all cores, each once.
//!
//! A run's figures depend on its setting and its seed alone, so what one section has run another does not run again, and
//! the report is the same whatever the threads do.

use super::jobs;
use super::outcome::Outcome;
use super::plan::Plan;
use super::setting::{Cell, Load, Setting, Size, Turns};
use super::tuning::{Regime, Tunings};
use duet_scheduler::policy::PolicyName;
use duet_sim::lengths::{Mix, proactive_mix, reactive_mix};
use duet_sim::traffic::Stream;
use duet_sim::{Figures, Flows, Simulation, SocProfile, Traffic};
use duet_types::{Nanos, Tokens};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Told what is being run now.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// Runs settings.
pub(crate) struct Lab<'a> {
    /// The machine.
    pub(crate) soc: SocProfile,
    /// How much is run.
    pub(crate) plan: Plan,
    /// How the baselines and the paper's policy are set.
    pub(crate) tunings: Tunings,
    mixes: [Mix; 2],
    threads: NonZeroUsize,
    progress: Progress<'a>,
    known: BTreeMap<Key, Arc<Figures>>,
}

/// All that a run depends on, written out: floating-point numbers are written to the last bit.
type Key = String;

/// What some settings came to, by what the section calls them.
#[derive(Debug)]
pub(crate) struct Results<K>(Vec<(K, Outcome)>);

/// A run that is not known yet.
struct Job<'a> {
    key: Key,
    setting: &'a Setting,
    seed: u64,
}

impl<'a> Lab<'a> {
    /// Of a machine.
    pub(crate) fn new(soc: SocProfile, plan: Plan, progress: Progress<'a>) -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let mixes = [reactive_mix(), proactive_mix()];
        Self { soc, plan, tunings: Tunings::default(), mixes, threads, progress, known: BTreeMap::new() }
    }

    /// A simulation of the machine, with the policy's best settings for mixed loads.
    pub(crate) fn simulation(&self, size: Size, policy: PolicyName) -> Simulation {
        self.simulation_on(&self.soc, size, policy)
    }

    /// The same of another machine.
    pub(crate) fn simulation_on(&self, soc: &SocProfile, size: Size, policy: PolicyName) -> Simulation {
        self.tunings.apply(size, Regime::Mixed, Simulation::on_soc(soc, &size.heg(), policy))
    }

    /// A simulation of the machine with the settings that the policy has by itself: the paper's.
    pub(crate) fn untuned(&self, size: Size, policy: PolicyName) -> Simulation {
        Simulation::on_soc(&self.soc, &size.heg(), policy)
    }

    /// What some cells come to.
    pub(crate) fn cells(&mut self, what: &str, cells: impl IntoIterator<Item = Cell>) -> Results<Cell> {
        let settings: Vec<(Cell, Setting)> = cells.into_iter().map(|cell| (cell, self.setting(cell))).collect();
        self.run(what, self.plan.seeds, settings)
    }

    /// What some settings come to, with `seeds` seeds each.
    pub(crate) fn run<K>(&mut self, what: &str, seeds: u64, settings: Vec<(K, Setting)>) -> Results<K> {
        let mut jobs = BTreeMap::new();
        for setting in settings.iter().map(|(_, setting)| setting) {
            for seed in 0..seeds {
                let key = key(setting, seed);
                if !self.known.contains_key(&key) {
                    jobs.insert(key.clone(), Job { key, setting, seed });
                }
            }
        }
        let jobs: Vec<Job<'_>> = jobs.into_values().collect();
        (self.progress)(&format!("{what}, {} runs", jobs.len()));
        let figures = jobs::map(&jobs, self.threads, |job| Arc::new(self.play(job.setting, job.seed)));
        let new: Vec<_> = jobs.into_iter().map(|job| job.key).zip(figures).collect();
        self.known.extend(new);
        let outcome = |setting: &Setting| {
            Outcome::new((0..seeds).map(|seed| Arc::clone(&self.known[&key(setting, seed)])).collect())
        };
        Results(settings.into_iter().map(|(name, setting)| (name, outcome(&setting))).collect())
    }

    /// A cell as it is run.
    pub(crate) fn setting(&self, cell: Cell) -> Setting {
        let simulation = self.untuned(cell.size, cell.policy);
        Setting { simulation: self.tunings.apply(cell.size, Regime::of(cell.load), simulation), load: cell.load }
    }

    fn play(&self, setting: &Setting, seed: u64) -> Figures {
        let traffic = self.traffic(setting.load, seed);
        let mut simulation = setting.simulation.clone();
        simulation.truth.seed = seed;
        let window = traffic.window;
        let clients = match setting.load.turns {
            Turns::One => traffic.clients(),
            Turns::Several => Flows { first: traffic, gaps: GAPS }.clients(),
        };
        simulation.run(clients, window)
    }

    fn traffic(&self, load: Load, seed: u64) -> Traffic {
        let [reactive, proactive] = self.mixes.clone();
        let only = load.of.data_set().and_then(|name| proactive.only(&[name.to_owned()]));
        Traffic {
            seed,
            window: self.plan.window,
            context: Tokens(self.soc.chunk.context.value as u32),
            reactive: Stream { per_minute: load.reactive, mix: reactive },
            proactive: Stream { per_minute: load.proactive, mix: only.unwrap_or(proactive) },
        }
    }
}

impl<K: PartialEq> Results<K> {
    /// What was asked for, in its order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(name, _)| name)
    }

    /// What a setting came to.
    ///
    /// # Panics
    /// If it was not asked for.
    pub(crate) fn get(&self, name: &K) -> &Outcome {
        let found = self.0.iter().find(|(known, _)| known == name);
        &found.expect("a section reads the settings that it ran").1
    }
}

/// How long a person takes from an answer to the next turn, and how long an agent's tool does, on average. An assumption.
const GAPS: [Nanos; 2] = [Nanos(15_000_000_000), Nanos(5_000_000_000)];

fn key(setting: &Setting, seed: u64) -> Key {
    format!("{:?} {:?} {seed}", setting.simulation, setting.load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn what_is_known_is_not_run_again() {
        let told = Mutex::new(Vec::new());
        let progress = |what: &str| told.lock().unwrap().push(what.to_owned());
        let plan = Plan { window: Nanos(60_000_000_000), ..Plan::quick(2) };
        let mut lab = Lab::new(duet_sim::soc::built_in().next().unwrap(), plan, &progress);
        let cell = |proactive| Cell { size: Size::Small, policy: PolicyName::Duet, load: Load::mixed(6.0, proactive) };
        let first = lab.cells("one", [cell(0.0), cell(2.0)]);
        let again = lab.cells("two", [cell(2.0), cell(4.0), cell(4.0)]);
        assert_eq!(*told.lock().unwrap(), ["one, 4 runs", "two, 2 runs"]);
        let figures = |results: &Results<Cell>| results.get(&cell(2.0)).seeds().cloned().collect::<Vec<_>>();
        assert_eq!(figures(&first), figures(&again));
        assert!(figures(&first)[0] != figures(&first)[1], "seeds differ");
    }
}
