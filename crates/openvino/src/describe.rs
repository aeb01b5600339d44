//! What a device of OpenVINO says of itself: its plugin's properties.

use duet_runtimes::{DeviceInfo, DeviceKind, Peak};
use duet_types::Bytes;

/// Asks for every property that a sort of device may have.
pub(crate) fn describe(name: &str, property: &dyn Fn(&str) -> Option<String>) -> DeviceInfo {
    let kind = kind_of(name);
    let first = |keys: &[&str]| keys.iter().find_map(|key| property(key));
    let number = |text: String| text.parse().ok().filter(|&bytes| bytes > 0).map(Bytes);
    DeviceInfo {
        name: name.to_owned(),
        kind,
        full_name: property("FULL_DEVICE_NAME"),
        architecture: property("DEVICE_ARCHITECTURE"),
        driver: first(&["NPU_DRIVER_VERSION", "GPU_DRIVER_VERSION"]),
        memory: first(&["NPU_DEVICE_TOTAL_MEM_SIZE", "GPU_DEVICE_TOTAL_MEM_SIZE"]).and_then(number),
        peaks: property("DEVICE_GOPS").map(|text| peaks(&text)).unwrap_or_default(),
    }
}

fn kind_of(name: &str) -> DeviceKind {
    match name.split_once('.').map_or(name, |(kind, _)| kind) {
        "CPU" => DeviceKind::Cpu,
        "GPU" => DeviceKind::Gpu,
        "NPU" => DeviceKind::Npu,
        _ => DeviceKind::Other,
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
