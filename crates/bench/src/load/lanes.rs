//! What each lane of an engine did while slices were played.

use super::stage::Slice;
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
}

/// All lanes of the engine that the slices were played on.
pub(crate) fn lanes(slices: &[Slice]) -> Vec<LaneFigures> {
    let samples = || slices.iter().filter_map(|slice| slice.samples.as_ref());
    let names = slices.first().map(|slice| slice.lanes.as_slice()).unwrap_or_default();
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
        LaneFigures {
            lane: names[lane].clone(),
            busy: busy.as_secs_f64() / wall.as_secs_f64().max(f64::MIN_POSITIVE),
            mac_share: match lane {
                device if device < devices => share(macs),
                first if first == devices => share(by_crew),
                _ => None,
            },
            n,
            prediction_error_pct: (n > 0).then(|| 100.0 * deviation / n as f64),
        }
    };
    (0..names.len()).map(of_lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_engine::{DeviceWork, EngineSamples, LinearWork, PredictionErrors};

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
                ..EngineSamples::default()
            }),
            lanes: vec!["npu".to_owned(), "cpu1".to_owned()],
            ..Slice::default()
        };
        let [npu, cores] = &lanes(&[slice(30, 10, 50), slice(30, 30, 0)])[..] else { panic!("two lanes") };
        assert_eq!((npu.busy, npu.mac_share, npu.n, npu.prediction_error_pct), (0.25, Some(0.6), 4, Some(25.0)));
        assert_eq!((cores.busy, cores.mac_share, cores.prediction_error_pct), (1.0, Some(0.4), None));
        assert!(lanes(&[]).is_empty());
    }
}
