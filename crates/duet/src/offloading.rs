//! Placing a model's linear work on the device that was named.

mod attention;
mod defaults;
mod exchanging;
mod experts;
#[cfg(feature = "gpu")]
mod gpu;
mod spec;

pub(crate) use attention::AttentionPlace;
pub(crate) use defaults::{Looking, Unpaying};
pub(crate) use spec::{DeviceName, DeviceSpec, ShapesName};

use crate::bad_input::BadInput;
use crate::models;
use crate::progress::{Progress, eprintln_quiet};
use duet_engine::{Device, Engine, Fallback};
use duet_model::Model;
use duet_model::forward::{ExpertStats, TokenWise};
use duet_offload::{ExactModel, ExpertSettings, GraphRoom, GraphUse, OffloadError, PlacedModel, rows_taken};
use duet_openvino::{Activations, CompileOptions, LeftOut};
use duet_runtimes::{BlobCache, GraphDevice};
use duet_scheduler::machine::RowsTaken;
use duet_types::{Bytes, Nanos, Tokens};
use exchanging::Placed;
use std::path::PathBuf;
use std::sync::Arc;

/// How devices are to be used.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// What happens to work that they do not do.
    pub(crate) fallback: Fallback,
    /// Memory for the graphs of the only one.
    pub(crate) graph_memory: Option<Bytes>,
    /// What they may take on disk.
    pub(crate) graph_cache: Option<Bytes>,
    /// The model's file, beside which counts of its experts are.
    pub(crate) model_path: Option<PathBuf>,
    /// Threads of the cores beside the devices.
    pub(crate) threads: usize,
    /// Rows of a prompt's chunk.
    pub(crate) chunk: Tokens,
    /// How experts are placed.
    pub(crate) experts: ExpertSettings,
    /// Who attends.
    pub(crate) attention: AttentionPlace,
}

/// Compiles the model for the devices. One that cannot be used is an error with [`Fallback::Never`]; else the person is
/// told, and the others do all work.
pub(crate) fn place(model: &Arc<Model>, specs: &[&DeviceSpec], wanted: &Wanted) -> anyhow::Result<Vec<Device>> {
    let mut devices = Vec::new();
    for spec in specs {
        match placed(model, spec, wanted) {
            Ok(device) => devices.push(device),
            Err(error) if wanted.fallback == Fallback::Never || error.is::<BadInput>() => return Err(error),
            Err(error) => {
                let who = if specs.len() == 1 { "the CPU does" } else { "the others do" };
                eprintln_quiet(&format!("warning: {who} the work: {error:#}"));
            }
        }
    }
    Ok(devices)
}

/// Whether a device reads a model's weights where the cores have them, if they lie in memory of the process's own.
pub(crate) fn shares_weights(model: &Model, spec: &DeviceSpec) -> bool {
    match &spec.device {
        #[cfg(feature = "gpu")]
        DeviceName::Gpu(name) => gpu::shares_weights(model, spec, name),
        _ => {
            let _ = model;
            false
        }
    }
}

fn placed(model: &Arc<Model>, spec: &DeviceSpec, wanted: &Wanted) -> anyhow::Result<Device> {
    let (name, threads) = (&spec.device, spec.threads_given());
    let is_dense = model.blueprint().experts.is_none();
    if is_dense {
        experts::refuse_settings(&wanted.experts)?;
    }
    #[cfg(feature = "gpu")]
    if let DeviceName::Gpu(gpu) = name {
        return gpu::placed(model, spec, gpu, wanted);
    }
    attention::check(model, wanted)?;
    let opened = opened(name, threads.unwrap_or_else(cores), Activations::ROUNDED)?;
    let version = identity(&*opened);
    let device = |nodes: Arc<dyn TokenWise>| Device::new(spec.label(), version, nodes);
    let attention = || attention::placed(model, name, &*opened, wanted);
    if !is_dense {
        let placed = Arc::new(experts::placed(model, spec, Arc::clone(&opened), wanted)?);
        let experts = Some(Arc::clone(&placed) as _);
        return Ok(Device { experts, attention: attention()?, ..device(placed) });
    }
    if let Some(budget) = spec.graph_memory.or(wanted.graph_memory) {
        return Ok(match exchanging::placed(model, name, Arc::clone(&opened), (budget, wanted.graph_cache))? {
            Placed::Exchanging(nodes, exchange) => {
                attention::refuse_exchanging(wanted)?;
                Device { exchange: Some(exchange), ..device(nodes) }
            }
            Placed::Whole => {
                let nodes = Arc::new(ready(model, name, &*opened, wanted.graph_cache)?);
                Device { attention: attention()?, ..device(nodes) }
            }
        });
    }
    match spec.rows(rows_taken(&*opened))? {
        RowsTaken::Any => {
            let nodes = Arc::new(ready(model, name, &*opened, wanted.graph_cache)?);
            Ok(Device { attention: attention()?, ..device(nodes) })
        }
        RowsTaken::Chunk => {
            let cache = cache(model, &*opened, wanted.graph_cache, GraphUse::Resident).ok();
            let attention = attention()?;
            let nodes = told(name, || ExactModel::ready_on(Arc::clone(model), opened, cache.as_ref(), &mut |_| {}))?;
            let nodes = Arc::new(nodes);
            let prepares = Some(Arc::clone(&nodes) as _);
            Ok(Device { rows: RowsTaken::Chunk, prepares, attention, ..device(nodes) })
        }
    }
}

/// A device's driver, compiler and settings: what was measured of another one says nothing of it.
fn identity(device: &dyn GraphDevice) -> String {
    let driver = device.info().driver.as_deref().unwrap_or("no driver named");
    format!("{driver}, {} {}", device.toolchain(), device.settings())
}

/// The model's graphs for a device.
fn ready(
    model: &Model,
    name: &DeviceName,
    device: &dyn GraphDevice,
    graph_cache: Option<Bytes>,
) -> anyhow::Result<PlacedModel> {
    let cache = cache(model, device, graph_cache, GraphUse::Resident).ok();
    told(name, || PlacedModel::ready_on(model, device, cache.as_ref(), &mut |_| {}))
}

/// Compiles the model for the device, or takes its graphs from the cache, which may become so large if that is said.
pub(crate) fn compiled(
    model: &Arc<Model>,
    name: &DeviceName,
    (threads, graph_cache): (Option<u16>, Option<Bytes>),
    activations: Activations,
) -> anyhow::Result<Arc<dyn TokenWise>> {
    #[cfg(feature = "gpu")]
    if let DeviceName::Gpu(gpu) = name {
        return gpu::rounding(model, gpu, activations);
    }
    let device = opened(name, threads.unwrap_or_else(cores), activations)?;
    Ok(Arc::new(ready(model, name, &*device, graph_cache)?))
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
        DeviceName::Cpu => return Err(BadInput("the cores are no device with graphs".to_owned()).into()),
        DeviceName::OpenVino(device) => duet_openvino::Runtime::load()
            .and_then(|runtime| runtime.device(device))
            .map(|device| Arc::new(as_wanted(device, CompileOptions::of_blocks(threads, activations))) as _),
        #[cfg(feature = "gpu")]
        DeviceName::Gpu(_) => {
            return Err(BadInput(format!(
                "{name}: a GPU takes no compiled graphs; `--device {name}` runs a model on it"
            ))
            .into());
        }
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
    if !work.devices.is_empty() {
        let share = |macs: u64| format!("{:.1} %", 100.0 * work.share(macs));
        let devices = work.devices.iter().map(|device| {
            let refused =
                if device.refused > 0 { format!(" ({} kernels refused)", device.refused) } else { String::new() };
            format!("{} on {}{refused}", share(device.macs), device.name)
        });
        let devices: Vec<String> = devices.collect();
        eprintln_quiet(&format!("linear work: {}, {} on the CPU's lanes", devices.join(", "), share(work.on_crew)));
    }
    tell_experts(engine);
    tell_attention(engine);
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
    let ExpertStats { places, launches, slots, .. } = engine.expert_work();
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
}

/// Says on stderr what devices did of attention.
fn tell_attention(engine: &Engine) {
    let attention = engine.attention_work();
    if attention.launches > 0 {
        let each = |time: Nanos| time.as_millis_f64() / attention.launches as f64;
        eprintln_quiet(&format!(
            "attention: {} launches of a layer and a chunk, {:.2} ms each, and {:.2} ms to get {:.0} positions ready for it; \
             {} of keys and values are kept",
            attention.launches,
            each(attention.running),
            each(attention.padding),
            attention.read as f64 / attention.launches as f64,
            attention.kept
        ));
    }
}
