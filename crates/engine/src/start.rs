//! Starting an engine: memory, lanes, profile, scheduler.

use crate::config::EngineConfig;
use crate::drafting::Past;
use crate::exchange::GraphExchange;
use crate::fingerprint::model_fingerprint;
use crate::learned::LearnedFile;
use crate::memory::{Budget, available, budget, graphs_held};
use crate::model_backend::ModelBackend;
use crate::placement::Placement;
use crate::profile::{Effort, Measured, Profile, heg, measure};
use crate::request::EngineError;
use crate::runtime::{Runtime, RuntimeConfig};
use crate::speed_probe::SpeedProbe;
use duet_device::{Cpu, CpuConfig, available_cores};
use duet_driver::{EventLog, Header, Observer, Rates, Trace};
use duet_model::Model;
use duet_model::kv::PAGE_TOKENS;
use duet_scheduler::{GraphSet, Heg, Limits, MemoryLimits, SchedulerConfig};
use duet_types::{Bytes, LaneSet, Tokens};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn start(model: Arc<Model>, config: EngineConfig) -> Result<Runtime<ModelBackend>, EngineError> {
    let page_bytes = model.kv_pool(config.kv_format, Tokens(PAGE_TOKENS as u32)).page_bytes();
    let budget = budget(&config, model.config().context, PAGE_TOKENS, page_bytes, available())?;
    tracing::info!(context = budget.context.0, kv_tokens = budget.pool.0, "KV memory");
    let threads = config.threads.unwrap_or_else(|| available_cores().len());
    let placement = Arc::new(Placement::new(model.work(), config.offload.clone()));
    // A device that does all linear work stands where the cores stand: it is not measured, and drift makes up for it.
    let (cpu_config, timed) = match placement.device_lane() {
        Some(_) => (CpuConfig::beside_a_device(threads), Arc::clone(&placement)),
        None => (CpuConfig::prefill_and_decode(threads), Arc::new(Placement::new(model.work(), None))),
    };
    let cpu = Cpu::start(&cpu_config)
        .map_err(|error| EngineError::Internal(format!("a lane could not be started: {error}")))?;
    let measured = Measured { model: &model, kv: config.kv_format, cpu: &cpu_config, placement: &timed };
    let profile = profile(&measured, config.profile_folder.as_deref(), &cpu)?;
    let heg = heg(&model, config.kv_format);
    let heg = Heg { experts: placement.expert_launches(&heg), ..heg };
    placement.measured(&heg, &profile.machine.lanes);
    placement.count_from_here();
    let exchange = placement.exchange().cloned();
    let scheduler = SchedulerConfig {
        graphs: graph_set(exchange.as_ref(), profile.machine.all())?,
        machine: profile.machine,
        heg,
        limits: Limits { graphs: graphs(&config, &placement), ..limits(&config, budget.context, exchange.as_ref()) },
        memory: memory(&config, &budget, page_bytes),
        mechanisms: config.mechanisms,
    };
    let pool = model.kv_pool(config.kv_format, budget.pool);
    let rows = scheduler.limits.prefill_rows.max(Tokens(scheduler.limits.batch as u32));
    let probe = config.event_log.is_some().then(|| SpeedProbe::new(Arc::clone(&model)));
    let past = past(&model, &config);
    let learned = config.learned_folder.as_deref().map(|folder| LearnedFile::of(folder, &model.config().name));
    let prepares = placement.prepares();
    let backend = ModelBackend::new(model, pool, budget.context, rows, placement);
    let runtime = RuntimeConfig {
        observers: observers(&config, &scheduler, profile.probe)?,
        scheduler,
        probe,
        policy: config.policy,
        queue_max: config.queue_max,
        queue_tokens_max: config.queue_tokens_max,
        speculate: config.speculate,
        calibrate: config.calibrate,
        past,
        learned,
        prepares,
        exchanges: exchange.map(|exchange| exchange.device),
        spill_folder: config.spill_folder.unwrap_or_else(std::env::temp_dir),
    };
    Runtime::start(backend, cpu, runtime)
        .map_err(|error| EngineError::Internal(format!("a thread could not be started: {error}")))
}

/// The history of this model's answers.
fn past(model: &Model, config: &EngineConfig) -> Option<Past> {
    let name = &model.config().name;
    let past = |store| Past { store: Arc::clone(store), model: model_fingerprint(name, model.tokenizer()) };
    config.history.as_ref().map(past)
}

/// The machine's profile, from its file or measured now.
fn profile(of: &Measured<'_>, folder: Option<&Path>, cpu: &Cpu) -> Result<Profile, EngineError> {
    let subject = of.subject();
    if let Some(profile) = folder.and_then(|folder| Profile::load(folder, &subject)) {
        return Ok(profile);
    }
    tracing::info!("measuring this machine with {}", subject.model);
    let profile = measure(of, &cpu.lanes(), Effort::Quick)
        .map_err(|error| EngineError::Internal(format!("the machine could not be measured: {error}")))?;
    if profile.is_disturbed() {
        tracing::warn!("the machine is busy; it will be measured again at the next start");
    } else if let Some(Err(error)) = folder.map(|folder| profile.save(folder)) {
        // Only the next start is slower.
        tracing::warn!("the profile of this machine could not be saved: {error}");
    }
    Ok(profile)
}

/// Graphs for exactly a prompt's rows that there may be at once.
fn graphs(config: &EngineConfig, placement: &Placement) -> usize {
    let most = Limits::default().graphs;
    let Some(device) = placement.prepares() else { return most };
    let held = graphs_held(config, available(), device.bytes(), most);
    tracing::info!("memory for {held} graphs of prompts' own, {} each", device.bytes());
    held
}

/// The graphs that the scheduler is to exchange: those of a device that does all linear work, whatever the lane.
fn graph_set(exchange: Option<&GraphExchange>, lanes: LaneSet) -> Result<Option<GraphSet>, EngineError> {
    let Some(GraphExchange { blocks, budget, .. }) = exchange.cloned() else { return Ok(None) };
    let set = GraphSet { lanes, blocks, budget };
    set.check().map_err(|error| EngineError::Internal(error.to_string()))?;
    Ok(Some(set))
}

/// Chunks are those of the graphs that prompts are read on, where graphs are exchanged.
fn limits(config: &EngineConfig, context: Tokens, exchange: Option<&GraphExchange>) -> Limits {
    let chunk = exchange.map_or(config.chunk, |exchange| exchange.blocks.rows().prefill);
    EngineConfig { chunk, ..config.clone() }.limits(context)
}

fn memory(config: &EngineConfig, budget: &Budget, page_bytes: Bytes) -> MemoryLimits {
    let pages = budget.pool.as_usize() / PAGE_TOKENS;
    let disk_pages = config.spill_bytes.map_or(2 * pages, |bytes| (bytes.0 / page_bytes.0.max(1)) as usize);
    MemoryLimits { page: Tokens(PAGE_TOKENS as u32), pages, disk_pages }
}

fn observers(
    config: &EngineConfig,
    scheduler: &SchedulerConfig,
    profiled: Rates,
) -> Result<Vec<Box<dyn Observer + Send>>, EngineError> {
    let mut observers: Vec<Box<dyn Observer + Send>> = Vec::new();
    if let Some(path) = &config.event_log {
        let header = Header { policy: config.policy, config: scheduler.clone(), profiled: Some(profiled) };
        let log = create(path).and_then(|file| EventLog::begin(file, &header));
        observers.push(Box::new(log.map_err(|error| cannot_write(path, &error))?));
    }
    if let Some(path) = &config.trace {
        let file = create(path).map_err(|error| cannot_write(path, &error))?;
        observers.push(Box::new(Trace::begin(file, scheduler)));
    }
    Ok(observers)
}

fn create(path: &Path) -> std::io::Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(path)?))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> EngineError {
    EngineError::File { path: path.to_owned(), error: error.to_string() }
}
