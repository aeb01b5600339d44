//! OpenVINO's devices. A driver that does not answer keeps no other device from being shown.

use super::{DeviceReport, MissingRuntime, PeakReport, Runtime, SelfTestReport, ShapesReport};
use duet_openvino::{DeviceInfo, Error, Missing, Shapes};
use std::sync::mpsc::channel;
use std::time::Duration;

pub(super) fn look() -> Result<Runtime, MissingRuntime> {
    within(PATIENCE, describe).unwrap_or_else(|| {
        let why = format!("does not answer within {} s: a driver may hang", PATIENCE.as_secs());
        Err(unusable(why, Vec::new()))
    })
}

/// An NPU's driver may compile for some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `work` returns; none if that takes longer. Its thread is then left to the end of the program.
fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = channel();
    let work = move || {
        // The receiver goes when time is up.
        let _ = sender.send(work());
    };
    std::thread::Builder::new().name("duet-devices".to_owned()).spawn(work).ok()?;
    receiver.recv_timeout(patience).ok()
}

fn describe() -> Result<Runtime, MissingRuntime> {
    let runtime = duet_openvino::Runtime::load().map_err(|error| missing(&error))?;
    let devices = runtime.devices().map_err(|error| missing(&error))?;
    Ok(Runtime {
        name: NAME,
        version: runtime.version().to_owned(),
        path: runtime.path().to_owned(),
        devices: devices.into_iter().map(|info| report(&runtime, info)).collect(),
    })
}

const NAME: &str = "openvino";

fn report(runtime: &duet_openvino::Runtime, info: DeviceInfo) -> DeviceReport {
    let tested = runtime.device(&info.name).and_then(|device| duet_openvino::self_test(&device));
    let self_test = match tested {
        Ok(passed) => SelfTestReport::Passed {
            compile_ms: passed.compile.as_millis_f64(),
            inference_us: passed.inference.as_millis_f64() * 1e3,
        },
        Err(error) => SelfTestReport::Failed(error.to_string()),
    };
    let peaks = info.peaks.into_iter().map(|peak| PeakReport { format: peak.format, gops: peak.gops });
    DeviceReport {
        name: info.name,
        kind: info.kind.to_string(),
        full_name: info.full_name,
        driver: info.driver,
        memory_bytes: info.memory.map(|memory| memory.0),
        peaks: peaks.collect(),
        shapes: match info.shapes {
            Shapes::Dynamic => ShapesReport::Dynamic,
            Shapes::StaticOnly => ShapesReport::Static,
        },
        self_test,
    }
}

fn missing(error: &Error) -> MissingRuntime {
    match error {
        Error::Missing(missing) => {
            let looked = missing.looked.iter().map(ToString::to_string).collect();
            unusable("is not installed".to_owned(), looked)
        }
        other => unusable(other.to_string(), Vec::new()),
    }
}

fn unusable(why: String, looked: Vec<String>) -> MissingRuntime {
    MissingRuntime { name: NAME, why, install: Missing::command(), looked }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_openvino::VERSION;

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let (_sender, never) = channel::<()>();
        assert_eq!(within(Duration::from_millis(5), move || never.recv()), None);
        assert_eq!(within(PATIENCE, || 7), Some(7));
    }

    #[test]
    fn a_runtime_that_cannot_be_used_says_how_to_get_one_that_can() {
        let error = Error::Symbol { path: "lib.so".into(), symbol: "ov_core_create" };
        let missing = missing(&error);
        assert!(missing.why.contains("ov_core_create"), "{missing:?}");
        assert!(missing.install.contains(VERSION));
    }
}
