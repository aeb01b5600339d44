//! What a device says of itself.

use duet_types::Bytes;

/// A device of OpenVINO, described. What its plugin does not know is absent.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// What OpenVINO calls it: `CPU`, `NPU`, `GPU.1`.
    pub name: String,
    /// The sort of device.
    pub kind: DeviceKind,
    /// Its maker's name for it.
    pub full_name: Option<String>,
    /// Its architecture, as the plugin numbers it.
    pub architecture: Option<String>,
    /// The version of its driver. The CPU has none.
    pub driver: Option<String>,
    /// The memory that it can use.
    pub memory: Option<Bytes>,
    /// What its maker says it computes at most.
    pub peaks: Vec<Peak>,
    /// The shapes that it runs.
    pub shapes: Shapes,
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
    /// Something that OpenVINO has learned to use since.
    Other,
}

/// The shapes that a device runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// Any number of rows.
    Dynamic,
    /// The number of rows that a graph was compiled for.
    StaticOnly,
}

/// What a device computes at most in one number format.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// The format, as OpenVINO calls it: `i8`, `f16`.
    pub format: String,
    /// 10⁹ operations a second; a multiplication and an addition are two.
    pub gops: f64,
}

impl DeviceInfo {
    /// Asks for every property that a sort of device may have.
    pub(crate) fn read(name: &str, property: &dyn Fn(&str) -> Option<String>) -> Self {
        let kind = DeviceKind::of(name);
        let first = |keys: &[&str]| keys.iter().find_map(|key| property(key));
        let number = |text: String| text.parse().ok().filter(|&bytes| bytes > 0).map(Bytes);
        Self {
            name: name.to_owned(),
            kind,
            full_name: property("FULL_DEVICE_NAME"),
            architecture: property("DEVICE_ARCHITECTURE"),
            driver: first(&["NPU_DRIVER_VERSION", "GPU_DRIVER_VERSION"]),
            memory: first(&["NPU_DEVICE_TOTAL_MEM_SIZE", "GPU_DEVICE_TOTAL_MEM_SIZE"]).and_then(number),
            peaks: property("DEVICE_GOPS").map(|text| peaks(&text)).unwrap_or_default(),
            shapes: kind.shapes(),
        }
    }
}

impl DeviceKind {
    fn of(name: &str) -> Self {
        match name.split_once('.').map_or(name, |(kind, _)| kind) {
            "CPU" => Self::Cpu,
            "GPU" => Self::Gpu,
            "NPU" => Self::Npu,
            _ => Self::Other,
        }
    }

    /// No property tells; these are OpenVINO's documented limits. What is unknown is asked for the least.
    fn shapes(self) -> Shapes {
        match self {
            Self::Cpu | Self::Gpu => Shapes::Dynamic,
            Self::Npu | Self::Other => Shapes::StaticOnly,
        }
    }
}

/// Reads `{f16:1024.5,i8:2049}`; what is not understood, or zero, is left out.
fn peaks(text: &str) -> Vec<Peak> {
    let entries = text.trim_matches(|c| matches!(c, '{' | '}')).split([',', ' ']);
    let peak = |entry: &str| {
        let (format, gops) = entry.trim().split_once(':')?;
        let gops = gops.parse().ok().filter(|&gops: &f64| gops.is_finite() && gops > 0.0)?;
        Some(Peak { format: format.to_owned(), gops })
    };
    entries.filter_map(peak).collect()
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
