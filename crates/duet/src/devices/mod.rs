//! The devices of this machine: what each is, what it can run, and whether it computes what it should.

#[cfg(feature = "gpu")]
mod gpus;
mod lanes;
mod runtimes;

#[cfg(feature = "gpu")]
pub(crate) use gpus::{GpuReport, Gpus, KeysAndValues, Use};

use duet_kernels::isa::IsaError;
use serde::Serialize;
use std::path::PathBuf;

/// Everything that was found, and what was not.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    /// The CPU lanes of duet itself: always there, with nothing to install.
    pub(crate) lanes: Lanes,
    /// GPUs, for duet's own kernels.
    #[cfg(feature = "gpu")]
    pub(crate) gpus: Gpus,
    /// The runtimes that were found.
    pub(crate) runtimes: Vec<Runtime>,
    /// Those that were not, or that cannot be used.
    pub(crate) missing: Vec<MissingRuntime>,
}

/// The cores as duet's own kernels use them.
#[derive(Debug, Serialize)]
pub(crate) struct Lanes {
    /// The processor's name; absent where the system does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) full_name: Option<String>,
    /// Cores that this process may use.
    pub(crate) cores: usize,
    /// The instruction set of the kernels.
    pub(crate) isa: String,
    /// The machine's memory; absent where the system does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
    /// What all cores multiply and add from registers, measured just now: 10⁹ a second.
    pub(crate) int8_gmacs: f64,
    /// What all cores read from memory, measured just now: 10⁹ bytes a second.
    pub(crate) read_gbs: f64,
    /// The shapes that they run.
    pub(crate) shapes: ShapesReport,
}

/// A runtime and its devices.
#[derive(Debug, Serialize)]
pub(crate) struct Runtime {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Its version, as it says it.
    pub(crate) version: String,
    /// The library that was loaded.
    pub(crate) path: PathBuf,
    /// Its devices.
    pub(crate) devices: Vec<DeviceReport>,
}

/// A device of a runtime. What its driver does not know is absent.
#[derive(Debug, Serialize)]
pub(crate) struct DeviceReport {
    /// What the runtime calls it.
    pub(crate) name: String,
    /// The sort of device.
    pub(crate) kind: String,
    /// Its maker's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) full_name: Option<String>,
    /// Its driver's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver: Option<String>,
    /// The memory that it can use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
    /// What its maker says it computes at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) peaks: Vec<PeakReport>,
    /// The shapes that it runs.
    pub(crate) shapes: ShapesReport,
    /// How graphs are compiled for it: what it takes of what serving wants.
    pub(crate) settings: String,
    /// How the self-test went, with these settings.
    pub(crate) self_test: SelfTestReport,
}

/// A peak in one number format.
#[derive(Debug, Serialize)]
pub(crate) struct PeakReport {
    /// The format, as the runtime calls it.
    pub(crate) format: String,
    /// 10⁹ operations a second.
    pub(crate) gops: f64,
}

/// The shapes that a device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ShapesReport {
    /// Any number of rows.
    Dynamic,
    /// The rows that a graph was compiled for.
    Static,
}

/// How a self-test went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SelfTestReport {
    /// The result was right.
    Passed {
        /// How long compiling took.
        compile_ms: f64,
        /// How long an inference took.
        inference_us: f64,
        /// How far its results were from the reference interpreter's.
        off_percent: f64,
    },
    /// There was none, or it was wrong: why.
    Failed(String),
}

/// A runtime that cannot be used.
#[derive(Debug, Serialize)]
pub(crate) struct MissingRuntime {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Why not.
    pub(crate) why: String,
    /// The command that brings it.
    pub(crate) install: String,
    /// Where it was looked for, and what was lacking there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) looked: Vec<String>,
}

impl Overview {
    /// Looks at the machine. Takes a second or two: the cores are measured, and each device compiles a small graph.
    ///
    /// # Errors
    /// If the environment names an instruction set that cannot be used.
    pub(crate) fn look() -> Result<Self, IsaError> {
        let lanes = lanes::look()?;
        let mut overview = Self {
            lanes,
            #[cfg(feature = "gpu")]
            gpus: gpus::look(),
            runtimes: Vec::new(),
            missing: Vec::new(),
        };
        for looked in runtimes::look() {
            match looked {
                Ok(runtime) => overview.runtimes.push(runtime),
                Err(missing) => overview.missing.push(missing),
            }
        }
        Ok(overview)
    }
}
