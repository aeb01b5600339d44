//! A model in memory and an engine that runs it: what `run`, `chat` and `serve` start with.

use crate::cli::{DeviceArgs, EngineArgs, HistoryPlace};
use crate::history::Opening;
use crate::models;
use crate::offloading::{self, Wanted};
use crate::progress::Progress;
use duet_engine::{Engine, EngineConfig, Offload};
use duet_model::{LoadOptions, Model};
use duet_types::Tokens;
use std::path::Path;
use std::sync::Arc;

/// Finds (downloads if need be), loads and starts the model called `name`.
pub(crate) fn start(
    name: &str,
    arguments: &EngineArgs,
    device: &DeviceArgs,
    history: Option<HistoryPlace>,
) -> anyhow::Result<Engine> {
    start_with(name, arguments, device, history, arguments.config())
}

/// As [`start`], with a configuration that says more than `arguments`.
pub(crate) fn start_with(
    name: &str,
    arguments: &EngineArgs,
    device: &DeviceArgs,
    history: Option<HistoryPlace>,
    config: EngineConfig,
) -> anyhow::Result<Engine> {
    let path = models::locate(name)?;
    let history = Opening::begin(history);
    let model = Arc::new(load(&path, arguments.threads)?);
    let learned_folder = config.profile_folder.clone();
    let (device_threads, threads) = device.threads(arguments.threads);
    let offload = offload((&model, &path), device, (device_threads, config.chunk))?;
    let threads = if offload.is_some() { threads.map(usize::from) } else { config.threads };
    let config = EngineConfig { history: history.finish(), learned_folder, offload, threads, ..config };
    let engine = Engine::start(model, config)?;
    Ok(engine)
}

fn offload(
    (model, path): (&Arc<Model>, &Path),
    arguments: &DeviceArgs,
    (threads, chunk): (Option<u16>, Tokens),
) -> anyhow::Result<Option<Offload>> {
    let Some(device) = &arguments.device else { return Ok(None) };
    let wanted = Wanted {
        fallback: arguments.fallback(),
        device_use: arguments.device_use.into(),
        threads,
        graph_memory: arguments.graph_memory,
        model_path: Some(path.to_owned()),
        chunk,
        experts: arguments.experts(),
    };
    offloading::place(model, device, &wanted)
}

/// Finds (downloads if need be) and loads the model called `name`.
pub(crate) fn open(name: &str, arguments: &EngineArgs) -> anyhow::Result<Arc<Model>> {
    open_with(name, arguments.threads)
}

/// As [`open`], on `threads` threads; on all cores if there is no number.
pub(crate) fn open_with(name: &str, threads: Option<u16>) -> anyhow::Result<Arc<Model>> {
    let path = models::locate(name)?;
    Ok(Arc::new(load(&path, threads)?))
}

fn load(path: &Path, threads: Option<u16>) -> anyhow::Result<Model> {
    let what = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut options = LoadOptions::default();
    if let Some(threads) = threads {
        options.threads = threads.into();
    }
    // The size is known at the first report; an error before it needs no bar.
    let mut progress = None;
    let loaded = Model::load(path, &options, &mut |now| {
        let bar = progress.get_or_insert_with(|| Progress::bytes("loading", &what, now.total));
        bar.set(now.done);
    });
    let model = loaded.map_err(|error| {
        // Not every error of a model names the file it was found in; the person must know which one.
        let shown = path.display().to_string();
        let named = error.to_string().contains(&shown);
        let error = anyhow::Error::new(error);
        if named { error } else { error.context(shown) }
    })?;
    if let Some(progress) = progress {
        progress.finish("loaded");
    }
    Ok(model)
}
