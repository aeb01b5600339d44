//! Whether proactive requests end although reactive ones never do.
//!
//! Enough reactive requests are always under way to take the whole machine. A proactive request must still end within
//! `age + work / 0.05`: it waits until it is overdue, and then overdue work has a twentieth of the machine. Its work is
//! its own service time and that of the proactive requests queued before it, each measured alone.

use super::arrivals::{Arrival, Stream};
use super::job::{Ending, Job, Message, Role, Tier};
use super::prose;
use super::record::{Fate, Record};
use super::stage::{Slice, Stage, Timing, play};
use super::subject::Subject;
use super::summary::Summary;
use super::workload::Workload;
use super::{LoadError, Progress};
use duet_types::{Class, Tokens};
use serde::Serialize;
use std::time::Duration;

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Starvation {
    /// Proactive requests.
    pub(crate) n: usize,
    /// The age from which one is overdue.
    pub(crate) age_s: f64,
    /// Reactive requests that were always under way.
    pub(crate) reactive_in_flight: usize,
    /// Their number and latency meanwhile.
    pub(crate) reactive: Summary,
    /// Proactive requests that had not ended when the last bound had passed.
    pub(crate) unfinished: usize,
    /// The largest share of its bound that a request took; above 1, the bound was broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worst_ratio: Option<f64>,
    /// Latency and bound of each request, in seconds.
    pub(crate) requests: Vec<Bounded>,
}

/// A proactive request and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Bounded {
    /// How long it took; of one that did not end, how long it was waited for.
    pub(crate) latency_s: f64,
    /// How long it may take.
    pub(crate) bound_s: f64,
}

/// Plays it `rounds` times.
pub(crate) fn starvation(
    subject: &Subject,
    workload: &Workload,
    rounds: usize,
    seed: u64,
    progress: Progress<'_>,
) -> Result<Starvation, LoadError> {
    let subject = subject.with(|config| config.proactive_age = AGE);
    let mut found = Starvation { age_s: AGE.as_secs_f64(), reactive_in_flight: IN_FLIGHT, ..Starvation::default() };
    let mut slices = Vec::new();
    for round in 0..rounds {
        progress(&format!("starvation, round {} of {rounds}", round + 1));
        let plan = arrivals(&subject, seed + (round * PROACTIVE) as u64);
        let alone = service_times(&subject, &plan)?;
        let slice = overload(&subject, workload, &plan, &alone, seed + round as u64)?;
        found.requests.extend(bounds(&slice, &alone));
        found.unfinished += slice.unfinished(Class::Proactive);
        slices.push(slice);
    }
    found.n = found.requests.len();
    found.reactive = Summary::of(Class::Reactive, &slices);
    let ratios = found.requests.iter().map(|request| request.latency_s / request.bound_s);
    found.worst_ratio = ratios.max_by(f64::total_cmp);
    Ok(found)
}

fn arrivals(subject: &Subject, seed: u64) -> Vec<Arrival> {
    let arrival = |index: usize| {
        let text = format!("Summarise this log.\n{}", prose::log(subject, PROMPT, seed + index as u64));
        let messages = [Message::new(Role::User, text)].into();
        let (class, tier, ending) = (Class::Proactive, Tier::Declared, Ending::AllTokens);
        let job = Job { class, index, tier, messages, output: ANSWER, ending };
        Arrival { at: APART * index as u32, job }
    };
    (0..PROACTIVE).map(arrival).collect()
}

/// How long each takes on an idle machine, by index.
fn service_times(subject: &Subject, plan: &[Arrival]) -> Result<Vec<f64>, LoadError> {
    let one_by_one = |stage: &Stage<'_>| {
        for arrival in plan {
            let _ = stage.send(&arrival.job);
        }
    };
    let timing = Timing { warm_up: Duration::ZERO, window: Duration::ZERO, drain: ALONE_MAX };
    let slice = play(subject, timing, &[&one_by_one], &[])?;
    Ok(slice.whole(Class::Proactive).iter().map(|record| record.latency).collect())
}

fn overload(
    subject: &Subject,
    workload: &Workload,
    plan: &[Arrival],
    alone: &[f64],
    seed: u64,
) -> Result<Slice, LoadError> {
    let stream = Stream::new(Class::Reactive, workload.prompts(Class::Reactive)?, seed);
    let people = |stage: &Stage<'_>| stage.keep_in_flight(IN_FLIGHT, &stream);
    let agents = |stage: &Stage<'_>| stage.play_arrivals(plan);
    let last_bound = AGE.as_secs_f64() + alone.iter().sum::<f64>() / OVERDUE_SHARE;
    let drain = APART * PROACTIVE as u32 + Duration::from_secs_f64(last_bound) + MARGIN;
    let timing = Timing { warm_up: Duration::from_secs(1), window: Duration::ZERO, drain };
    play(subject, timing, &[&agents], &[&people])
}

/// Each proactive request's latency and what it may be, given the service times by index.
fn bounds(slice: &Slice, alone: &[f64]) -> Vec<Bounded> {
    let counted = |record: &&Record| record.class == Class::Proactive && !matches!(record.fate, Fate::Failed(_));
    let proactive: Vec<_> = slice.records.iter().filter(counted).collect();
    let queued_before = |one: &Record, other: &Record| other.index < one.index && other.end() > one.arrival;
    let bound = |one: &&Record| {
        let service = |index: usize| alone.get(index).copied();
        let before = proactive.iter().filter(|other| queued_before(one, other));
        let work: Option<f64> = before.map(|other| service(other.index)).sum();
        let bound_s = AGE.as_secs_f64() + (work? + service(one.index)?) / OVERDUE_SHARE;
        Some(Bounded { latency_s: one.latency, bound_s })
    };
    proactive.iter().filter_map(bound).collect()
}

/// Short, so that the bound is reached within a minute.
const AGE: Duration = Duration::from_secs(2);
/// Overdue work's share of the machine, at least.
const OVERDUE_SHARE: f64 = 0.05;
const PROACTIVE: usize = 6;
const APART: Duration = Duration::from_millis(500);
const PROMPT: Tokens = Tokens(250);
const ANSWER: Tokens = Tokens(12);
/// Reactive requests under way: more than any machine here serves before the next is sent.
const IN_FLIGHT: usize = 6;
/// How much longer than the last bound is waited, to see by how much it is broken.
const MARGIN: Duration = Duration::from_secs(10);
const ALONE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::summary::tests::{record, slice};

    #[test]
    fn a_bound_counts_what_is_queued_before_and_nothing_else() {
        let at = |index, arrival, latency| record(Class::Proactive, index, arrival, latency);
        // The first has ended when the third arrives; the reactive one does not count.
        let slice =
            slice(vec![at(0, 0.0, 0.8), at(1, 0.5, 3.0), at(2, 1.0, 5.0), record(Class::Reactive, 0, 0.0, 9.0)]);
        let bounds = bounds(&slice, &[0.1, 0.2, 0.3]);
        let shown: Vec<_> = bounds.iter().map(|bounded| (bounded.latency_s, bounded.bound_s.round())).collect();
        assert_eq!(shown, [(0.8, 4.0), (3.0, 8.0), (5.0, 12.0)]);
    }
}
