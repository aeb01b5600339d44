//! The papers' machine with a real scheduler, real threads and a GPU: an NPU's part, an iGPU's and the cores' at once, under
//! faults of both devices; then the same run replayed, simulated, and as a timeline.
//!
//! The NPU is a small device of its own that takes chunks; the GPU is whatever Vulkan has, a program for the processor or not.
//! So what is shown is the order of events and that no answer is lost, not how fast anything is.

use duet_engine::{
    Device, Engine, EngineConfig, Fallback, GenerateRequest, GenerationEvent, Method, PolicyName, SamplingParams,
    StopConditions, replay,
};
use duet_gpu::{Adapters, Fault, GpuModel};
use duet_model::forward::{NotRun, TokenWise};
use duet_model::{LoadOptions, Model};
use duet_scheduler::machine::RowsTaken;
use duet_sim::Recorded;
use duet_sim::fidelity::judge;
use duet_testing::Need;
use duet_types::{Class, TokenId, Tokens};
use float_device::FloatDevice;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[path = "../../model/tests/float_device/mod.rs"]
mod float_device;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");

/// An NPU that can be told to fail once.
#[derive(Debug)]
struct Npu {
    device: FloatDevice,
    fails: AtomicBool,
    computed: AtomicUsize,
}

impl Npu {
    fn run(&self, compute: impl FnOnce(&FloatDevice) -> Result<(), NotRun>) -> Result<(), NotRun> {
        if self.fails.swap(false, Ordering::Relaxed) {
            return Err(NotRun::Failed("its driver was reset".to_owned()));
        }
        self.computed.fetch_add(1, Ordering::Relaxed);
        compute(&self.device)
    }
}

impl TokenWise for Npu {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.run(|device| device.qkv(layer, residual, qkv))
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.run(|device| device.feed_forward(layer, attended, residual, fed))
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.run(|device| device.head(residual, logits))
    }
}

fn request(class: Class, first: u32, prompt: u32, output: u32) -> GenerateRequest {
    GenerateRequest {
        prompt: (0..prompt).map(|i| TokenId((first + i * 37) % 250 + 3)).collect(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_tokens: Some(Tokens(output)), ignore_eos: true, ..StopConditions::default() },
        class,
        ..GenerateRequest::default()
    }
}

/// Submits requests of both classes at once, and waits for all. How many tokens each had. Prompts of each round are others, so
/// that they have to be read.
fn load(engine: &Engine, round: u32) -> Vec<usize> {
    let requests = (0..3).flat_map(|turn| {
        let first = 60 * round + 7 * turn;
        [request(Class::Proactive, first, 96 + turn, 5), request(Class::Reactive, first + 3, 33 + turn, 4)]
    });
    let generations: Vec<_> = requests.map(|request| engine.submit(request).unwrap()).collect();
    let count = |mut generation: duet_engine::Generation| {
        let mut tokens = 0;
        while let Some(event) = generation.next_blocking() {
            match event {
                GenerationEvent::Token { .. } => tokens += 1,
                GenerationEvent::Failed(error) => panic!("a request ended: {error}"),
                _ => {}
            }
        }
        tokens
    };
    generations.into_iter().map(count).collect()
}

/// The names of the timeline's lanes that ran something.
fn lanes_of(trace: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(trace).unwrap();
    let events: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = events.as_array().cloned().unwrap_or_else(|| events["traceEvents"].as_array().unwrap().clone());
    let ran: BTreeSet<String> =
        events.iter().filter(|event| event["ph"] == "X").map(|event| event["tid"].to_string()).collect();
    let names = events.iter().filter(|event| event["name"] == "thread_name" && ran.contains(&event["tid"].to_string()));
    names.map(|event| event["args"]["name"].as_str().unwrap().to_owned()).collect()
}

fn composed(policy: PolicyName) {
    let found = Adapters::look();
    let name = std::env::var(Need::Gpu.variable()).unwrap_or_else(|_| "gpu:0".to_owned());
    let adapter = match found.named(&name) {
        Ok(adapter) => adapter.clone(),
        Err(error) => return duet_testing::skip(Need::Gpu, error),
    };
    let model = Arc::new(Model::load(Path::new(MODEL), &LoadOptions::default(), &mut |_| {}).unwrap());
    let npu = Arc::new(Npu {
        device: FloatDevice::new(&model),
        fails: AtomicBool::new(false),
        computed: AtomicUsize::new(0),
    });
    let gpu = Arc::new(GpuModel::new(Arc::clone(&model), &adapter).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (log, trace) = (folder.path().join("run.log"), folder.path().join("trace.json"));
    let config = EngineConfig {
        devices: vec![
            Device { rows: RowsTaken::Chunk, ..Device::new("npu", "1", Arc::clone(&npu) as _) },
            Device { spans: Some(Arc::clone(&gpu) as _), ..Device::new("igpu", "1", Arc::clone(&gpu) as _) },
        ],
        fallback: Fallback::Crew,
        threads: Some(1),
        chunk: Tokens(32),
        policy,
        speculate: Method::None,
        profile_folder: Some(folder.path().join("profiles")),
        ..EngineConfig::default()
    };
    drop(Engine::start(Arc::clone(&model), config.clone()).unwrap());
    duet_testing::prefer_devices(&folder.path().join("profiles"));
    let (event_log, traced) = (Some(log.clone()), Some(trace.clone()));
    let engine = Engine::start(model, EngineConfig { event_log, trace: traced, ..config }).unwrap();

    let whole = [5, 4, 5, 4, 5, 4];
    assert_eq!(load(&engine, 0), whole, "{policy}");
    let work = engine.linear_work();
    assert!(work.devices.iter().all(|device| device.macs > 0), "{policy}: {work:?}");
    npu.fails.store(true, Ordering::Relaxed);
    gpu.provoke(Fault::Lost);
    assert_eq!(load(&engine, 1), whole, "{policy}, while both devices fail");
    assert!(!npu.fails.load(Ordering::Relaxed), "{policy}: the NPU was not asked");
    assert_eq!(load(&engine, 2), whole, "{policy}, after that");
    drop(engine);

    let replayed = replay(BufReader::new(File::open(&log).unwrap())).unwrap();
    assert!(replayed.commands > 0);
    let recorded = Recorded::read(BufReader::new(File::open(&log).unwrap())).unwrap();
    assert_eq!(recorded.clients.len(), 3 * whole.len());
    let fidelity = judge(&recorded);
    let answered: usize = fidelity.classes.iter().map(|class| class.n).sum();
    assert_eq!(answered, 3 * whole.len(), "{policy}: {fidelity:?}");
    let lanes = lanes_of(&trace);
    assert!(lanes.contains("npu") && lanes.contains("igpu"), "{policy}: {lanes:?}");
}

#[test]
fn three_kinds_of_lanes_serve_by_our_policy() {
    composed(PolicyName::Duet);
}

#[test]
fn three_kinds_of_lanes_serve_by_the_paper_s_policy() {
    composed(PolicyName::AgentXpu);
}

#[test]
fn three_kinds_of_lanes_serve_one_request_after_another() {
    composed(PolicyName::Serial);
}
