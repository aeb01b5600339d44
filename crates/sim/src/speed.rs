//! How fast the machine is at any time, as a multiple of what it was when it was profiled.
//!
//! Cores change their clock, other programs take memory bandwidth, and take the cores themselves. The first two make
//! the anchors of a lane larger or smaller; the third stretches whatever a lane does, and a team waits for each of its
//! lanes: two that are given half of their cores each, at times that have nothing to do with each other, run side by
//! side a quarter of the time. A timeline is piecewise constant and begins with its first step: what comes before is as
//! fast as that. A kernel has the speed of the moment it is launched at: it is shorter than the steps. (Agent.xpu
//! appendix A: the anchors move)

use crate::recorded::{Beside, Probed};
use duet_driver::Rates;
use duet_scheduler::machine::Anchors;
use duet_types::{Instant, LaneSet};

/// Speed against the profile: 1 is as profiled, 0.5 half as fast.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Of computing.
    pub arithmetic: f64,
    /// Of reading.
    pub memory: f64,
    /// Share of their time that lanes are given, by lane; those that are not here are given all.
    pub given: Vec<f64>,
}

/// The speed at every time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeedTimeline {
    /// From when it is what; times ascend.
    steps: Vec<(Instant, Speed)>,
}

impl Speed {
    /// As fast as the profile says.
    pub const PROFILED: Self = Self { arithmetic: 1.0, memory: 1.0, given: Vec::new() };

    /// The anchors of a team at this speed. What a launch costs is the operating system's, and stays.
    #[must_use]
    pub fn of(&self, lanes: LaneSet, anchors: &Anchors) -> Anchors {
        let given = self.given(lanes);
        Anchors {
            macs_per_s: anchors.macs_per_s * self.arithmetic * given,
            attention_macs_per_s: anchors.attention_macs_per_s * self.arithmetic * given,
            bytes_per_s: anchors.bytes_per_s * self.memory * given,
            ..*anchors
        }
    }

    /// Share of the time in which all of these lanes have their cores.
    #[must_use]
    pub fn given(&self, lanes: LaneSet) -> f64 {
        lanes.iter().filter_map(|lane| self.given.get(usize::from(lane.0))).product()
    }
}

impl SpeedTimeline {
    /// Speeds from these times on, in any order.
    #[must_use]
    pub fn new(mut steps: Vec<(Instant, Speed)>) -> Self {
        steps.sort_by_key(|(at, _)| *at);
        Self { steps }
    }

    /// What probes say, against the `profiled` rates.
    ///
    /// Rates are those of a moment beside kernels (beside nothing, caches have gone cold and cores asleep): at each such
    /// probe the median of those around it counts, since a single one may have met noise, until the next one. What lanes
    /// were given is told for the time since the probe before, and counts from there on; where a lane wanted nothing,
    /// what it was given last.
    #[must_use]
    pub fn of_probes(probes: &[Probed], profiled: Rates) -> Self {
        let beside: Vec<&Probed> = probes.iter().filter(|probed| probed.beside == Beside::Kernels).collect();
        let mut given: Vec<f64> = Vec::new();
        let mut steps = Vec::new();
        let (mut since, mut next) = (Instant::default(), 0);
        for probed in probes {
            given.resize(given.len().max(probed.probe.given.len()), 1.0);
            for (last, share) in given.iter_mut().zip(&probed.probe.given) {
                *last = share.map_or(*last, bounded);
            }
            next += usize::from(probed.beside == Beside::Kernels);
            let (arithmetic, memory) = around(&beside, next.saturating_sub(1), profiled);
            steps.push((since, Speed { arithmetic, memory, given: given.clone() }));
            since = probed.at;
        }
        Self::new(steps)
    }

    /// The speed at a time; as profiled if nothing is known.
    #[must_use]
    pub fn at(&self, now: Instant) -> &Speed {
        static PROFILED: Speed = Speed::PROFILED;
        let after = self.steps.partition_point(|(at, _)| *at <= now);
        self.steps.get(after.saturating_sub(1)).map_or(&PROFILED, |(_, speed)| speed)
    }

    /// The steps, by time.
    #[must_use]
    pub fn steps(&self) -> &[(Instant, Speed)] {
        &self.steps
    }
}

/// Medians of arithmetic and reading around a probe, against the `profiled` rates.
fn around(probes: &[&Probed], index: usize, profiled: Rates) -> (f64, f64) {
    let near = &probes[index.saturating_sub(AROUND)..(index + AROUND + 1).min(probes.len())];
    let median = |rate: fn(&Rates) -> f64| {
        let mut rates: Vec<f64> = near.iter().map(|probed| rate(&probed.probe.rates)).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    };
    let against = |rate: fn(&Rates) -> f64| median(rate).map_or(1.0, |now| bounded(now / rate(&profiled)));
    (against(|rates| rates.macs_per_s), against(|rates| rates.bytes_per_s))
}

/// Times stay finite, whatever a file says.
fn bounded(speed: f64) -> f64 {
    speed.clamp(1.0 / SPEED_MAX, SPEED_MAX)
}

/// Probes on either side that a rate is the median of: half a second, shorter than the drift of machines.
const AROUND: usize = 2;
/// A machine that is further off its profile is another machine.
const SPEED_MAX: f64 = 64.0;

#[cfg(test)]
mod tests {
    use super::*;
    use duet_driver::Probe;
    use duet_types::{LaneId, Nanos};

    fn speed(both: f64) -> Speed {
        Speed { arithmetic: both, memory: both, given: Vec::new() }
    }

    /// A probe of a machine that was profiled with 100 and 10, a second after the last one.
    fn probe(at: u64, share: f64, given: Option<f64>) -> Probed {
        let rates = Rates { macs_per_s: 100.0 * share, bytes_per_s: 10.0 };
        Probed { at: Instant(at), probe: Probe { rates, given: vec![given] }, beside: Beside::Kernels }
    }

    const PROFILED: Rates = Rates { macs_per_s: 100.0, bytes_per_s: 10.0 };

    #[test]
    fn a_speed_lasts_until_the_next_and_the_first_was_always() {
        let timeline = SpeedTimeline::new(vec![(Instant(20), speed(0.5)), (Instant(10), speed(2.0))]);
        for (at, expected) in [(0, 2.0), (10, 2.0), (19, 2.0), (20, 0.5), (u64::MAX, 0.5)] {
            assert_eq!(*timeline.at(Instant(at)), speed(expected), "at {at}");
        }
        assert_eq!(*SpeedTimeline::default().at(Instant(7)), Speed::PROFILED);
    }

    #[test]
    fn a_single_odd_probe_changes_nothing_and_a_lasting_change_does() {
        let shares = [1.0, 1.0, 0.1, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5];
        let probes: Vec<_> = shares.iter().zip(1..).map(|(share, at)| probe(at, *share, None)).collect();
        let timeline = SpeedTimeline::of_probes(&probes, PROFILED);
        assert_eq!(timeline.at(Instant(2)).arithmetic, 1.0);
        assert_eq!(timeline.at(Instant(9)).arithmetic, 0.5);
        assert_eq!(timeline.at(Instant(9)).memory, 1.0);
    }

    #[test]
    fn what_is_probed_beside_nothing_does_not_count() {
        let idle = |at| Probed { beside: Beside::Nothing, ..probe(at, 0.1, None) };
        let probes = [idle(1), probe(2, 0.8, None), idle(3), idle(4), idle(5)];
        let timeline = SpeedTimeline::of_probes(&probes, PROFILED);
        assert!(timeline.steps().iter().all(|(_, speed)| speed.arithmetic == 0.8), "{timeline:?}");
        assert_eq!(SpeedTimeline::of_probes(&[idle(1)], PROFILED).at(Instant(3)).arithmetic, 1.0);
    }

    #[test]
    fn what_a_lane_was_given_counts_for_the_time_before_the_probe() {
        let probes = [probe(10, 1.0, Some(1.0)), probe(20, 1.0, Some(0.5)), probe(30, 1.0, None)];
        let timeline = SpeedTimeline::of_probes(&probes, PROFILED);
        for (at, expected) in [(5, 1.0), (10, 0.5), (19, 0.5), (25, 0.5)] {
            assert_eq!(timeline.at(Instant(at)).given, [expected], "at {at}");
        }
    }

    #[test]
    fn a_slower_machine_has_lower_anchors_and_the_same_launch() {
        let launch = Nanos(7);
        let anchors = Anchors { macs_per_s: 8.0, attention_macs_per_s: 4.0, bytes_per_s: 2.0, launch, exposed: 0.25 };
        let slower = Speed { arithmetic: 0.5, memory: 0.25, given: vec![1.0, 0.5] };
        let expected = Anchors { macs_per_s: 4.0, attention_macs_per_s: 2.0, bytes_per_s: 0.5, ..anchors };
        assert_eq!(slower.of(LaneSet::from_iter([LaneId(0)]), &anchors), expected);
        let expected = Anchors { macs_per_s: 2.0, attention_macs_per_s: 1.0, bytes_per_s: 0.25, ..anchors };
        assert_eq!(slower.of(LaneSet::first(2), &anchors), expected);
    }
}
