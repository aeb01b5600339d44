//! The mixed run: the reactive trace alone, the background alone, and both, in alternating slices.
//!
//! A machine's speed drifts, so the settings take turns: every round plays each of them once, every other round in
//! reverse order. All settings of a round have the same arrivals and the same prompts.

use super::arrivals::{Arrival, Rates, Stream, poisson, slice};
use super::stage::{Slice, Stage, Timing, play};
use super::subject::Subject;
use super::workload::Workload;
use super::{LoadError, Progress};
use duet_types::Class;
use std::path::PathBuf;
use std::time::Duration;

/// The background of a mixed run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Background {
    /// It arrives at random, this many a minute (an open loop).
    Rate(f64),
    /// So many requests are always under way (a closed loop).
    InFlight(usize),
}

/// What a mixed run plays.
#[derive(Clone, Debug)]
pub struct MixedSettings {
    /// Reactive requests a minute.
    pub reactive: f64,
    /// The backgrounds to be compared; the first is the one that is also measured alone.
    pub backgrounds: Vec<Background>,
    /// Time of each setting, all rounds together.
    pub seconds: Duration,
    /// How often the settings take turns.
    pub rounds: usize,
    /// Same seed, same trace.
    pub seed: u64,
    /// Where the events of an engine's last mixed slice beside the first background are written.
    pub record: Option<PathBuf>,
}

/// The slices of each setting, round by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mixed {
    pub(crate) reactive_alone: Vec<Slice>,
    pub(crate) background_alone: Vec<Slice>,
    /// One list per background.
    pub(crate) mixed: Vec<Vec<Slice>>,
}

/// A setting of a round.
#[derive(Clone, Copy)]
enum Setting {
    ReactiveAlone,
    BackgroundAlone,
    Mixed(usize),
}

/// Plays all rounds.
pub(crate) fn run(
    subject: &Subject,
    workload: &Workload,
    settings: &MixedSettings,
    progress: Progress<'_>,
) -> Result<Mixed, LoadError> {
    let prompts = if settings.reactive > 0.0 { workload.prompts(Class::Reactive)? } else { &[] };
    let reactive = poisson(Class::Reactive, settings.reactive, settings.seconds, prompts, settings.seed);
    let mut mixed = Mixed { mixed: vec![Vec::new(); settings.backgrounds.len()], ..Mixed::default() };
    let mut order = vec![Setting::ReactiveAlone];
    order.extend((0..settings.backgrounds.len()).map(Setting::Mixed));
    order.push(Setting::BackgroundAlone);
    for round in 0..settings.rounds {
        let part = Part { settings, round };
        let reactive = slice(&reactive, settings.seconds, round, settings.rounds);
        for &setting in &order {
            progress(&format!(
                "{}, round {} of {}: {}",
                subject.name(),
                round + 1,
                settings.rounds,
                part.name(setting)
            ));
            match setting {
                Setting::ReactiveAlone => mixed.reactive_alone.push(part.play(subject, workload, &reactive, None)?),
                Setting::Mixed(index) => {
                    let background = settings.backgrounds[index];
                    let is_last = index == 0 && round + 1 == settings.rounds;
                    let recorded = subject.with(|config| {
                        if let Some(log) = settings.record.clone().filter(|_| is_last) {
                            config.event_log = Some(log);
                        }
                    });
                    mixed.mixed[index].push(part.play(&recorded, workload, &reactive, Some(background))?);
                }
                Setting::BackgroundAlone => {
                    let background = settings.backgrounds.first().copied();
                    mixed.background_alone.push(part.play(subject, workload, &[], background)?);
                }
            }
        }
        order.reverse();
    }
    Ok(mixed)
}

/// One round of the settings.
struct Part<'a> {
    settings: &'a MixedSettings,
    round: usize,
}

impl Part<'_> {
    fn name(&self, setting: Setting) -> String {
        match setting {
            Setting::ReactiveAlone => "reactive alone".to_owned(),
            Setting::BackgroundAlone => "proactive alone".to_owned(),
            Setting::Mixed(index) => match self.settings.backgrounds[index] {
                Background::Rate(rate) => format!("mixed, {rate} proactive a minute"),
                Background::InFlight(count) => format!("mixed, {count} proactive in flight"),
            },
        }
    }

    fn play(
        &self,
        subject: &Subject,
        workload: &Workload,
        reactive: &[Arrival],
        background: Option<Background>,
    ) -> Result<Slice, LoadError> {
        let rounds = u32::try_from(self.settings.rounds).unwrap_or(u32::MAX).max(1);
        let timing = Timing { warm_up: WARM_UP, window: self.settings.seconds / rounds, drain: DRAIN };
        let person = |stage: &Stage<'_>| stage.play_arrivals(reactive);
        match background {
            None => play(subject, Timing { warm_up: Duration::ZERO, ..timing }, &[&person], &[]),
            Some(Background::InFlight(count)) => {
                let prompts = workload.prompts(Class::Proactive)?;
                // Every round has other prompts; the settings of one round have the same.
                let stream = Stream::new(Class::Proactive, prompts, self.settings.seed + self.round as u64);
                play(subject, timing, &[&person], &[&|stage| stage.keep_in_flight(count, &stream)])
            }
            Some(Background::Rate(rate)) => {
                let prompts = if rate > 0.0 { workload.prompts(Class::Proactive)? } else { &[] };
                let seconds = self.settings.seconds;
                let plan = poisson(Class::Proactive, rate, seconds, prompts, self.settings.seed);
                let plan = slice(&plan, seconds, self.round, self.settings.rounds);
                let agents = |stage: &Stage<'_>| stage.play_arrivals(&plan);
                play(subject, Timing { warm_up: Duration::ZERO, ..timing }, &[&person, &agents], &[])
            }
        }
    }
}

/// One load point of an open loop: both streams arrive at random.
pub(crate) fn play_rates(
    subject: &Subject,
    workload: &Workload,
    rates: Rates,
    timing: Timing,
    seed: u64,
) -> Result<Slice, LoadError> {
    let plan = |class, a_minute| {
        let prompts = if a_minute > 0.0 { workload.prompts(class)? } else { &[] };
        Ok::<_, LoadError>(poisson(class, a_minute, timing.window, prompts, seed))
    };
    let (reactive, proactive) = (plan(Class::Reactive, rates.reactive)?, plan(Class::Proactive, rates.proactive)?);
    play(subject, timing, &[&|stage| stage.play_arrivals(&reactive), &|stage| stage.play_arrivals(&proactive)], &[])
}

/// Long enough for every request of a full background to be past its prompt.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long requests are waited for that had arrived when a window closed.
const DRAIN: Duration = Duration::from_secs(60);
