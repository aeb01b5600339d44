//! Placing a model's linear work on the device that was named.

mod exchanging;
mod experts;

use crate::failure::BadInput;
use crate::models;
use crate::progress::{Progress, eprintln_quiet};
use duet_engine::{DeviceUse, Engine, Fallback, Offload};
use duet_model::Model;
use duet_model::forward::{ExpertStats, TokenWise};
use duet_offload::{ExactModel, ExpertSettings, GraphRoom, GraphUse, OffloadError, PlacedModel};
use duet_openvino::{Activations, CompileOptions, LeftOut};
use duet_runtimes::{BlobCache, GraphDevice};
use duet_types::{Bytes, Nanos, Tokens};
use exchanging::Placed;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// A device as it is written: `openvino:CPU`, `qnn:HTP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// One of OpenVINO's, by its name there.
    OpenVino(String),
    /// Qualcomm's HTP, maybe of a certain generation.
    #[cfg(feature = "qnn")]
    Qnn(String),
}

impl DeviceName {
    /// Whether it computes on the cores that duet computes on.
    pub(crate) fn is_made_of_cores(&self) -> bool {
        match self {
            Self::OpenVino(device) => device.starts_with("CPU"),
            // Elsewhere it is an emulator.
            #[cfg(feature = "qnn")]
            Self::Qnn(_) => cfg!(not(target_arch = "aarch64")),
        }
    }
}

impl FromStr for DeviceName {
    type Err = BadInput;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.split_once(':') {
            Some(("openvino", device)) if !device.is_empty() => Ok(Self::OpenVino(device.to_owned())),
            #[cfg(feature = "qnn")]
            Some(("qnn", device)) if !device.is_empty() => Ok(Self::Qnn(device.to_owned())),
            _ => Err(BadInput(format!("there is no device `{name}`; `openvino:CPU` is one, `duet devices` lists all"))),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenVino(device) => write!(f, "openvino:{device}"),
            #[cfg(feature = "qnn")]
            Self::Qnn(device) => write!(f, "qnn:{device}"),
        }
    }
}

/// How a device is to be used.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// What happens to work that it does not do.
    pub(crate) fallback: Fallback,
    /// Which work it gets.
    pub(crate) device_use: DeviceUse,
    /// Its threads, where it has such; as many as there are cores if it is not said.
    pub(crate) threads: Option<u16>,
    /// What its graphs may take.
    pub(crate) graph_memory: Option<Bytes>,
    /// What they may take on disk.
    pub(crate) graph_cache: Option<Bytes>,
    /// The model's file, beside which counts of its experts are.
    pub(crate) model_path: Option<PathBuf>,
    /// Rows of a prompt's chunk.
    pub(crate) chunk: Tokens,
    /// How experts are placed.
    pub(crate) experts: ExpertSettings,
}

/// Compiles the model for the device. A device that cannot be used is an error with [`Fallback::Never`]; else the person is
/// told, and the CPU does all work.
pub(crate) fn place(model: &Arc<Model>, name: &DeviceName, wanted: &Wanted) -> anyhow::Result<Option<Offload>> {
    match placed(model, name, wanted) {
        Ok(offload) => Ok(Some(offload)),
        Err(error) if wanted.fallback == Fallback::Never || error.is::<BadInput>() => Err(error),
        Err(error) => {
            eprintln_quiet(&format!("warning: the CPU does the work: {error:#}"));
            Ok(None)
        }
    }
}

fn placed(model: &Arc<Model>, name: &DeviceName, wanted: &Wanted) -> anyhow::Result<Offload> {
    let Wanted { fallback, device_use, threads, graph_memory, graph_cache, .. } = *wanted;
    let offload = |device: Arc<dyn TokenWise>, exchange| Offload {
        name: name.to_string(),
        device,
        fallback,
        device_use,
        exchange,
    };
    if model.blueprint().experts.is_some() {
        return Ok(offload(Arc::new(experts::placed(model, name, wanted)?), None));
    }
    experts::refuse_settings(&wanted.experts)?;
    match (device_use, graph_memory) {
        (DeviceUse::Alone, Some(budget)) => {
            let opened = opened(name, threads.unwrap_or_else(cores), Activations::ROUNDED)?;
            match exchanging::placed(model, name, opened, (budget, graph_cache))? {
                Placed::Exchanging(device, exchange) => Ok(offload(device, Some(exchange))),
                Placed::Whole => {
                    Ok(offload(Arc::new(compiled(model, name, (threads, graph_cache), Activations::ROUNDED)?), None))
                }
            }
        }
        (_, Some(_)) => Err(BadInput("--graph-memory is for --device-use alone".to_owned()).into()),
        (DeviceUse::Alone | DeviceUse::Lane, None) => {
            Ok(offload(Arc::new(compiled(model, name, (threads, graph_cache), Activations::ROUNDED)?), None))
        }
        (DeviceUse::Static, None) => Ok(offload(Arc::new(compiled_static(model, name, (threads, graph_cache))?), None)),
    }
}

/// Compiles the model for the device, or takes its graphs from the cache, which may become so large if that is said.
pub(crate) fn compiled(
    model: &Model,
    name: &DeviceName,
    (threads, graph_cache): (Option<u16>, Option<Bytes>),
    activations: Activations,
) -> anyhow::Result<PlacedModel> {
    let device = opened(name, threads.unwrap_or_else(cores), activations)?;
    let cache = cache(model, &*device, graph_cache, GraphUse::Resident).ok();
    told(name, || PlacedModel::ready_on(model, &*device, cache.as_ref(), &mut |_| {}))
}

/// The same in chunks, with more to be compiled for prompts as they come.
fn compiled_static(
    model: &Arc<Model>,
    name: &DeviceName,
    (threads, graph_cache): (Option<u16>, Option<Bytes>),
) -> anyhow::Result<ExactModel> {
    let device = opened(name, threads.unwrap_or_else(cores), Activations::ROUNDED)?;
    let cache = cache(model, &*device, graph_cache, GraphUse::Resident).ok();
    told(name, || ExactModel::ready_on(Arc::clone(model), device, cache.as_ref(), &mut |_| {}))
}

/// Compiles, and says so.
fn told<T, E>(name: &DeviceName, compile: impl FnOnce() -> Result<T, E>) -> anyhow::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let progress = Progress::spinner("compiling", &format!("graphs for {name}"));
    let placed = compile().map_err(|error| anyhow::Error::new(error).context(name.to_string()))?;
    progress.finish("compiled");
    Ok(placed)
}

/// The device, to run on `threads` threads of it and to round activations so where it has such a choice.
pub(crate) fn opened(
    name: &DeviceName,
    threads: u16,
    activations: Activations,
) -> anyhow::Result<Arc<dyn GraphDevice>> {
    let device: Result<Arc<dyn GraphDevice>, duet_runtimes::Error> = match name {
        DeviceName::OpenVino(device) => duet_openvino::Runtime::load()
            .and_then(|runtime| runtime.device(device))
            .map(|device| Arc::new(as_wanted(device, CompileOptions::of_blocks(threads, activations))) as _),
        #[cfg(feature = "qnn")]
        DeviceName::Qnn(device) => htp(device).map(|device| Arc::new(device) as _),
    };
    device.map_err(|error| anyhow::Error::new(error).context(name.to_string()))
}

/// The device with these options, as far as it takes them; the log has the others.
fn as_wanted(device: duet_openvino::Device, wanted: CompileOptions) -> duet_openvino::Device {
    let device = device.with_options(wanted);
    let name = &device.info().name;
    for LeftOut { option, why } in device.left_out() {
        tracing::debug!(device = %name, %option, %why, "an option is left out");
    }
    tracing::debug!(device = %name, options = %device.options(), "a device is set");
    device
}

/// Qualcomm's HTP.
#[cfg(feature = "qnn")]
fn htp(name: &str) -> Result<duet_qnn::Device, duet_runtimes::Error> {
    let device = duet_qnn::Runtime::load()?.device(name)?;
    if device.is_emulated() {
        eprintln_quiet("warning: there is an emulator of the HTP here, which takes many seconds for each token");
    }
    Ok(device)
}

/// Where compiled graphs are kept: with room for all of the model's, if nothing else is asked for.
pub(crate) fn cache(
    model: &Model,
    device: &dyn GraphDevice,
    asked: Option<Bytes>,
    graph_use: GraphUse,
) -> anyhow::Result<BlobCache> {
    let limit = GraphRoom::of(model, &device.rules(), graph_use)?.limit(asked).map_err(|error| match error {
        OffloadError::CacheTooSmall { .. } => {
            BadInput(format!("--graph-cache: {error}; give it that much, or leave the flag out")).into()
        }
        other => anyhow::Error::from(other),
    })?;
    Ok(BlobCache::new(models::cache_folder("graphs")?, limit))
}

/// All there are.
pub(crate) fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |all| u16::try_from(all.get()).unwrap_or(u16::MAX))
}

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
    tell_experts(engine);
    let exact = engine.exact_graphs();
    if exact.asked > 0 {
        eprintln_quiet(&format!(
            "graphs of prompts' own: {} asked for, {} ready, {} used, {} called off, {} failed; {} hold {} now",
            exact.asked, exact.ready, exact.used, exact.called_off, exact.failed, exact.resident, exact.resident_bytes
        ));
    }
}

/// Says on stderr where experts were computed, if a device computed some.
fn tell_experts(engine: &Engine) {
    let ExpertStats { places, launches, slots, attention, .. } = engine.expert_work();
    if places.all() > 0 {
        let share = |of: u64| 100.0 * of as f64 / places.all() as f64;
        eprintln_quiet(&format!(
            "experts: {:.1} % in {launches} launches of {slots} slots, {:.1} % on the CPU, {:.1} % spilled to it, \
             {:.1} % dropped",
            share(places.launched),
            share(places.crew),
            share(places.spilled),
            share(places.dropped)
        ));
    }
    if attention.launches > 0 {
        let each = |time: Nanos| time.as_millis_f64() / attention.launches as f64;
        eprintln_quiet(&format!(
            "attention: {} launches, {:.2} ms each, and {:.2} ms to pad for it",
            attention.launches,
            each(attention.running),
            each(attention.padding)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_with_its_runtime() {
        assert_eq!("openvino:GPU.1".parse::<DeviceName>().unwrap().to_string(), "openvino:GPU.1");
        #[cfg(feature = "qnn")]
        assert_eq!("qnn:HTP.v79".parse::<DeviceName>().unwrap().to_string(), "qnn:HTP.v79");
        for wrong in ["", "CPU", "openvino", "openvino:", "cuda:0"] {
            assert!(wrong.parse::<DeviceName>().unwrap_err().0.contains("duet devices"), "{wrong}");
        }
    }
}
