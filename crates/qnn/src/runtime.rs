//! The runtime: ONNX Runtime loaded, with Qualcomm's provider.
//!
//! ONNX Runtime has one environment for a process, so there is one runtime. It is never unloaded: its threads outlive
//! what they were started for.

use crate::device::Device;
use crate::error::{not_loaded, refused};
use crate::provider::Provider;
use duet_runtimes::{Error, ONNX_RUNTIME, find};
use ort::environment::Environment;
use ort::logging::{LogLevel, LoggerFunction};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// ONNX Runtime with Qualcomm's provider. Clones share it; it may be used by several threads at once.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    environment: Environment,
    provider: Provider,
    path: PathBuf,
    version: String,
}

/// What was loaded so far: parts that were found stay loaded when others are missing.
static LOADED: Mutex<Loaded> = Mutex::new(Loaded { environment: None, runtime: None });

struct Loaded {
    environment: Option<(Environment, PathBuf)>,
    runtime: Option<Runtime>,
}

impl Runtime {
    /// Finds the runtime and loads it. The first time this takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::Missing`] if a part is not installed, [`Error::Load`] if what is installed cannot be used.
    pub fn load() -> Result<Self, Error> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &loaded.runtime {
            return Ok(runtime.clone());
        }
        let (environment, path) = match &loaded.environment {
            Some(before) => before.clone(),
            None => loaded.environment.insert(environment()?).clone(),
        };
        let provider = Provider::register(&environment)?;
        let version = version(&path);
        let runtime = Self { inner: Arc::new(Inner { environment, provider, path, version }) };
        Ok(loaded.runtime.insert(runtime).clone())
    }

    /// The versions of ONNX Runtime and of the provider: `1.31.1-6af1a93, QNN 0.1.0-…`.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{}, QNN {}", self.inner.version, self.provider().version)
    }

    /// The file that the provider was loaded from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.provider().path
    }

    /// The file that ONNX Runtime was loaded from.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.inner.path
    }

    /// The devices that there are: the HTP, or none.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let device = self.provider().has_device(self.environment()).then(|| self.device("HTP"));
        device.and_then(Result::ok).into_iter().collect()
    }

    /// The device called `name`: `HTP`, or `HTP.v79` for graphs of another generation than the provider chooses itself.
    ///
    /// # Errors
    /// [`Error::NoDevice`] with the names there are.
    pub fn device(&self, name: &str) -> Result<Device, Error> {
        Device::new(self.clone(), name)
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.inner.environment
    }

    pub(crate) fn provider(&self) -> &Provider {
        &self.inner.provider
    }
}

fn environment() -> Result<(Environment, PathBuf), Error> {
    let path = find(&ONNX_RUNTIME)?.path;
    let builder = ort::init_from(&path).map_err(|error| not_loaded(&path, error))?;
    // What it refuses comes back as an error with the same words; the rest is of no use to anybody here.
    let silence: LoggerFunction = Arc::new(|_, _, _, _, _| ());
    let environment = builder.with_name("duet").with_telemetry(false).with_logger(silence).build();
    let environment = environment.map_err(|error| refused("CreateEnv", error))?;
    environment.set_log_level(LogLevel::Fatal);
    Ok((environment, path))
}

/// The version, which the names of the package's files end in, and the commit that it was built of: `ORT Build Info:
/// git-branch=…, git-commit-id=6af1a93, …`.
fn version(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = name.split_once(|letter: char| letter.is_ascii_digit()).map(|(before, _)| &name[before.len()..]);
    let commit = ort::info().split([' ', ',']).find_map(|word: &str| word.strip_prefix("git-commit-id="));
    [number, commit].into_iter().flatten().collect::<Vec<_>>().join("-")
}
