//! The devices of a person who names none: those that work, and that pay.
//!
//! A device works if it passes its self-test with serving's options; one that is made of the cores is left out, since they
//! are there already. Whether it pays is measured with the model, like everything else, and what does not is kept in a file,
//! so that the next start compiles nothing for it. Another model, or another version of the device, is tried again.

use super::{DeviceName, DeviceSpec, identity, opened};
use duet_files::write_whole;
use duet_model::Model;
use duet_openvino::{Activations, CompileOptions};
use duet_runtimes::{GraphDevice, self_test};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A look for the devices that work, which goes on while a model is loaded: Python may have to be asked where their software
/// is, and each device is tried.
#[derive(Debug)]
pub(crate) struct Looking(Option<Receiver<DeviceName>>);

impl Looking {
    /// Begins to look.
    pub(crate) fn begin() -> Self {
        Self(begin())
    }

    /// Of who wants none.
    pub(crate) fn for_none() -> Self {
        Self(None)
    }

    /// The devices that work. One that does not answer soon keeps nobody waiting for the others: it is left out.
    pub(crate) fn finish(self) -> Vec<DeviceSpec> {
        let Some(found) = self.0 else { return Vec::new() };
        let until = Instant::now() + PATIENCE;
        let next = || found.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).map(DeviceSpec::of).collect()
    }
}

fn begin() -> Option<Receiver<DeviceName>> {
    let (sender, receiver) = channel();
    let look = move || {
        let found = openvino().into_iter();
        #[cfg(feature = "qnn")]
        let found = found.chain(qnn());
        #[cfg(feature = "gpu")]
        let found = found.chain(super::gpu::working().into_iter().map(DeviceName::Gpu));
        for name in found {
            // The receiver goes when time is up.
            let _ = sender.send(name);
        }
    };
    std::thread::Builder::new().name("duet-devices".to_owned()).spawn(look).ok().map(|_| receiver)
}

/// Where Linux shows NPUs, GPUs, and what a Windows beside it lends. Without any of them OpenVINO has the cores alone, and to
/// find OpenVINO takes as long as some models take to load.
const DRIVERS: [&str; 3] = ["/dev/accel", "/dev/dri", "/dev/dxg"];

/// A driver that hangs is not worth more of a start.
const PATIENCE: Duration = Duration::from_secs(15);

fn openvino() -> Vec<DeviceName> {
    if cfg!(target_os = "linux") && !DRIVERS.iter().any(|driver| Path::new(driver).exists()) {
        return Vec::new();
    }
    let Ok(runtime) = duet_openvino::Runtime::load() else { return Vec::new() };
    let options = CompileOptions::of_blocks(super::cores(), Activations::ROUNDED);
    let devices = runtime.devices().unwrap_or_default().into_iter();
    let named = devices.map(|device| (DeviceName::OpenVino(device.info().name.clone()), device));
    named
        .filter(|(name, _)| !name.is_made_of_cores())
        .filter(|(name, device)| passes(name, &device.clone().with_options(options)))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(feature = "qnn")]
fn qnn() -> Vec<DeviceName> {
    let name = DeviceName::Qnn("HTP".to_owned());
    if name.is_made_of_cores() {
        return Vec::new();
    }
    let device = duet_qnn::Runtime::load().and_then(|runtime| runtime.device("HTP"));
    device.ok().filter(|device| passes(&name, device)).map(|_| name).into_iter().collect()
}

fn passes(name: &DeviceName, device: &dyn GraphDevice) -> bool {
    let tried = self_test(device);
    if let Err(error) = &tried {
        tracing::warn!(device = %name, %error, "a device is left out: it fails its self-test");
    }
    tried.is_ok()
}

/// What was measured to be no gain, by model and device.
#[derive(Debug, Default)]
pub(crate) struct Unpaying {
    /// Absent where nothing can be kept.
    path: Option<PathBuf>,
    known: Vec<Verdict>,
}

/// A device that is no gain to a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Verdict {
    model: String,
    weight_bytes: u64,
    device: String,
    version: String,
}

impl Unpaying {
    /// What is known, of the file in a folder.
    pub(crate) fn read(folder: Option<PathBuf>) -> Self {
        let path = folder.map(|folder| folder.join("unpaying.json"));
        // A file that is none costs a measurement.
        let text = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let known = text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        Self { path, known }
    }

    /// The devices that this model has not yet been measured to have no use for.
    pub(crate) fn without(&self, model: &Model, specs: Vec<DeviceSpec>) -> Vec<DeviceSpec> {
        let is_known = |spec: &DeviceSpec| verdict(model, spec).is_some_and(|verdict| self.known.contains(&verdict));
        specs.into_iter().filter(|spec| !is_known(spec)).collect()
    }

    /// Keeps that these devices are no gain to the model.
    pub(crate) fn add(&mut self, model: &Model, specs: &[DeviceSpec]) {
        self.known.extend(specs.iter().filter_map(|spec| verdict(model, spec)));
        let excess = self.known.len().saturating_sub(KNOWN_MAX);
        self.known.drain(..excess);
        let text = serde_json::to_string_pretty(&self.known).unwrap_or_default();
        if let Some(Err(error)) = self.path.as_ref().map(|path| write_whole(path, &text)) {
            // Only the next start is slower.
            tracing::warn!("what devices are worth could not be saved: {error}");
        }
    }
}

/// Of more models and devices than anyone has, the oldest are measured again.
const KNOWN_MAX: usize = 1000;

fn verdict(model: &Model, spec: &DeviceSpec) -> Option<Verdict> {
    let (name, weight_bytes) = (model.config().name.clone(), model.weight_bytes().0);
    Some(Verdict { model: name, weight_bytes, device: spec.label(), version: version(spec)? })
}

/// The device's driver, compiler and settings; nothing if it does not open.
fn version(spec: &DeviceSpec) -> Option<String> {
    #[cfg(feature = "gpu")]
    if let DeviceName::Gpu(name) = &spec.device {
        return super::gpu::identity(name).ok();
    }
    let threads = spec.threads_given().unwrap_or_else(super::cores);
    let device = opened(&spec.device, threads, Activations::ROUNDED).ok()?;
    Some(identity(&*device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_model::LoadOptions;

    fn model() -> Model {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf"));
        Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap()
    }

    #[test]
    fn devices_of_cores_are_nobody_s_default() {
        assert!(Looking::begin().finish().iter().all(|spec| !spec.device.is_made_of_cores()));
    }

    #[test]
    fn what_does_not_pay_is_not_tried_again() {
        if duet_testing::loaded(duet_openvino::Runtime::load()).is_none() {
            return;
        }
        let (model, folder) = (model(), tempfile::tempdir().unwrap());
        let specs: Vec<DeviceSpec> = ["openvino:CPU,threads=1,name=one", "openvino:CPU,threads=1,name=two"]
            .map(|text| text.parse().unwrap())
            .into();
        let read = || Unpaying::read(Some(folder.path().to_owned()));
        assert_eq!(read().without(&model, specs.clone()), specs);
        read().add(&model, &specs[..1]);
        assert_eq!(read().without(&model, specs.clone()), specs[1..]);
        std::fs::write(folder.path().join("unpaying.json"), "{").unwrap();
        assert_eq!(read().without(&model, specs.clone()), specs, "a damaged file costs a measurement");
    }
}
