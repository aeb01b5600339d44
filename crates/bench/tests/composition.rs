//! The papers' machine with the parts that run here: OpenVINO's CPU device in fixed shapes as the NPU, a second instance
//! of it that takes any rows, and the cores, in one engine. Both classes are served under the paper's policy and ours; the
//! run is recorded and decided again, prompts are read on the static lane while others decode, and a device that goes in
//! the middle loses no request. Skipped, with a word, where there is no runtime.

#[path = "serving/preferring.rs"]
mod preferring;
#[allow(dead_code, reason = "other tests need more of it")]
mod serving;

use duet_engine::{Device, Engine, EngineConfig, Generation, Method, PolicyName};
use duet_model::Model;
use duet_model::forward::{NotRun, TokenWise};
use duet_offload::{ExactModel, PlacedModel};
use duet_scheduler::machine::RowsTaken;
use duet_types::{Bytes, Class, TokenId, Tokens};
use serde_json::Value;
use serving::{ANSWER, answer, metric, model, start, until};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device that may be taken away.
#[derive(Debug)]
struct Killable {
    inner: PlacedModel,
    gone: Arc<AtomicBool>,
}

impl Killable {
    fn checked(&self, run: impl FnOnce(&PlacedModel) -> Result<(), NotRun>) -> Result<(), NotRun> {
        if self.gone.load(Ordering::Relaxed) { Err(NotRun::Failed("it has gone".to_owned())) } else { run(&self.inner) }
    }
}

impl TokenWise for Killable {
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

/// The machine, or nothing where there is no runtime.
fn machine(model: &Arc<Model>, gone: &Arc<AtomicBool>) -> Option<Vec<Device>> {
    let (npu, igpu) = (serving::device()?, serving::device()?);
    let chunks = Arc::new(ExactModel::ready_on(Arc::clone(model), Arc::new(npu), None, &mut |_| {}).unwrap());
    let inner = PlacedModel::ready_on(model, &igpu, None, &mut |_| {}).unwrap();
    let any = Killable { inner, gone: Arc::clone(gone) };
    let prepares = Some(Arc::clone(&chunks) as _);
    let npu = Device { rows: RowsTaken::Chunk, prepares, ..Device::new("npu", "", chunks) };
    Some(vec![npu, Device::new("igpu", "", Arc::new(any))])
}

fn config(devices: Vec<Device>, policy: PolicyName, folder: &Path) -> EngineConfig {
    EngineConfig {
        threads: Some(1),
        devices,
        policy,
        speculate: Method::None,
        chunk: Tokens(32),
        graph_bytes: Some(Bytes(1 << 30)),
        event_log: Some(folder.join("events.jsonl")),
        trace: Some(folder.join("trace.json")),
        ..EngineConfig::default()
    }
}

/// Prompts of both classes, all at once.
fn mixed(engine: &Engine) -> Vec<Vec<TokenId>> {
    let rows = [100, 40, 90, 64, 77, 33, 96, 50, 70, 110];
    let class = |index: usize| if index.is_multiple_of(2) { Class::Proactive } else { Class::Reactive };
    let all: Vec<Generation> =
        rows.iter().enumerate().map(|(index, &rows)| start(engine, rows, class(index))).collect();
    all.into_iter().map(answer).collect()
}

/// When a lane's kernels of one kind ran, from a trace.
fn spans(trace: &Value, lane: &str, of_kind: fn(&Value) -> bool) -> Vec<(f64, f64)> {
    let events = trace.as_array().unwrap();
    let named = |event: &&Value| event["name"] == "thread_name" && event["args"]["name"].as_str() == Some(lane);
    let tid = events.iter().find(named).unwrap_or_else(|| panic!("no {lane}"))["tid"].clone();
    let number = |value: &Value| value.as_f64().unwrap();
    events
        .iter()
        .filter(|event| event["ph"] == "X" && event["tid"] == tid && of_kind(&event["args"]))
        .map(|event| (number(&event["ts"]), number(&event["ts"]) + number(&event["dur"])))
        .collect()
}

fn reads_a_prompt(kernel: &Value) -> bool {
    kernel["stage"] == "prefill"
}

/// Whether a row of an answer is in it. A pass that has rows of a prompt as well is called a prefill; which passes
/// have some depends on how long the cores were measured to take.
fn steps_an_answer(kernel: &Value) -> bool {
    let one_row = |rows: &Value| {
        let (_, range) = rows.as_str().unwrap().trim_end_matches(']').split_once('[').unwrap();
        let (start, end) = range.split_once("..").unwrap();
        start.parse::<u32>().unwrap() + 1 == end.parse::<u32>().unwrap()
    };
    kernel["rows"].as_array().unwrap().iter().any(one_row)
}

fn trace(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("trace.json")).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| serde_json::from_str(&(text + "]")).unwrap())
}

#[test]
fn an_npu_a_gpu_and_the_cores_serve_both_classes_together() {
    let model = model();
    for policy in [PolicyName::Duet, PolicyName::AgentXpu] {
        let folder = tempfile::tempdir().unwrap();
        let Some(devices) = machine(&model, &Arc::default()) else { return };
        let engine = preferring::preferring_devices(&model, &config(devices, policy, folder.path()));
        let answers = mixed(&engine);
        assert!(answers.iter().all(|answer| answer.len() == ANSWER), "{policy}: {answers:?}");
        let work = engine.linear_work();
        assert!(work.devices.iter().all(|device| device.macs > 0), "{policy}: {work:?}");
        assert_eq!(work.refused(), 0, "{policy}");
        drop(engine);
        let log = BufReader::new(File::open(folder.path().join("events.jsonl")).unwrap());
        let replayed = duet_engine::replay(log).unwrap();
        assert!(replayed.commands > 100, "{policy}: {replayed:?}");
        let trace = trace(folder.path());
        let reads = spans(&trace, "npu", reads_a_prompt);
        let decodes = ["igpu", "cpu2"].iter().flat_map(|lane| spans(&trace, lane, steps_an_answer)).collect::<Vec<_>>();
        let beside =
            reads.iter().filter(|read| decodes.iter().any(|other| read.0 < other.1 && other.0 < read.1)).count();
        assert!(beside > 0, "{policy}: {} reads, {} decodes, none side by side", reads.len(), decodes.len());
    }
}

/// The first token of an answer follows from the whole prompt, however it was divided.
#[test]
fn first_tokens_are_those_of_the_cores_alone() {
    let model = model();
    let folder = tempfile::tempdir().unwrap();
    let Some(devices) = machine(&model, &Arc::default()) else { return };
    let engine = preferring::preferring_devices(&model, &config(devices, PolicyName::Duet, folder.path()));
    let found = mixed(&engine);
    drop(engine);
    let cores = EngineConfig { threads: Some(1), speculate: Method::None, ..EngineConfig::default() };
    let expected = mixed(&Engine::start(model, cores).unwrap());
    let same = found.iter().zip(&expected).filter(|(found, expected)| found[0] == expected[0]).count();
    // The model is random, and so its likeliest tokens are near each other: nine of ten is what rounding leaves.
    assert!(same >= 8, "{same} of {} first tokens: {found:?} {expected:?}", found.len());
}

#[test]
fn a_device_that_goes_in_the_middle_loses_no_request() {
    let model = model();
    let (folder, gone) = (tempfile::tempdir().unwrap(), Arc::<AtomicBool>::default());
    let Some(devices) = machine(&model, &gone) else { return };
    let engine = preferring::preferring_devices(&model, &config(devices, PolicyName::Duet, folder.path()));
    let first = start(&engine, 100, Class::Reactive);
    let others: Vec<Generation> = [90, 70, 50].iter().map(|&rows| start(&engine, rows, Class::Proactive)).collect();
    gone.store(true, Ordering::Relaxed);
    assert_eq!(answer(first).len(), ANSWER);
    assert!(others.into_iter().all(|other| answer(other).len() == ANSWER));
    assert_eq!(answer(start(&engine, 33, Class::Reactive)).len(), ANSWER);
    until(&engine, || metric(&engine, "duet_lane_usable{lane=\"igpu\"}") == 0);
    assert!(engine.is_running());
    gone.store(false, Ordering::Relaxed);
    until(&engine, || metric(&engine, "duet_lane_usable{lane=\"igpu\"}") == 1);
    drop(engine);
    let log = BufReader::new(File::open(folder.path().join("events.jsonl")).unwrap());
    duet_engine::replay(log).unwrap();
}
