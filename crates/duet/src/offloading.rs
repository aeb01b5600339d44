//! Placing a model's linear work on the device that was named.

use crate::failure::BadInput;
use crate::models;
use crate::progress::{Progress, eprintln_quiet};
use duet_engine::{Engine, Fallback, Offload};
use duet_model::Model;
use duet_offload::PlacedModel;
use duet_openvino::{Activations, BlobCache};
use duet_types::Bytes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A device as it is written: `openvino:CPU`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// One of OpenVINO's, by its name there.
    OpenVino(String),
}

impl FromStr for DeviceName {
    type Err = BadInput;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.split_once(':') {
            Some(("openvino", device)) if !device.is_empty() => Ok(Self::OpenVino(device.to_owned())),
            _ => Err(BadInput(format!("there is no device `{name}`; `openvino:CPU` is one, `duet devices` lists all"))),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenVino(device) => write!(f, "openvino:{device}"),
        }
    }
}

/// Compiles the model for the device. A device that cannot be used is an error with [`Fallback::Never`]; else the person is
/// told, and the CPU does all work. Without a number of threads, as many as there are cores.
pub(crate) fn place(
    model: &Model,
    name: &DeviceName,
    fallback: Fallback,
    threads: Option<u16>,
) -> anyhow::Result<Option<Offload>> {
    match compiled(model, name, threads, PlacedModel::ROUNDED) {
        Ok(device) => Ok(Some(Offload { name: name.to_string(), device: Arc::new(device), fallback })),
        Err(error) if fallback == Fallback::Never => Err(error),
        Err(error) => {
            eprintln_quiet(&format!("warning: the CPU does the work: {error:#}"));
            Ok(None)
        }
    }
}

/// Compiles the model for the device, or takes its graphs from the cache.
pub(crate) fn compiled(
    model: &Model,
    name: &DeviceName,
    threads: Option<u16>,
    activations: Activations,
) -> anyhow::Result<PlacedModel> {
    let DeviceName::OpenVino(device) = name;
    let cores = || std::thread::available_parallelism().map_or(1, |all| u16::try_from(all.get()).unwrap_or(u16::MAX));
    let progress = Progress::spinner("compiling", &format!("graphs for {name}"));
    let cache = models::cache_folder("graphs").ok().map(|folder| BlobCache::new(folder, CACHE_BYTES));
    let threads = threads.unwrap_or_else(cores);
    let placed = PlacedModel::ready(model, device, threads, activations, cache.as_ref(), &mut |_| {});
    let placed = placed.map_err(|error| anyhow::Error::new(error).context(name.to_string()))?;
    progress.finish("compiled");
    Ok(placed)
}

/// Compiled graphs of a few models.
const CACHE_BYTES: Bytes = Bytes(4 << 30);

/// Says on stderr where linear work was done, if a device was to do it.
pub(crate) fn tell_shares(engine: &Engine) {
    let work = engine.linear_work();
    if let Some(device) = &work.device {
        let share = 100.0 * work.device_share();
        let refused = if work.refused > 0 { format!(", {} kernels refused", work.refused) } else { String::new() };
        eprintln_quiet(&format!(
            "linear work: {share:.1} % on {device}, {:.1} % on the CPU's lanes{refused}",
            100.0 - share
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_with_its_runtime() {
        assert_eq!("openvino:GPU.1".parse::<DeviceName>().unwrap().to_string(), "openvino:GPU.1");
        for wrong in ["", "CPU", "openvino", "openvino:", "cuda:0"] {
            assert!(wrong.parse::<DeviceName>().unwrap_err().0.contains("duet devices"), "{wrong}");
        }
    }
}
