//! A model in memory and an engine that runs it: what `run`, `chat`, `serve` and `mcp` start with.

use crate::bad_input::BadInput;
use crate::cli::{DeviceArgs, DraftArgs, EngineArgs, HistoryPlace};
use crate::fitting;
use crate::history::Opening;
use crate::lanes;
use crate::models;
use crate::offloading::{self, DeviceSpec, Looking, Unpaying, Wanted};
use crate::progress::{Progress, eprintln_quiet};
use crate::weight_cache::WeightCache;
use crate::weights::Weights;
use duet_engine::{Device, Engine, EngineConfig, MachineMemory};
use duet_model::encoder::{Encoder, EncoderKind};
use duet_model::gguf::GgufFile;
use duet_model::{ExpertMemoryError, LoadError, LoadOptions, Model, PackError, PackedFileUse, Packing, WeightsIn};
use duet_offload::{expert_file, read_experts};
use duet_scheduler::machine::RowsTaken;
use duet_types::{Bytes, Tokens};
use std::path::Path;
use std::sync::Arc;

/// Finds (downloads if need be), loads and starts the model called `name`.
pub(crate) fn start(
    name: &str,
    arguments: &EngineArgs,
    (device, draft): (&DeviceArgs, &DraftArgs),
    history: Option<HistoryPlace>,
) -> anyhow::Result<Engine> {
    start_with(name, arguments, (device, draft), history, arguments.config())
}

/// As [`start`], with a configuration that says more than `arguments`.
pub(crate) fn start_with(
    name: &str,
    arguments: &EngineArgs,
    (device, draft): (&DeviceArgs, &DraftArgs),
    history: Option<HistoryPlace>,
    config: EngineConfig,
) -> anyhow::Result<Engine> {
    // Before anything is downloaded or loaded.
    device.check()?;
    if arguments.expert_memory.is_some() && device.accelerators().next().is_some() {
        let text = "--expert-memory: experts on disk are computed on cores alone: leave out --device, or this";
        return Err(BadInput(text.to_owned()).into());
    }
    let speculate = draft.method(config.speculate)?;
    let path = models::locate(name)?;
    let history = Opening::begin(history);
    let is_named = !device.devices.is_empty() || arguments.expert_memory.is_some();
    let looking = if is_named { Looking::for_none() } else { Looking::begin() };
    let cache = WeightCache::of(arguments.weight_cache);
    let options = arguments.load_options(cache.as_ref());
    let model = load(&path, &options, cache.as_ref())?;
    let mut loaded = Loaded::new(model, &path, &options);
    let learned_folder = config.profile_folder.clone();
    let draft = open_draft(draft, arguments)?;
    let config = EngineConfig { history: history.finish(), learned_folder, draft, speculate, ..config };
    let engine = if device.devices.is_empty() {
        let unpaying = Unpaying::read(models::cache_folder("profiles").ok());
        start_by_default(&mut loaded, device, config, (looking.finish(), unpaying))?
    } else {
        let model = loaded.beside(device.accelerators());
        let config = beside_devices((&model, &path), arguments, device, config)?;
        loaded.start(&model, config)?
    };
    if device.accelerators().next().is_some() {
        eprintln_quiet(&lanes::sentence(&engine));
    }
    Ok(engine)
}

/// A model that was loaded, and from where and how.
struct Loaded<'a> {
    model: Arc<Model>,
    path: &'a Path,
    options: &'a LoadOptions,
    /// The same with weights in memory of the process's own, once a device has asked for that.
    own: Option<Arc<Model>>,
}

impl<'a> Loaded<'a> {
    fn new(model: Arc<Model>, path: &'a Path, options: &'a LoadOptions) -> Self {
        Self { model, path, options, own: None }
    }

    /// The model for these devices: if one of them reads weights where the cores have them, with weights in memory of the process's
    /// own in place of a mapped file's. Where that cannot be had, the device has a copy.
    fn beside<'d>(&mut self, mut specs: impl Iterator<Item = &'d DeviceSpec>) -> Arc<Model> {
        let is_mapped = matches!(self.model.packing(), Packing::Kept(_)) && self.model.expert_memory().is_none();
        if !is_mapped || !specs.any(|spec| offloading::shares_weights(&self.model, spec)) {
            self.own = None;
        } else if self.own.is_none() {
            self.own = self.read();
        }
        Arc::clone(self.own.as_ref().unwrap_or(&self.model))
    }

    fn read(&self) -> Option<Arc<Model>> {
        let (packed_file, weights_in) = (PackedFileUse::OrRefuse, WeightsIn::OwnMemory);
        let options = LoadOptions { packed_file, weights_in, ..self.options.clone() };
        let progress = Progress::spinner("reading", "weights into memory that a GPU shares");
        match Model::load(self.path, &options, &mut |_| {}) {
            // Of a file that was replaced meanwhile there may be packed weights as well.
            Ok(own) if own.packing() == self.model.packing() => {
                progress.finish("read");
                Some(Arc::new(own))
            }
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "a GPU has a copy of the weights");
                None
            }
        }
    }

    /// An engine with these devices. Without any, weights are where they were.
    fn start(&self, beside: &Arc<Model>, config: EngineConfig) -> anyhow::Result<Engine> {
        let model = if config.devices.is_empty() { &self.model } else { beside };
        Ok(Engine::start(Arc::clone(model), config)?)
    }
}

/// Starts an engine with those of the devices that pay, as is measured when a model first meets one. Prompts are read on one
/// device of fixed shapes, and experts are computed on one device, so that of several the first is taken.
fn start_by_default(
    loaded: &mut Loaded<'_>,
    arguments: &DeviceArgs,
    config: EngineConfig,
    (working, mut unpaying): (Vec<DeviceSpec>, Unpaying),
) -> anyhow::Result<Engine> {
    let mut specs = if working.is_empty() { working } else { unpaying.without(&loaded.model, working) };
    if loaded.model.blueprint().experts.is_some() {
        specs.truncate(1);
    }
    loop {
        let model = &loaded.beside(specs.iter());
        let wanted = wanted(loaded.path, arguments, &config);
        let mut devices = offloading::place(model, &specs.iter().collect::<Vec<_>>(), &wanted)?;
        let mut fixed = 0;
        devices.retain(|device| device.rows == RowsTaken::Any || std::mem::replace(&mut fixed, 1) == 0);
        let engine = loaded.start(model, EngineConfig { devices, ..config.clone() })?;
        let names = engine.unpaying();
        let (out, rest): (Vec<_>, Vec<_>) = specs.into_iter().partition(|spec| names.contains(&spec.label()));
        if out.is_empty() {
            if !rest.is_empty() {
                eprintln_quiet(&lanes::sentence(&engine));
            }
            return Ok(engine);
        }
        for spec in &out {
            eprintln_quiet(&format!(
                "{spec} is left out: measured with this model it is no gain beside the cores; --device {spec} uses it"
            ));
        }
        unpaying.add(model, &out);
        specs = rest;
    }
}

/// A configuration with the devices that were named.
pub(crate) fn beside_devices(
    model: (&Arc<Model>, &Path),
    arguments: &EngineArgs,
    device: &DeviceArgs,
    config: EngineConfig,
) -> anyhow::Result<EngineConfig> {
    let devices = devices(model, device, &config)?;
    let threads = if devices.is_empty() { config.threads } else { device.cores(arguments.threads).map(usize::from) };
    let (fallback, occupancy) = (device.fallback(), device.occupancy.clone());
    Ok(EngineConfig { devices, fallback, occupancy, threads, ..config })
}

fn devices(
    (model, path): (&Arc<Model>, &Path),
    arguments: &DeviceArgs,
    config: &EngineConfig,
) -> anyhow::Result<Vec<Device>> {
    offloading::place(model, &arguments.accelerators().collect::<Vec<_>>(), &wanted(path, arguments, config))
}

fn wanted(path: &Path, arguments: &DeviceArgs, config: &EngineConfig) -> Wanted {
    let threads = config.threads.and_then(|threads| u16::try_from(threads).ok());
    Wanted {
        threads: arguments.cores(threads).map_or_else(|| duet_device::available_cores().len(), usize::from),
        fallback: arguments.fallback(),
        graph_memory: arguments.graph_memory,
        graph_cache: arguments.graph_cache,
        model_path: Some(path.to_owned()),
        chunk: config.chunk,
        experts: arguments.experts(),
        attention: arguments.attention(),
    }
}

/// Finds (downloads if need be) and loads the model called `name`.
pub(crate) fn open(name: &str, arguments: &EngineArgs) -> anyhow::Result<Arc<Model>> {
    let cache = WeightCache::of(arguments.weight_cache);
    load(&models::locate(name)?, &arguments.load_options(cache.as_ref()), cache.as_ref())
}

/// The same for a model that runs on the devices that were named.
pub(crate) fn open_beside(name: &str, arguments: &EngineArgs, device: &DeviceArgs) -> anyhow::Result<Arc<Model>> {
    let (path, cache) = (models::locate(name)?, WeightCache::of(arguments.weight_cache));
    let options = arguments.load_options(cache.as_ref());
    let model = load(&path, &options, cache.as_ref())?;
    Ok(Loaded::new(model, &path, &options).beside(device.accelerators()))
}

/// The same with all experts in memory, whatever memory is given to those of the model that answers.
pub(crate) fn open_in_memory(name: &str, arguments: &EngineArgs) -> anyhow::Result<Arc<Model>> {
    let cache = WeightCache::of(arguments.weight_cache);
    let options = LoadOptions { expert_memory: None, ..arguments.load_options(cache.as_ref()) };
    load(&models::locate(name)?, &options, cache.as_ref())
}

/// Loads the model at `path` with so much memory for experts, the others being read from disk.
pub(crate) fn open_with_experts_on_disk(path: &Path, expert_memory: Bytes) -> anyhow::Result<Arc<Model>> {
    open_kept(path, None, Some(expert_memory))
}

/// Finds (downloads if need be) and loads the model called `name`, to read a text with, on `threads` threads, or on all cores if
/// there is no number; all experts are in memory if none is given to them.
pub(crate) fn open_to_read(
    name: &str,
    threads: Option<u16>,
    expert_memory: Option<Bytes>,
) -> anyhow::Result<Arc<Model>> {
    open_kept(&models::locate(name)?, threads, expert_memory)
}

/// With packed weights that are kept.
fn open_kept(path: &Path, threads: Option<u16>, expert_memory: Option<Bytes>) -> anyhow::Result<Arc<Model>> {
    let cache = WeightCache::of(None);
    let packed = cache.as_ref().map(|cache| cache.folder().to_owned());
    let options = with_threads(LoadOptions { packed, expert_memory, ..LoadOptions::default() }, threads);
    load(path, &options, cache.as_ref())
}

/// The model that drafts, if one was named.
pub(crate) fn open_draft(draft: &DraftArgs, arguments: &EngineArgs) -> anyhow::Result<Option<Arc<Model>>> {
    draft.draft_model.as_deref().map(|name| open_in_memory(name, arguments)).transpose()
}

/// As [`open`], on `threads` threads, or on all cores if there is no number; and packed anew.
pub(crate) fn open_with(name: &str, threads: Option<u16>) -> anyhow::Result<Arc<Model>> {
    load(&models::locate(name)?, &with_threads(LoadOptions::default(), threads), None)
}

fn with_threads(options: LoadOptions, threads: Option<u16>) -> LoadOptions {
    LoadOptions { threads: threads.map_or(options.threads, usize::from), ..options }
}

impl EngineArgs {
    fn load_options(&self, cache: Option<&WeightCache>) -> LoadOptions {
        let packed = cache.map(|cache| cache.folder().to_owned());
        let (context, expert_memory) = (self.ctx.map(Tokens), self.expert_memory);
        with_threads(LoadOptions { packed, context, expert_memory, ..LoadOptions::default() }, self.threads)
    }
}

/// Says which tensors of a model's file nothing is computed with.
fn tell_unread<'a>(path: &Path, unread: impl Iterator<Item = &'a str>) {
    const SHOWN: usize = 4;
    let unread: Vec<&str> = unread.collect();
    if unread.is_empty() {
        return;
    }
    let what = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let more = unread.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown = unread[..unread.len().min(SHOWN)].join(", ");
    eprintln_quiet(&format!("note: {what} has tensors that its architecture does not read: {shown}{more}"));
}

/// Finds (downloads if need be) and loads the model for embeddings called `name`.
pub(crate) fn open_encoder(name: &str, threads: Option<u16>, cache: Option<&WeightCache>) -> anyhow::Result<Encoder> {
    let path = models::locate(name)?;
    let file = GgufFile::open(&path)?;
    let packed = cache.map(|cache| cache.folder().to_owned());
    let options = with_threads(LoadOptions { packed, ..LoadOptions::default() }, threads);
    let in_file = |error: LoadError| named(error.into(), &path);
    let encoder = match EncoderKind::of(&file).map_err(in_file)? {
        None => {
            let shown = path.display();
            let text = format!("{shown} is no model for embeddings: a BERT, or a decoder with last pooling");
            return Err(BadInput(text).into());
        }
        Some(EncoderKind::Decoder) => {
            Encoder::of_decoder(Arc::new(load_model(&path, file, &options, cache)?)).map_err(in_file)?
        }
        Some(EncoderKind::Bert) => {
            fitting::check(&path, Weights::of(file.tensors()), None, MachineMemory::now())?;
            // They are small, and packed at each start.
            let check = models::Check::begin(&path);
            let encoder = Encoder::load_bert(&path, file, &options).map_err(in_file)?;
            check.finish()?;
            encoder
        }
    };
    tell_unread(&path, encoder.unread());
    Ok(encoder)
}

/// An error with the file that it was found in.
fn named(error: anyhow::Error, path: &Path) -> anyhow::Error {
    let shown = path.display().to_string();
    if error.to_string().contains(&shown) { error } else { error.context(shown) }
}

/// Loads a model that answers, and says what of its file is not read.
fn load(path: &Path, options: &LoadOptions, cache: Option<&WeightCache>) -> anyhow::Result<Arc<Model>> {
    let model = load_model(path, GgufFile::open(path)?, options, cache)?;
    tell_unread(path, model.unread().iter().map(String::as_str));
    if model.expert_memory().is_some()
        && let Some(counts) = read_experts(&expert_file(path), &model)
    {
        model.keep_busiest(&counts);
    }
    Ok(Arc::new(model))
}

/// Loads the model in a file that was opened from `path`; packs it into the cache before, if it is not there.
fn load_model(
    path: &Path,
    file: GgufFile,
    options: &LoadOptions,
    cache: Option<&WeightCache>,
) -> anyhow::Result<Model> {
    let weights = Weights::of(file.tensors());
    fitting::check(path, weights, options.expert_memory, MachineMemory::now())?;
    let what = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    // The size is known at the first report; an error before it needs no bar.
    let mut progress = None;
    let packs_first = cache.is_some() && WeightCache::packs_first(weights);
    // A model that is packed is hashed meanwhile.
    let in_memory = (!packs_first).then(|| models::Check::begin(path));
    let mut load = |file: GgufFile, packed_file| {
        Model::load_opened(path, file, &LoadOptions { packed_file, ..options.clone() }, &mut |now| {
            let bar = progress.get_or_insert_with(|| Progress::bytes("loading", &what, now.total));
            bar.set(now.done);
        })
    };
    let first = if packs_first { PackedFileUse::OrRefuse } else { PackedFileUse::OrPackInMemory };
    let loaded = match (load(file, first), cache) {
        (Err(LoadError::NotPacked { path: packed, why }), Some(cache)) => {
            let check = models::Check::begin(path);
            let written = cache.pack(path, (&packed, why), options);
            if let Err(wrong) = check.finish() {
                // Of what is not the model, no later start is to find anything.
                let _ = std::fs::remove_file(&packed);
                return Err(wrong.into());
            }
            match written {
                Ok(()) => load(GgufFile::open(path)?, PackedFileUse::JustWritten),
                Err(PackError::Load(error)) => Err(error),
                Err(PackError::Write(error)) if options.expert_memory.is_some() => {
                    let text = format!("packed weights cannot be written: {}: {error}", packed.display());
                    return Err(anyhow::anyhow!("--expert-memory: {text}"));
                }
                Err(PackError::Write(error)) => {
                    eprintln_quiet(&format!("packed weights are not kept: {}: {error}", packed.display()));
                    load(GgufFile::open(path)?, PackedFileUse::OrPackInMemory)
                }
            }
        }
        (loaded, _) => loaded,
    };
    // Not every error of a model names the file it was found in; the person must know which one.
    let model = loaded.map_err(|error| match error {
        LoadError::Architecture { .. } if Encoder::is_in(path).is_ok_and(|is| is) => {
            let shown = path.display();
            BadInput(format!("{shown} answers nothing: serve it beside a model that does, with --embeddings")).into()
        }
        LoadError::NoExperts | LoadError::ExpertMemory(ExpertMemoryError::TooSmall { .. }) => {
            BadInput(format!("--expert-memory: {}: {error}", path.display())).into()
        }
        LoadError::NoPackedFile => BadInput(format!("--expert-memory: {error}: it needs --weight-cache")).into(),
        error => named(error.into(), path),
    })?;
    if let Some(progress) = progress {
        progress.finish("loaded");
    }
    if let Some(check) = in_memory
        && !matches!(model.packing(), Packing::Kept(_))
    {
        check.finish()?;
    }
    WeightCache::used(&model);
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        device: DeviceArgs,
    }

    #[test]
    fn devices_that_nobody_named_are_used_if_they_pay() {
        if duet_testing::loaded(duet_openvino::Runtime::load()).is_none() {
            return;
        }
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf"));
        let model = Arc::new(Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let specs: Vec<DeviceSpec> = vec!["openvino:CPU,threads=1,name=found".parse().unwrap()];
        let arguments = Line::parse_from(["duet"]).device;
        let config = EngineConfig { threads: Some(1), ..EngineConfig::default() };
        let start = |specs| {
            let unpaying = Unpaying::read(Some(folder.path().to_owned()));
            let (model, options) = (Arc::clone(&model), LoadOptions::default());
            start_by_default(&mut Loaded::new(model, path, &options), &arguments, config.clone(), (specs, unpaying))
                .unwrap()
        };
        let lanes = start(specs.clone()).machine().0.lanes.len();
        let unpaying = Unpaying::read(Some(folder.path().to_owned()));
        assert_eq!(unpaying.without(&model, specs.clone()).len(), lanes - 1, "what is left out is kept so");
        assert_eq!(start(Vec::new()).machine().0.lanes.len(), 1);
    }
}
