//! What a device says of itself.

use duet_types::Bytes;

/// A device, described. What its runtime does not know is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// What its runtime calls it: `CPU`, `NPU`, `GPU.1`, `HTP`.
    pub name: String,
    /// The sort of device.
    pub kind: DeviceKind,
    /// Its maker's name for it.
    pub full_name: Option<String>,
    /// Its architecture, as its maker numbers it.
    pub architecture: Option<String>,
    /// The version of its driver. The CPU has none.
    pub driver: Option<String>,
    /// The memory that it can use.
    pub memory: Option<Bytes>,
    /// What its maker says it computes at most.
    pub peaks: Vec<Peak>,
}

/// The sort of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceKind {
    /// Cores.
    Cpu,
    /// A graphics unit, integrated or not.
    Gpu,
    /// A neural unit.
    Npu,
    /// Something that a runtime has learned to use since.
    Other,
}

/// What a device computes at most in one number format.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// The format, as its runtime calls it: `i8`, `f16`.
    pub format: String,
    /// 10⁹ operations a second; a multiplication and an addition are two.
    pub gops: f64,
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::Npu => "NPU",
            Self::Other => "other",
        })
    }
}
