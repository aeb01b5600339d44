//! Devices of runtimes that are found at run time. A driver that does not answer keeps no other device from being shown.

use super::{DeviceReport, MissingRuntime, PeakReport, Runtime, SelfTestReport, ShapesReport};
use crate::offloading::cores;
use duet_openvino::{Activations, CompileOptions};
use duet_runtimes::{Error, GraphDevice, OPENVINO, Package, RowRule, self_test};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Each runtime that duet knows, or why it cannot be used.
pub(super) fn look() -> Vec<Result<Runtime, MissingRuntime>> {
    let known = [
        Known { name: "openvino", package: &OPENVINO, describe: openvino },
        #[cfg(feature = "qnn")]
        Known { name: "qnn", package: &duet_runtimes::ONNX_RUNTIME, describe: qnn },
    ];
    known.map(Known::look).into()
}

/// A runtime that duet knows.
#[derive(Clone, Copy)]
struct Known {
    name: &'static str,
    /// What brings it.
    package: &'static Package,
    describe: fn(&'static str) -> Result<Runtime, Error>,
}

impl Known {
    fn look(self) -> Result<Runtime, MissingRuntime> {
        match within(PATIENCE, move || (self.describe)(self.name)) {
            Some(described) => described.map_err(|error| self.missing(&error)),
            None => {
                let why = format!("does not answer within {} s: a driver may hang", PATIENCE.as_secs());
                Err(self.unusable(why, Vec::new()))
            }
        }
    }

    fn missing(self, error: &Error) -> MissingRuntime {
        match error {
            Error::Missing(missing) => {
                let looked = missing.looked.iter().map(ToString::to_string).collect();
                self.unusable(format!("{} is not installed", missing.package.title), looked)
            }
            other => self.unusable(other.to_string(), Vec::new()),
        }
    }

    fn unusable(self, why: String, looked: Vec<String>) -> MissingRuntime {
        MissingRuntime { name: self.name, why, install: self.package.command(), looked }
    }
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

fn openvino(name: &'static str) -> Result<Runtime, Error> {
    let runtime = duet_openvino::Runtime::load()?;
    // Set as serving sets them: a device that takes no work that way is no device.
    let options = CompileOptions::of_blocks(cores(), Activations::ROUNDED);
    let devices = runtime.devices()?.into_iter().map(|device| report(&device.with_options(options))).collect();
    Ok(Runtime { name, version: runtime.version().to_owned(), path: runtime.path().to_owned(), devices })
}

#[cfg(feature = "qnn")]
fn qnn(name: &'static str) -> Result<Runtime, Error> {
    let runtime = duet_qnn::Runtime::load()?;
    let devices = runtime.devices().iter().map(|device| report(device)).collect();
    Ok(Runtime { name, version: runtime.version(), path: runtime.path().to_owned(), devices })
}

fn report(device: &dyn GraphDevice) -> DeviceReport {
    let info = device.info().clone();
    let self_test = match self_test(device) {
        Ok(passed) => SelfTestReport::Passed {
            compile_ms: passed.compile.as_millis_f64(),
            inference_us: passed.inference.as_millis_f64() * 1e3,
            off_percent: 100.0 * passed.off,
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
        settings: device.settings(),
        shapes: match device.rules().rows {
            RowRule::Any => ShapesReport::Dynamic,
            RowRule::StaticMultipleOf(_) => ShapesReport::Static,
        },
        self_test,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let (_sender, never) = channel::<()>();
        assert_eq!(within(Duration::from_millis(5), move || never.recv()), None);
        assert_eq!(within(PATIENCE, || 7), Some(7));
    }

    #[test]
    fn a_runtime_that_cannot_be_used_says_how_to_get_one_that_can() {
        let known = Known { name: "openvino", package: &OPENVINO, describe: openvino };
        let path = "lib.so".into();
        let error = Error::Symbol { path, symbol: "ov_core_create", requirements: OPENVINO.requirements };
        let missing = known.missing(&error);
        assert!(missing.why.contains("ov_core_create"), "{missing:?}");
        assert!(missing.install.contains(OPENVINO.requirements));
    }
}
