//! Starting an engine: memory, lanes, profile, scheduler.

use crate::config::EngineConfig;
use crate::draft_model::{DraftModel, PASS_ROWS, check_same_tokens};
use crate::drafting::Past;
use crate::exchange::GraphExchange;
use crate::executors::Executors;
use crate::fingerprint::model_fingerprint;
use crate::learned::LearnedFile;
use crate::machine_memory::MachineMemory;
use crate::memory::{Budget, PageShape, available, budget, check_room, graphs_held, with_draft_model};
use crate::model_backend::ModelBackend;
use crate::profile::{
    FirstProfile, Measured, Profile, encoder_heg, estimate, executors, heg, measured_and_kept, with_disk,
};
use crate::request::EngineError;
use crate::runtime::{Runtime, RuntimeConfig};
use crate::speed_probe::SpeedProbe;
use duet_device::Cpu;
use duet_driver::{EventLog, Header, Observer, Rates, Trace};
use duet_kernels::read_ahead::ReadAhead;
use duet_model::Model;
use duet_model::kv::PAGE_TOKENS;
use duet_scheduler::machine::{Joins, Lane, RowsTaken};
use duet_scheduler::{GraphSet, Heg, Limits, Machine, MemoryLimits, SchedulerConfig, WindowPages};
use duet_types::{Bytes, LaneId, LaneSet, Tokens};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn start(model: Arc<Model>, config: EngineConfig) -> Result<Runtime<ModelBackend>, EngineError> {
    let page = PageShape::of(&model, &config);
    let draft = drafting_model(&model, &config)?;
    let (config, available_for_kv, draft_bytes) = with_draft_model(&config, available_beside(&model));
    let budget = budget(&config, model.config().context, &page, available_for_kv)?;
    check_room(&budget, &page, MachineMemory::now())?;
    let kv_tokens = page.limits(budget.pages, 0).longest();
    tracing::info!(context = budget.context.0, kv_tokens = kv_tokens.0, "KV memory");
    only_one_static(&config)?;
    no_device_beside_disk(&model, &config)?;
    let (executors, cpu_config) = executors(&model, &config);
    let cpu = Cpu::start(&cpu_config)
        .map_err(|error| EngineError::Internal(format!("a lane could not be started: {error}")))?;
    let measured = Measured { model: &model, kv: config.kv_format, cpu: &cpu_config, executors: &executors };
    let profile = profile(&measured, &config, &cpu)?;
    profile.read_ahead.unwrap_or_else(ReadAhead::of_processor).choose();
    executors.give_attention_as(&profile.machine);
    executors.hold_as(&profile.machine)?;
    let heg = with_disk(heg(&model, config.kv_format), &model);
    let heg = executors.as_computed(Heg { experts: executors.expert_launches(&heg), ..heg });
    executors.count_from_here();
    // Those that failed meanwhile are told of when the scheduler begins.
    executors.take_failures(executors.device_lanes());
    let (exchanging, exchange) = exchange(&executors)?.unzip();
    let measured_at = profile.measured_at;
    let encoder = encoder(&config, &profile.machine, &cpu, executors.device_lanes())?;
    let scheduler = SchedulerConfig {
        encoder,
        graphs: graph_set(exchange.as_ref(), exchanging.unwrap_or_default())?,
        machine: told(profile.machine, &config)?,
        heg,
        limits: Limits { graphs: graphs(&config, &executors), ..limits(&config, budget.context, exchange.as_ref()) },
        memory: memory(&config, &budget, &page),
        mechanisms: config.mechanisms,
    };
    let pool = match page.windows {
        WindowPages::NONE => model.kv_pool_of_pages(config.kv_format, budget.pages),
        _ => model.kv_pool_with_windows(config.kv_format, budget.pages),
    };
    let rows = scheduler.limits.prefill_rows.max(Tokens(scheduler.limits.batch as u32));
    let probe = config.event_log.is_some().then(|| SpeedProbe::new(Arc::clone(&model)));
    let past = past(&model, &config);
    let learned = config.learned_folder.as_deref().map(|folder| LearnedFile::of(folder, &model.config().name));
    let prepares = executors.prepares();
    let draft_model = draft.map(|draft| draft_model(&draft, &model, &config, draft_bytes));
    let backend = ModelBackend::new(model, pool, budget.context, rows, executors).beside(config.encoder.clone());
    let runtime = RuntimeConfig {
        observers: observers(&config, &scheduler, profile.probe)?,
        scheduler,
        measured_at,
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
    Runtime::start(backend, draft_model, cpu, runtime)
        .map_err(|error| EngineError::Internal(format!("a thread could not be started: {error}")))
}

/// The model that is to draft, if the method has one.
fn drafting_model(model: &Model, config: &EngineConfig) -> Result<Option<Arc<Model>>, EngineError> {
    match (&config.draft, config.speculate.has_model()) {
        (_, false) => Ok(None),
        (None, true) => {
            Err(EngineError::Configuration(format!("the drafting method {} needs a draft model", config.speculate)))
        }
        (Some(draft), true) => {
            check_same_tokens(model, draft)?;
            // What it guessed wrong is cut off its sequences at any position.
            if draft.cuts() > Tokens(1) {
                let name = &draft.config().name;
                let why = "it has a recurrent state; take a model with attention in all layers";
                return Err(EngineError::Configuration(format!("{name} cannot draft: {why}")));
            }
            Ok(Some(Arc::clone(draft)))
        }
    }
}

/// A model beside the one that verifies, with KV memory of its own. It computes on the cores alone.
fn draft_model(draft: &Arc<Model>, model: &Model, config: &EngineConfig, bytes: Bytes) -> DraftModel<ModelBackend> {
    let page_bytes = draft.kv_pool(config.kv_format, Tokens(PAGE_TOKENS as u32)).page_bytes();
    let pages = (bytes.0 / page_bytes.0.max(1)).min(u64::from(u32::MAX) / PAGE_TOKENS as u64);
    let tokens = Tokens(pages as u32 * PAGE_TOKENS as u32);
    tracing::info!(kv_tokens = tokens.0, "draft model {}", draft.config().name);
    let (pool, context) = (draft.kv_pool(config.kv_format, tokens), draft.config().context);
    let executors = Arc::new(Executors::cores(draft.work()));
    let backend = ModelBackend::new(Arc::clone(draft), pool, context, Tokens(PASS_ROWS as u32), executors);
    let share = draft.weight_bytes().0 as f64 / model.weight_bytes().0.max(1) as f64;
    DraftModel::new(backend, model.config().vocabulary, share)
}

/// The history of this model's answers.
fn past(model: &Model, config: &EngineConfig) -> Option<Past> {
    let name = &model.config().name;
    let past = |store| Past { store: Arc::clone(store), model: model_fingerprint(name, model.tokenizer()) };
    config.history.as_ref().map(past)
}

/// The machine's profile, from its file, or measured or estimated now.
fn profile(of: &Measured<'_>, config: &EngineConfig, cpu: &Cpu) -> Result<Profile, EngineError> {
    let folder = config.profile_folder.as_deref();
    if let Some(profile) = folder.and_then(|folder| Profile::load(folder, &of.subject())) {
        return Ok(profile);
    }
    // What nothing is known of, or is to be weighed against cores, is measured.
    let is_of_cores = config.devices.is_empty() && config.encoder.is_none();
    if config.first_profile == FirstProfile::Estimated && is_of_cores {
        return Ok(estimate(of));
    }
    measured_and_kept(of, &cpu.lanes(), folder)
        .map_err(|error| EngineError::Internal(format!("the machine could not be measured: {error}")))
}

/// The encoder's graph, timed on the cores.
fn encoder(config: &EngineConfig, machine: &Machine, cpu: &Cpu, devices: LaneSet) -> Result<Option<Heg>, EngineError> {
    let Some(encoder) = &config.encoder else { return Ok(None) };
    let lanes = cpu.lanes();
    let heg = encoder_heg(encoder, machine, &lanes, lanes.all().without(devices))
        .map_err(|error| EngineError::Internal(format!("the encoder could not be measured: {error}")))?;
    Ok(Some(heg))
}

/// Memory that is available when experts that are on disk have what was given to them, most of which is taken later.
fn available_beside(model: &Model) -> Bytes {
    Bytes(available().0.saturating_sub(model.expert_memory().map_or(0, |memory| memory.0)))
}

/// Graphs for exactly a prompt's rows that there may be at once.
fn graphs(config: &EngineConfig, executors: &Executors) -> usize {
    let most = Limits::default().graphs;
    let Some((_, device)) = executors.prepares() else { return most };
    let held = graphs_held(config, available(), device.bytes(), most);
    tracing::info!("memory for {held} graphs of prompts' own, {} each", device.bytes());
    held
}

/// Prompts are read on one lane of fixed shapes: a second one would stand idle.
fn only_one_static(config: &EngineConfig) -> Result<(), EngineError> {
    let fixed = config.devices.iter().filter(|device| device.rows == RowsTaken::Chunk);
    let names: Vec<&str> = fixed.map(|device| device.name.as_str()).collect();
    if names.len() > 1 {
        let text =
            format!("{}: prompts are read on one device of fixed shapes, leave the others out", names.join(", "));
        return Err(EngineError::Configuration(text));
    }
    Ok(())
}

/// Experts that are on disk are computed by cores: a device would keep all of them in memory of its own.
fn no_device_beside_disk(model: &Model, config: &EngineConfig) -> Result<(), EngineError> {
    match config.devices.first() {
        Some(device) if model.expert_memory().is_some() => {
            let text = format!("{}: experts that are on disk are computed on cores alone", device.name);
            Err(EngineError::Configuration(text))
        }
        _ => Ok(()),
    }
}

/// The device whose graphs are exchanged, and its lane.
fn exchange(executors: &Executors) -> Result<Option<(LaneSet, GraphExchange)>, EngineError> {
    let exchanging = |lane: LaneId| Some((LaneSet::from_iter([lane]), executors.device(lane)?.exchange.clone()?));
    let mut all = executors.device_lanes().iter().filter_map(exchanging);
    let first = all.next();
    match all.next() {
        Some(_) => {
            Err(EngineError::Configuration("two devices exchange graphs: give one of them more memory".to_owned()))
        }
        None => Ok(first),
    }
}

/// The machine with the shares of its lanes that may be used, and what these take of power.
fn told(mut machine: Machine, config: &EngineConfig) -> Result<Machine, EngineError> {
    for (name, share) in &config.occupancy {
        if !(0.01..=1.0).contains(share) || !each(&mut machine, name, |lane| lane.occupancy = *share) {
            let text = format!("occupancy {name}={share}: a lane ({}) and a share from 0.01 to 1", names(&machine));
            return Err(EngineError::Configuration(text));
        }
    }
    for (name, watts) in &config.watts {
        let is_power = watts.is_finite() && *watts > 0.0;
        if !is_power || !each(&mut machine, name, |lane| lane.capabilities.watts = Some(*watts)) {
            let text = format!("watts {name}={watts}: a lane ({}) and watts above zero", names(&machine));
            return Err(EngineError::Configuration(text));
        }
    }
    Ok(machine)
}

/// Tells the lanes of a name something; `cpu` is all lanes of cores. Whether there is one.
fn each(machine: &mut Machine, name: &str, mut tell: impl FnMut(&mut Lane)) -> bool {
    let is_meant = |lane: &&mut Lane| match lane.capabilities.joins {
        Joins::Crew => name == "cpu" || *name == lane.name,
        Joins::Rows => *name == lane.name,
    };
    let mut lanes = machine.lanes.iter_mut().filter(is_meant).peekable();
    let found = lanes.peek().is_some();
    lanes.for_each(&mut tell);
    found
}

fn names(machine: &Machine) -> String {
    let names: Vec<&str> = machine.lanes.iter().map(|lane| lane.name.as_str()).collect();
    format!("cpu, {}", names.join(", "))
}

/// The graphs that the scheduler is to exchange, and the lane that runs them.
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

fn memory(config: &EngineConfig, budget: &Budget, page: &PageShape) -> MemoryLimits {
    let disk_pages = config.spill_bytes.map_or(2 * budget.pages, |bytes| (bytes.0 / page.bytes.0.max(1)) as usize);
    page.limits(budget.pages, disk_pages)
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
