//! Who arrives when, and with what.
//!
//! A stream is a Poisson process of its own seed, and draws its prompts uniformly by another: the same seed gives the
//! same arrivals and the same prompts, whatever the other stream does and whoever serves them.

use super::job::{Ending, Job, Tier};
use super::workload::Prompt;
use duet_types::Class;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

/// A request and when it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Duration,
    pub(crate) job: Job,
}

/// Requests a minute of each stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Of requests that a person waits for.
    pub reactive: f64,
    /// Of those that nobody waits for.
    pub proactive: f64,
}

/// One stream's arrivals over `window`.
pub(crate) fn poisson(class: Class, a_minute: f64, window: Duration, prompts: &[Prompt], seed: u64) -> Vec<Arrival> {
    let mut draw = Draw::new(class, prompts, seed);
    let mut times = Rng::new(seed, purpose(class, Use::Times));
    let mut plan = Vec::new();
    let mut at = 0.0;
    if a_minute <= 0.0 {
        return plan;
    }
    loop {
        at += times.exponential() * 60.0 / a_minute;
        if at >= window.as_secs_f64() {
            return plan;
        }
        let Some(job) = draw.next() else { return plan };
        plan.push(Arrival { at: Duration::from_secs_f64(at), job });
    }
}

/// The arrivals of the `part`th of `parts` equal slices of `window`, on that slice's clock.
pub(crate) fn slice(plan: &[Arrival], window: Duration, part: usize, parts: usize) -> Vec<Arrival> {
    let length = window / u32::try_from(parts).unwrap_or(u32::MAX).max(1);
    let start = length * u32::try_from(part).unwrap_or(u32::MAX);
    let within = plan.iter().filter(|arrival| arrival.at >= start && arrival.at < start + length);
    within.map(|arrival| Arrival { at: arrival.at - start, job: arrival.job.clone() }).collect()
}

/// Jobs drawn one after another, without end. Several threads may draw: the sequence is the same, who gets which is not.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    draw: Mutex<Draw<'a>>,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(class: Class, prompts: &'a [Prompt], seed: u64) -> Self {
        Self { draw: Mutex::new(Draw::new(class, prompts, seed)) }
    }

    /// The next one; `None` only where there are no prompts.
    pub(crate) fn next(&self) -> Option<Job> {
        self.draw.lock().unwrap_or_else(PoisonError::into_inner).next()
    }
}

#[derive(Debug)]
struct Draw<'a> {
    class: Class,
    prompts: &'a [Prompt],
    rng: Rng,
    count: usize,
}

impl<'a> Draw<'a> {
    fn new(class: Class, prompts: &'a [Prompt], seed: u64) -> Self {
        Self { class, prompts, rng: Rng::new(seed, purpose(class, Use::Prompts)), count: 0 }
    }

    fn next(&mut self) -> Option<Job> {
        let prompt = self.prompts.get(self.rng.below(self.prompts.len()))?;
        let index = self.count;
        self.count += 1;
        Some(Job {
            class: self.class,
            index,
            tier: Tier::Declared,
            messages: prompt.messages.clone(),
            output: prompt.output,
            ending: Ending::AllTokens,
        })
    }
}

/// SplitMix64 (Steele, Lea and Flood): enough for arrival times, and the same for ever.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Streams of one seed and different purposes have nothing in common.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(seed ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03));
        rng.0 = rng.word();
        rng
    }

    /// A number of `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed, with a mean of 1.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// A number below `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((self.unit() * end as f64) as usize).min(end.saturating_sub(1))
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// What randomness is wanted for.
#[derive(Clone, Copy)]
enum Use {
    Times,
    Prompts,
}

fn purpose(class: Class, wanted: Use) -> u64 {
    match (class, wanted) {
        (Class::Reactive, Use::Times) => 1,
        (Class::Proactive, Use::Times) => 2,
        (Class::Reactive, Use::Prompts) => 3,
        (Class::Proactive, Use::Prompts) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::job::{Message, Role};
    use duet_types::Tokens;

    const HOUR: Duration = Duration::from_secs(3600);

    fn prompts(count: u32) -> Vec<Prompt> {
        let prompt = |index: u32| Prompt {
            messages: [Message::new(Role::User, index.to_string())].into(),
            output: Tokens(index),
        };
        (0..count).map(prompt).collect()
    }

    fn shown(plan: &[Arrival]) -> Vec<(Duration, u32)> {
        plan.iter().map(|arrival| (arrival.at, arrival.job.output.0)).collect()
    }

    #[test]
    fn arrivals_are_as_many_as_the_rate_says_and_as_irregular_as_poisson() {
        let plan = poisson(Class::Reactive, 30.0, HOUR * 10, &prompts(10), 7);
        // Three standard deviations of 18 000 arrivals are 402.
        assert!(plan.len().abs_diff(18_000) < 402, "{}", plan.len());
        let gaps: Vec<f64> = plan.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.05, "an exponential's deviation is its mean: {deviation} {mean}");
    }

    #[test]
    fn prompts_are_drawn_evenly() {
        let plan = poisson(Class::Proactive, 60.0, HOUR * 10, &prompts(10), 3);
        let mut counts = [0_usize; 10];
        plan.iter().for_each(|arrival| counts[arrival.job.output.0 as usize] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(plan.len() / 10) < plan.len() / 100), "{counts:?}");
    }

    #[test]
    fn the_same_seed_is_the_same_stream_and_another_is_not() {
        let plan = |class, seed| shown(&poisson(class, 12.0, HOUR, &prompts(10), seed));
        assert_eq!(plan(Class::Reactive, 7), plan(Class::Reactive, 7));
        assert_ne!(plan(Class::Reactive, 7), plan(Class::Reactive, 8));
        assert_ne!(plan(Class::Reactive, 7), plan(Class::Proactive, 7));
    }

    #[test]
    fn a_longer_window_begins_like_a_shorter_one() {
        let long = shown(&poisson(Class::Reactive, 12.0, HOUR, &prompts(10), 7));
        let short = shown(&poisson(Class::Reactive, 12.0, HOUR / 4, &prompts(10), 7));
        assert_eq!(long[..short.len()], short);
    }

    #[test]
    fn slices_are_the_whole_plan() {
        let plan = poisson(Class::Reactive, 12.0, HOUR, &prompts(10), 7);
        let parts: Vec<_> = (0..4).map(|part| slice(&plan, HOUR, part, 4)).collect();
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), plan.len());
        let indices: Vec<_> = parts.iter().flatten().map(|arrival| arrival.job.index).collect();
        assert_eq!(indices, (0..plan.len()).collect::<Vec<_>>());
        assert!(parts.iter().flatten().all(|arrival| arrival.at < HOUR / 4));
    }

    #[test]
    fn no_rate_is_no_arrival() {
        assert!(poisson(Class::Reactive, 0.0, HOUR, &prompts(10), 7).is_empty());
        assert!(poisson(Class::Reactive, 10.0, HOUR, &[], 7).is_empty());
    }
}
