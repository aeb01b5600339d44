//! Qualcomm's execution provider in ONNX Runtime: its files, its device, and its options.

use crate::error::{not_loaded, refused};
use crate::generation::Generation;
use duet_runtimes::{Error, QNN_PROVIDER, find};
use ort::AsPointer;
use ort::environment::Environment;
use ort::memory::DeviceType;
use ort::session::builder::SessionBuilder;
use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The provider, registered with an environment.
#[derive(Debug)]
pub(crate) struct Provider {
    /// Its library.
    pub(crate) path: PathBuf,
    /// The compiler and driver of the HTP.
    backend: PathBuf,
    /// Its version, as it says it, and how long its files are: it says the same in many releases.
    pub(crate) version: String,
}

/// Whether a HTP is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hardware {
    /// The HTP of this machine.
    Silicon,
    /// An emulator on the machine's cores.
    Emulator,
}

impl Hardware {
    /// What the provider's package holds for this machine.
    pub(crate) const HERE: Self = if cfg!(target_arch = "aarch64") { Self::Silicon } else { Self::Emulator };
}

impl Provider {
    /// Finds the provider and registers it. Takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed, [`Error::Load`] if it lacks a part or ONNX Runtime does not take it.
    pub(crate) fn register(environment: &Environment) -> Result<Self, Error> {
        let found = find(&QNN_PROVIDER)?;
        let backend = found.beside("QnnHtp");
        if !backend.exists() {
            return Err(not_loaded(&backend, "there is no such file"));
        }
        keep_stdout_clean();
        let registered = environment.register_ep_library(REGISTERED_AS, &found.path);
        registered.map_err(|error| not_loaded(&found.path, error))?;
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let said = metadata(environment, c"version").unwrap_or_else(|| "?".to_owned());
        let version = format!("{said}-{}-{}", length(&found.path), length(&backend));
        Ok(Self { path: found.path, backend, version })
    }

    /// Whether there is a device.
    pub(crate) fn has_device(&self, environment: &Environment) -> bool {
        device(environment).is_some()
    }

    /// `builder`, for sessions that run on the HTP and nowhere else.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if the provider has none here, [`Error::Refused`] if it does not take its options.
    pub(crate) fn on_htp(
        &self,
        environment: &Environment,
        builder: SessionBuilder,
        generation: Option<Generation>,
    ) -> Result<SessionBuilder, Error> {
        let no_device =
            || Error::NoDevice { runtime: QNN_PROVIDER.title, name: "HTP".to_owned(), available: "none".to_owned() };
        let device = device(environment).ok_or_else(no_device)?;
        let mut options = vec![
            ("backend_path", text(&self.backend)?),
            // Inputs and outputs are rounded by the HTP too, not by the CPU.
            ("offload_graph_io_quantization", "0".to_owned()),
            // A pass is dozens of short launches, between which the HTP would clock down. It is a vote of the session, so
            // that it lasts as long as the model is loaded, and an unknown name would only be a line in a log.
            ("htp_performance_mode", "burst".to_owned()),
        ];
        options.extend(generation.map(|generation| ("htp_arch", generation.number().to_string())));
        // An option without the provider's name before it is dropped silently.
        let options: Vec<_> =
            options.into_iter().map(|(key, value)| (format!("{REGISTERED_AS}.{key}"), value)).collect();
        let builder = builder.with_disable_cpu_fallback().map_err(|error| refused("AddSessionConfigEntry", error))?;
        builder.with_devices([device], Some(&options)).map_err(|error| refused("AppendExecutionProvider", error))
    }
}

/// What it is called in the environment from then on.
const REGISTERED_AS: &str = "QNNExecutionProvider";

/// The emulator prints a line about itself where programs print answers: C's standard output becomes its standard error.
/// Rust's is another one.
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
fn keep_stdout_clean() {
    use std::ffi::c_void;
    unsafe extern "C" {
        static mut stdout: *mut c_void;
        static stderr: *mut c_void;
    }
    // SAFETY: glibc's two streams are variables that a program may assign; both exist as long as the process. Nothing of
    // this program prints by way of C, so that nobody reads the variable meanwhile.
    unsafe { stdout = stderr };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")))]
fn keep_stdout_clean() {}

/// The provider's device: the HTP. The emulator passes for a CPU.
fn device(environment: &Environment) -> Option<ort::device::Device<'_>> {
    let of_provider = |device: &ort::device::Device<'_>| device.ep().is_ok_and(|name| name == REGISTERED_AS);
    let wanted = match Hardware::HERE {
        Hardware::Silicon => DeviceType::NPU,
        Hardware::Emulator => DeviceType::CPU,
    };
    environment.devices().filter(of_provider).find(|device| device.hardware_device().ty() == wanted)
}

/// What the provider says of itself under `key`.
fn metadata(environment: &Environment, key: &CStr) -> Option<String> {
    let device = device(environment)?;
    // SAFETY: the device is one of the environment's, which lives; its pairs live as long, and belong to it.
    let pairs = unsafe { (ort::api().EpDevice_EpMetadata)(device.ptr()) };
    if pairs.is_null() {
        return None;
    }
    // SAFETY: the pairs live, and the key outlives the call.
    let value = unsafe { (ort::api().GetKeyValue)(pairs, key.as_ptr()) };
    // SAFETY: the value is null or a text of the pairs.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
}

fn text(path: &Path) -> Result<String, Error> {
    path.to_str().map(str::to_owned).ok_or(Error::NotText { what: "the path of Qualcomm's libraries" })
}
