//! What each lane of an engine did while slices were played.

use super::sampled::PreemptMs;
use super::stage::Slice;
use super::summary::Sample;
use super::target::TargetLane;
use duet_types::Nanos;
use serde::Serialize;

/// One lane. A figure that was not measured is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneFigures {
    /// Its name.
    pub lane: String,
    /// Share of the time in which it ran kernels.
    pub busy: f64,
    /// Share of all multiply-accumulates of linear work; of several lanes of cores the first has that of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_share: Option<f64>,
    /// Kernels that it led.
    pub n: u64,
    /// How far they were from their predictions in the mean, in per cent of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prediction_error_pct: Option<f64>,
    /// From the admission of a reactive request whose first kernel it led to the launch of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_ms: Option<PreemptMs>,
    /// Joules while it worked, by its watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_j: Option<f64>,
}

/// What all lanes took, where the watts of each are known: predicted, not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PredictedEnergy {
    /// Joules of all lanes while they worked.
    pub joules: f64,
    /// Over generated tokens, of both classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub j_per_token: Option<f64>,
}

impl PredictedEnergy {
    /// Of what lanes did while so many tokens were generated; nothing if the watts of one are not known.
    pub(crate) fn of(lanes: &[LaneFigures], tokens: f64) -> Option<Self> {
        let joules = lanes.iter().map(|lane| lane.predicted_j).sum::<Option<f64>>().filter(|_| !lanes.is_empty())?;
        Some(Self { joules, j_per_token: (tokens > 0.0).then(|| joules / tokens) })
    }
}

/// All lanes of the engine that the slices were played on.
pub(crate) fn lanes(slices: &[Slice]) -> Vec<LaneFigures> {
    let samples = || slices.iter().filter_map(|slice| slice.samples.as_ref());
    let shown = slices.first().map(|slice| slice.lanes.as_slice()).unwrap_or_default();
    let wall: Nanos = samples().map(|samples| samples.wall).sum();
    let on_devices: u64 = samples().map(|samples| samples.work.on_devices()).sum();
    let by_crew: u64 = samples().map(|samples| samples.work.on_crew).sum();
    let share = |macs: u64| (on_devices + by_crew > 0).then(|| macs as f64 / (on_devices + by_crew) as f64);
    let devices = samples().map(|samples| samples.work.devices.len()).max().unwrap_or(0);
    let of_lane = |lane: usize| {
        let busy: Nanos = samples().filter_map(|samples| samples.lanes_busy.get(lane).copied()).sum();
        let errors = || samples().filter_map(|samples| samples.lanes_error.get(lane));
        let n = errors().map(|errors| errors.n).sum();
        let deviation: f64 = errors().map(|errors| errors.sum).sum();
        let macs = samples().filter_map(|samples| samples.work.devices.get(lane)).map(|device| device.macs).sum();
        let TargetLane { name, watts } = &shown[lane];
        let waits = samples().flat_map(|samples| samples.reactive_led.iter().zip(&samples.reactive_start));
        let waits = waits.filter(|(led, _)| usize::from(led.0) == lane).map(|(_, wait)| wait.as_millis_f64());
        LaneFigures {
            lane: name.clone(),
            busy: busy.as_secs_f64() / wall.as_secs_f64().max(f64::MIN_POSITIVE),
            mac_share: match lane {
                device if device < devices => share(macs),
                first if first == devices => share(by_crew),
                _ => None,
            },
            n,
            prediction_error_pct: (n > 0).then(|| 100.0 * deviation / n as f64),
            preempt_ms: PreemptMs::of_sample(&Sample::new(waits.collect())),
            predicted_j: watts.map(|watts| watts * busy.as_secs_f64()),
        }
    };
    (0..shown.len()).map(of_lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_engine::{DeviceWork, EngineSamples, LinearWork, PredictionErrors};
    use duet_types::LaneId;

    #[test]
    fn shares_are_of_all_that_was_done() {
        let work = |device: u64, crew: u64| LinearWork {
            devices: vec![DeviceWork { name: "npu".to_owned(), macs: device, refused: 0 }],
            on_crew: crew,
        };
        let slice = |device, crew, busy: u64| Slice {
            samples: Some(EngineSamples {
                wall: Nanos(100),
                lanes_busy: vec![Nanos(busy), Nanos(100)],
                lanes_error: vec![PredictionErrors { n: 2, sum: 0.5 }, PredictionErrors::default()],
                work: work(device, crew),
                reactive_start: vec![Nanos(2_000_000), Nanos(4_000_000)],
                reactive_led: vec![LaneId(0), LaneId(1)],
                ..EngineSamples::default()
            }),
            lanes: [("npu", 2e9), ("cpu1", 1e9)].map(|(name, watts)| lane(name, Some(watts))).to_vec(),
            ..Slice::default()
        };
        let [npu, cores] = &lanes(&[slice(30, 10, 50), slice(30, 30, 0)])[..] else { panic!("two lanes") };
        assert_eq!((npu.busy, npu.mac_share, npu.n, npu.prediction_error_pct), (0.25, Some(0.6), 4, Some(25.0)));
        assert_eq!((cores.busy, cores.mac_share, cores.prediction_error_pct), (1.0, Some(0.4), None));
        let first = |lane: &LaneFigures| lane.preempt_ms.as_ref().map(|waits| (waits.n, waits.max));
        assert_eq!([npu, cores].map(first), [Some((2, Some(2.0))), Some((2, Some(4.0)))]);
        assert!(lanes(&[]).is_empty());
    }

    #[test]
    fn energy_is_told_where_all_watts_are_known() {
        let busy = |watts: [Option<f64>; 2]| {
            let samples = EngineSamples { lanes_busy: vec![Nanos(500_000_000); 2], ..EngineSamples::default() };
            let shown = watts.map(|watts| lane("one", watts)).to_vec();
            lanes(&[Slice { samples: Some(samples), lanes: shown, ..Slice::default() }])
        };
        let known = busy([Some(4.0), Some(8.0)]);
        assert_eq!(PredictedEnergy::of(&known, 3.0), Some(PredictedEnergy { joules: 6.0, j_per_token: Some(2.0) }));
        assert_eq!(PredictedEnergy::of(&known, 0.0).unwrap().j_per_token, None);
        assert_eq!(PredictedEnergy::of(&busy([Some(4.0), None]), 3.0), None);
        assert_eq!(PredictedEnergy::of(&[], 3.0), None);
    }

    fn lane(name: &str, watts: Option<f64>) -> TargetLane {
        TargetLane { name: name.to_owned(), watts }
    }
}
