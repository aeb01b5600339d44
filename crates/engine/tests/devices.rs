//! Devices beside the cores: each is a lane, one that fails loses its work to the cores and no answer ends, and one that
//! works again is used again; without a fallback its error is told.

#[path = "../../model/tests/float_attention/mod.rs"]
mod float_attention;
#[path = "../../model/tests/float_device/mod.rs"]
mod float_device;

use duet_engine::{
    Device, Engine, EngineConfig, EngineError, Fallback, GenerateRequest, GenerationEvent, Method, SamplingParams,
    StopConditions,
};
use duet_model::forward::{AttentionWise, ChunksTaken, NotRun, TokenWise};
use duet_model::{LoadOptions, Model};
use duet_scheduler::machine::Attention;
use duet_types::{Class, TokenId, Tokens};
use float_attention::FloatAttention;
use float_device::FloatDevice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A device that is there, or not.
#[derive(Debug)]
struct Fickle {
    inner: FloatDevice,
    gone: Arc<AtomicBool>,
}

impl Fickle {
    fn checked(&self, run: impl FnOnce(&FloatDevice) -> Result<(), NotRun>) -> Result<(), NotRun> {
        if self.gone.load(Ordering::Relaxed) { Err(NotRun::Failed("it has gone".to_owned())) } else { run(&self.inner) }
    }
}

impl TokenWise for Fickle {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.checked(|device| device.qkv(layer, residual, qkv))
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.checked(|device| device.feed_forward(layer, attended, residual, fed))
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.checked(|device| device.head(residual, logits))
    }
}

fn model() -> Arc<Model> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn device(model: &Model, name: &str, gone: &Arc<AtomicBool>) -> Device {
    Device::new(name, "1", Arc::new(Fickle { inner: FloatDevice::new(model), gone: Arc::clone(gone) }))
}

/// A device that attends for chunks of some rows, while its flag is not set.
fn attending(model: &Model, fails: &Arc<AtomicBool>) -> Device {
    let taken = ChunksTaken { rows_min: Tokens(16), rows_max: Tokens(64), context_max: Tokens(128) };
    let attention: Arc<dyn AttentionWise> = Arc::new(FloatAttention::new(model, taken, fails));
    Device { attention: Some(attention), ..device(model, "one", &Arc::default()) }
}

fn config(devices: Vec<Device>, fallback: Fallback) -> EngineConfig {
    EngineConfig { devices, fallback, threads: Some(1), speculate: Method::None, ..EngineConfig::default() }
}

/// An engine that takes its devices for far quicker than its cores, whatever was measured.
fn preferring(model: &Arc<Model>, config: &EngineConfig) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let config = EngineConfig { profile_folder: Some(folder.path().to_owned()), ..config.clone() };
    drop(Engine::start(Arc::clone(model), config.clone()).unwrap());
    duet_testing::prefer_devices(folder.path());
    if config.devices.iter().any(|device| device.attention.is_some()) {
        duet_testing::attend_on_devices(folder.path());
    }
    Engine::start(Arc::clone(model), config).unwrap()
}

/// The tokens of an answer, or why there is none.
fn answer(engine: &Engine) -> Result<Vec<TokenId>, EngineError> {
    let request = GenerateRequest {
        prompt: (1..60).map(TokenId).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_tokens: Some(Tokens(6)), ignore_eos: true, ..StopConditions::default() },
        class: Class::Reactive,
        ..GenerateRequest::default()
    };
    let mut generation = engine.submit(request).unwrap();
    let mut tokens = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::Failed(error) => return Err(error),
            GenerationEvent::Finished { .. } => {}
        }
    }
    Ok(tokens)
}

fn figure(engine: &Engine, name: &str) -> f64 {
    let text = engine.metrics_text();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn devices_that_are_quicker_than_the_cores_do_their_work() {
    let (model, here) = (model(), Arc::default());
    let devices = vec![device(&model, "one", &here), device(&model, "two", &here)];
    let engine = preferring(&model, &config(devices, Fallback::Never));
    assert_eq!(answer(&engine).unwrap().len(), 6);
    let work = engine.linear_work();
    assert!(work.devices.iter().any(|device| device.macs > 0), "{work:?} {:?}", engine.machine().0);
    assert_eq!(work.refused(), 0);
    for name in ["one", "two"] {
        assert_eq!(figure(&engine, &format!("duet_lane_usable{{lane=\"{name}\"}}")), 1.0);
    }
}

#[test]
fn a_device_that_goes_loses_no_request_and_is_used_again_when_it_comes_back() {
    let (model, gone) = (model(), Arc::<AtomicBool>::default());
    let engine = preferring(&model, &config(vec![device(&model, "one", &gone)], Fallback::Crew));
    answer(&engine).unwrap();
    let before = engine.linear_work();
    assert!(before.devices[0].macs > 0, "{before:?}");
    gone.store(true, Ordering::Relaxed);
    assert_eq!(answer(&engine).unwrap().len(), 6);
    until("the loss", || figure(&engine, "duet_lane_usable{lane=\"one\"}") == 0.0);
    let lost = engine.linear_work();
    assert_eq!(answer(&engine).unwrap().len(), 6);
    let after = engine.linear_work();
    // It is left alone: nothing is asked of it, and the cores do all.
    assert_eq!((after.devices[0].macs, after.refused()), (lost.devices[0].macs, lost.refused()));
    assert!(after.on_crew > lost.on_crew);
    gone.store(false, Ordering::Relaxed);
    until("the return", || figure(&engine, "duet_lane_usable{lane=\"one\"}") == 1.0);
    answer(&engine).unwrap();
    assert!(engine.linear_work().devices[0].macs > after.devices[0].macs);
    assert!(figure(&engine, "duet_lane_losses_total{lane=\"one\"}") >= 1.0);
}

#[test]
fn a_device_that_is_gone_from_the_start_is_left_alone() {
    let model = model();
    let alone = Engine::start(Arc::clone(&model), config(Vec::new(), Fallback::Crew)).unwrap();
    let expected = answer(&alone).unwrap();
    drop(alone);
    let gone = Arc::new(AtomicBool::new(true));
    let engine = Engine::start(Arc::clone(&model), config(vec![device(&model, "one", &gone)], Fallback::Crew)).unwrap();
    assert_eq!(answer(&engine).unwrap(), expected);
    let work = engine.linear_work();
    assert!(work.on_devices() == 0 && work.on_crew > 0, "{work:?}");
    assert_eq!(figure(&engine, "duet_lane_usable{lane=\"one\"}"), 0.0);
}

#[test]
fn without_a_fallback_its_error_is_told() {
    let model = model();
    let gone = Arc::new(AtomicBool::new(true));
    let started = Engine::start(Arc::clone(&model), config(vec![device(&model, "one", &gone)], Fallback::Never));
    let error = started.err().unwrap().to_string();
    assert!(error.contains("one") && error.contains("it has gone"), "{error}");
    gone.store(false, Ordering::Relaxed);
    let engine = preferring(&model, &config(vec![device(&model, "one", &gone)], Fallback::Never));
    gone.store(true, Ordering::Relaxed);
    let error = answer(&engine).unwrap_err();
    assert!(matches!(&error, EngineError::Device { device, .. } if device == "one"), "{error:?}");
}

#[test]
fn attention_is_a_devices_where_its_profile_says_so() {
    let model = model();
    let engine = preferring(&model, &config(vec![attending(&model, &Arc::default())], Fallback::Never));
    assert_eq!(answer(&engine).unwrap().len(), 6);
    let attention = engine.attention_work();
    // The prompt is one chunk, of which one row is read behind the last layer; that one and what is decoded are too few rows.
    assert_eq!(
        attention.launches,
        model.config().layers as u64 - 1,
        "{:?} {:?}",
        engine.linear_work(),
        engine.machine().0
    );
}

#[test]
fn attention_that_fails_ends_no_answer() {
    let (model, fails) = (model(), Arc::<AtomicBool>::default());
    let engine = preferring(&model, &config(vec![attending(&model, &fails)], Fallback::Crew));
    fails.store(true, Ordering::Relaxed);
    assert_eq!(answer(&engine).unwrap().len(), 6);
    assert!(engine.attention_work().launches == 0 && engine.linear_work().refused() > 0);
    until("the loss", || figure(&engine, "duet_lane_losses_total{lane=\"one\"}") >= 1.0);
    let broken = attending(&model, &Arc::new(AtomicBool::new(true)));
    let started = Engine::start(Arc::clone(&model), config(vec![broken], Fallback::Never));
    let error = started.err().unwrap().to_string();
    assert!(error.contains("its attention is gone"), "{error}");
}

/// One that is slower than the cores by far: measured, and not used.
#[test]
fn attention_that_does_not_pay_is_left_to_the_cores() {
    let model = model();
    let slow = attending(&model, &Arc::default());
    let engine = Engine::start(Arc::clone(&model), config(vec![slow], Fallback::Never)).unwrap();
    assert_eq!(engine.machine().0.lanes[0].capabilities.attention, Attention::None);
    assert_eq!(answer(&engine).unwrap().len(), 6);
    assert_eq!(engine.attention_work().launches, 0);
}

#[test]
fn a_share_of_a_lane_that_there_is_not_is_refused() {
    let model = model();
    let occupancy = |lane: &str| EngineConfig {
        occupancy: vec![(lane.to_owned(), 0.5)],
        ..config(vec![device(&model, "one", &Arc::default())], Fallback::Crew)
    };
    for lane in ["one", "cpu"] {
        let engine = Engine::start(Arc::clone(&model), occupancy(lane)).unwrap();
        assert_eq!(answer(&engine).unwrap().len(), 6);
    }
    let error = Engine::start(Arc::clone(&model), occupancy("two")).err().unwrap().to_string();
    assert!(error.contains("cpu, one"), "{error}");
}
