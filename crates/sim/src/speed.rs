//! How fast the machine is at any time, as a multiple of what it was when it was profiled.
//!
//! Cores change their clock, other programs take memory bandwidth, and take the cores themselves. The first two make
//! the anchors of a lane larger or smaller; the third stretches whatever a lane does, and a team waits for each of its
//! lanes: two that are given half of their cores each, at times that have nothing to do with each other, run side by
//! side a quarter of the time. A timeline is piecewise constant and begins with its first step: what comes before is as
//! fast as that. A kernel has the speed of the moment it is launched at: it is shorter than the steps. (Agent.xpu
//! appendix A: the anchors move)

use crate::recorded::{Beside, Probed};
use duet_driver::{LaneTime, Rates};
use duet_scheduler::machine::{Anchors, PerRow};
use duet_types::{Instant, LaneSet, Nanos};

/// Speed against the profile: 1 is as profiled, 0.5 half as fast.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Of computing.
    pub arithmetic: f64,
    /// Of reading.
    pub memory: f64,
    /// Share of their time that lanes are given, by lane; those that are not here are given all.
    pub given: Vec<f64>,
    /// Lanes of which this says nothing, which are as profiled: probes are of cores, and the thread that hands a device its
    /// work mostly sleeps, however busy the device is.
    pub devices: LaneSet,
}

/// The speed at every time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeedTimeline {
    /// From when it is what; times ascend.
    steps: Vec<(Instant, Speed)>,
}

impl Speed {
    /// As fast as the profile says.
    pub const PROFILED: Self = Self { arithmetic: 1.0, memory: 1.0, given: Vec::new(), devices: LaneSet::EMPTY };

    /// The anchors of a team at this speed; of one with a device, as profiled. What a launch costs is the operating system's,
    /// and stays.
    #[must_use]
    pub fn of(&self, lanes: LaneSet, anchors: &Anchors) -> Anchors {
        if lanes.without(self.devices) != lanes {
            return *anchors;
        }
        let given = self.given(lanes);
        Anchors {
            macs_per_s: anchors.macs_per_s * self.arithmetic * given,
            attention_macs_per_s: anchors.attention_macs_per_s * self.arithmetic * given,
            bytes_per_s: anchors.bytes_per_s * self.memory * given,
            per_row: PerRow {
                qkv: anchors.per_row.qkv / (self.arithmetic * given),
                attention: anchors.per_row.attention / (self.arithmetic * given),
            },
            ..*anchors
        }
    }

    /// Share of the time in which all of these lanes have their cores, if they have any.
    #[must_use]
    pub fn given(&self, lanes: LaneSet) -> f64 {
        lanes.without(self.devices).iter().filter_map(|lane| self.given.get(usize::from(lane.0))).product()
    }
}

impl SpeedTimeline {
    /// Speeds from these times on, in any order.
    #[must_use]
    pub fn new(mut steps: Vec<(Instant, Speed)>) -> Self {
        steps.sort_by_key(|(at, _)| *at);
        Self { steps }
    }

    /// What probes say of a machine's cores, against the `profiled` rates.
    ///
    /// A probe alone is noise, so at each one those around it count. Of the rates it is the median, of arithmetic beside
    /// any kernel, and of reading beside decode: beside nothing, and while a long prompt is read, weights have had time
    /// to leave the caches that decode finds them in. Of what the lanes were given it is the sum, from the probe before
    /// on, since that is told for the time between probes.
    #[must_use]
    pub fn of_probes(probes: &[Probed], profiled: Rates, devices: LaneSet) -> Self {
        let arithmetic = Running::new(probes, |probed| probed.beside != Beside::Nothing, |rates| rates.macs_per_s);
        let memory = Running::new(probes, |probed| probed.beside == Beside::Decode, |rates| rates.bytes_per_s);
        let mut steps = Vec::new();
        let mut since = Instant::default();
        for (index, probed) in probes.iter().enumerate() {
            let against = |now: Option<f64>, then: f64| now.map_or(1.0, |now| bounded(now / then));
            let speed = Speed {
                arithmetic: against(arithmetic.at(probed.at), profiled.macs_per_s),
                memory: against(memory.at(probed.at), profiled.bytes_per_s),
                given: given(&probes[around(index, probes.len())]),
                devices,
            };
            steps.push((since, speed));
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

/// The running median of some probes' rates.
struct Running(Vec<(Instant, f64)>);

impl Running {
    fn new(probes: &[Probed], counts: fn(&Probed) -> bool, rate: fn(&Rates) -> f64) -> Self {
        let counted = probes.iter().filter(|probed| counts(probed));
        let rates: Vec<(Instant, f64)> = counted.map(|probed| (probed.at, rate(&probed.probe.rates))).collect();
        let median = |index| {
            let mut near: Vec<f64> = rates[around(index, rates.len())].iter().map(|(_, rate)| *rate).collect();
            near.sort_by(f64::total_cmp);
            near[near.len() / 2]
        };
        Self(rates.iter().enumerate().map(|(index, (at, _))| (*at, median(index))).collect())
    }

    /// The last one at a time, or else the first.
    fn at(&self, now: Instant) -> Option<f64> {
        let after = self.0.partition_point(|(at, _)| *at <= now);
        self.0.get(after.saturating_sub(1)).map(|(_, rate)| *rate)
    }
}

/// What each lane was given of the time in which it wanted its cores; all of it, if it wanted none.
fn given(probes: &[Probed]) -> Vec<f64> {
    let lanes = probes.iter().map(|probed| probed.probe.lanes.len()).max().unwrap_or(0);
    let sum = |lane: usize, time: fn(&LaneTime) -> Nanos| {
        let times = probes.iter().filter_map(|probed| probed.probe.lanes.get(lane));
        times.map(time).sum::<Nanos>().as_secs_f64()
    };
    let share = |lane| match sum(lane, |time| time.wanted) {
        0.0 => 1.0,
        wanted => bounded(1.0 - sum(lane, |time| time.waited) / wanted),
    };
    (0..lanes).map(share).collect()
}

/// The probes around one of `count`.
fn around(index: usize, count: usize) -> std::ops::Range<usize> {
    index.saturating_sub(AROUND)..(index + AROUND + 1).min(count)
}

/// Times stay finite, whatever a file says.
fn bounded(speed: f64) -> f64 {
    speed.clamp(1.0 / SPEED_MAX, SPEED_MAX)
}

/// Probes on either side that count: half a second, shorter than the drift of machines.
const AROUND: usize = 2;
/// A machine that is further off its profile is another machine.
const SPEED_MAX: f64 = 64.0;

#[cfg(test)]
mod tests {
    use super::*;
    use duet_driver::Probe;
    use duet_types::{LaneId, Nanos};

    fn speed(both: f64) -> Speed {
        Speed { arithmetic: both, memory: both, ..Speed::PROFILED }
    }

    /// A probe beside decode, of a machine that was profiled with 100 and 10. Its lane waited for some of 100 ns.
    fn probe(at: u64, share: f64, waited: u64) -> Probed {
        let rates = Rates { macs_per_s: 100.0 * share, bytes_per_s: 10.0 * share };
        let lanes = vec![LaneTime { wanted: Nanos(100), waited: Nanos(waited) }];
        Probed { at: Instant(at), probe: Probe { rates, lanes }, beside: Beside::Decode }
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
        let probes: Vec<_> = shares.iter().zip(1..).map(|(share, at)| probe(at, *share, 0)).collect();
        let timeline = SpeedTimeline::of_probes(&probes, PROFILED, LaneSet::EMPTY);
        assert_eq!(timeline.at(Instant(2)).arithmetic, 1.0);
        assert_eq!(timeline.at(Instant(9)).arithmetic, 0.5);
        assert_eq!(timeline.at(Instant(9)).memory, 0.5);
    }

    #[test]
    fn reading_is_probed_beside_decode_and_arithmetic_beside_any_kernel() {
        let beside = |at, share, beside| Probed { beside, ..probe(at, share, 0) };
        let idle = |at| beside(at, 0.1, Beside::Nothing);
        let probes = [idle(1), probe(2, 0.75, 0), idle(3), idle(4), idle(5)];
        let timeline = SpeedTimeline::of_probes(&probes, PROFILED, LaneSet::EMPTY);
        assert!(timeline.steps().iter().all(|(_, speed)| speed.arithmetic == 0.75), "{timeline:?}");
        let probes = [beside(1, 0.5, Beside::Prefill), beside(2, 0.5, Beside::Prefill), probe(3, 0.75, 0)];
        let speed = SpeedTimeline::of_probes(&probes, PROFILED, LaneSet::EMPTY);
        assert_eq!((speed.at(Instant(1)).arithmetic, speed.at(Instant(1)).memory), (0.5, 0.75));
        assert_eq!(SpeedTimeline::of_probes(&[idle(1)], PROFILED, LaneSet::EMPTY).at(Instant(3)).arithmetic, 1.0);
    }

    #[test]
    fn what_a_lane_was_given_is_summed_over_some_probes() {
        let idle = |at| Probed {
            probe: Probe { lanes: vec![LaneTime::default()], ..probe(at, 1.0, 0).probe },
            ..probe(at, 1.0, 0)
        };
        let probes = [probe(10, 1.0, 0), probe(20, 1.0, 60), idle(30), idle(40), idle(50), idle(60)];
        let timeline = SpeedTimeline::of_probes(&probes, PROFILED, LaneSet::EMPTY);
        // The last step has only idle probes around it: nobody waits.
        for (at, expected) in [(5, 0.7), (10, 0.7), (25, 0.7), (35, 0.4), (55, 1.0)] {
            assert_eq!(timeline.at(Instant(at)).given, [expected], "at {at}");
        }
    }

    #[test]
    fn a_slower_machine_has_lower_anchors_and_the_same_launch() {
        let launch = Nanos(7);
        let anchors = Anchors {
            macs_per_s: 8.0,
            attention_macs_per_s: 4.0,
            bytes_per_s: 2.0,
            launch,
            exposed: 0.25,
            per_row: PerRow { qkv: 1.0, attention: 2.0 },
            few_rows: duet_scheduler::machine::FewRows::NONE,
        };
        let slower = Speed { arithmetic: 0.5, memory: 0.25, given: vec![1.0, 0.5], devices: LaneSet::EMPTY };
        let per_row = PerRow { qkv: 2.0, attention: 4.0 };
        let expected = Anchors { macs_per_s: 4.0, attention_macs_per_s: 2.0, bytes_per_s: 0.5, per_row, ..anchors };
        assert_eq!(slower.of(LaneSet::from_iter([LaneId(0)]), &anchors), expected);
        let per_row = PerRow { qkv: 4.0, attention: 8.0 };
        let expected = Anchors { macs_per_s: 2.0, attention_macs_per_s: 1.0, bytes_per_s: 0.25, per_row, ..anchors };
        assert_eq!(slower.of(LaneSet::first(2), &anchors), expected);
        // The first lane is a device: no probe says anything of it, nor of what the second does with it.
        let devices = LaneSet::first(1);
        let beside = Speed { devices, given: vec![0.1, 0.5], ..slower.clone() };
        assert_eq!([devices, LaneSet::first(2)].map(|lanes| beside.of(lanes, &anchors)), [anchors; 2]);
        let second = LaneSet::from_iter([LaneId(1)]);
        assert_eq!(beside.of(second, &anchors), slower.of(second, &anchors));
        assert_eq!(beside.given(LaneSet::first(2)), 0.5);
    }
}
