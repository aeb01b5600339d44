//! Attention as static chunk graphs, beside the CPU's own: over keys and values that stay where the graphs read them.

use crate::common::{furthest, runtime};
use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, AttentionStats, AttentionWise, ChunkRows, Node, NotRun, Pass, Segment};
use duet_model::kv::{KvFormat, KvTable};
use duet_model::{LoadOptions, Model};
use duet_offload::PlacedAttention;
use duet_openvino::{Activations as Rounding, CompileOptions};
use duet_runtimes::GraphDevice;
use duet_types::{Bytes, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHUNK: u32 = 64;

fn load(path: &Path) -> Arc<Model> {
    Arc::new(Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn tiny(name: &str) -> Arc<Model> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    load(&folder.join(format!("golden_{name}.gguf")))
}

fn device() -> Option<Arc<dyn GraphDevice>> {
    let device = runtime()?.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Rounding::ROUNDED));
    Some(Arc::new(device))
}

fn attention(model: &Model, chunk: u32) -> Option<PlacedAttention> {
    Some(PlacedAttention::ready_on(model, &*device()?, Tokens(chunk)).unwrap())
}

/// A sequence that is read in chunks, attention on the device where there is one and it takes it.
struct Reading<'a> {
    model: &'a Model,
    kv: Option<KvTable>,
    device: Option<&'a dyn AttentionWise>,
    logits: Vec<f32>,
    refused: usize,
}

impl<'a> Reading<'a> {
    fn new(model: &'a Model, kv: KvTable, device: Option<&'a dyn AttentionWise>) -> Self {
        Self { model, kv: Some(kv), device, logits: Vec::new(), refused: 0 }
    }

    fn kv(&self) -> &KvTable {
        self.kv.as_ref().unwrap()
    }

    /// Runs so many nodes for the tokens of these positions.
    fn nodes(&mut self, rows: u32, nodes: usize) -> Pass {
        let (kv, vocabulary) = (self.kv.take().unwrap(), self.model.config().vocabulary as u32);
        let token = |position: u32| TokenId((position * 37 + 11) % vocabulary.min(4000));
        let tokens = (kv.len().0..kv.len().0 + rows).map(token).collect();
        let activations = Activations::new(self.model, rows as usize);
        let mut pass = Pass::new(self.model, activations, vec![Segment::new(kv, tokens)]).unwrap();
        for node in self.model.nodes().into_iter().take(nodes) {
            if let (Node::Attention { layer }, Some(device)) = (node, self.device) {
                match self.model.attend_on(device, &mut pass, layer) {
                    Ok(()) => continue,
                    Err(NotRun::Unsupported(_)) => self.refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            self.model.run_node(&mut pass, node, 0..rows as usize, &Solo);
        }
        pass
    }

    fn read(&mut self, chunks: &[u32]) {
        for &rows in chunks {
            let mut pass = self.nodes(rows, usize::MAX);
            self.model.logits(&mut pass, &[rows as usize - 1], &mut self.logits, &Solo);
            self.kv = pass.finish().1.pop();
        }
        self.logits.truncate(self.model.config().vocabulary);
    }

    /// Begins a chunk and gives it up after so many nodes.
    fn cancel(&mut self, rows: u32, nodes: usize) {
        self.kv = self.nodes(rows, nodes).abandon().1.pop();
    }
}

fn logits(model: &Model, chunks: &[u32], format: KvFormat, device: Option<&dyn AttentionWise>) -> (Vec<f32>, usize) {
    let mut reading = Reading::new(model, model.kv_pool(format, Tokens(256)).table(), device);
    reading.read(chunks);
    (reading.logits, reading.refused)
}

#[test]
fn a_chunk_on_the_device_attends_as_on_the_cpu() {
    for name in ["llama", "qwen2", "qwen3", "mixtral", "qwen3moe", "qwen2moe"] {
        let model = tiny(name);
        let Some(device) = attention(&model, CHUNK) else { return };
        for format in [KvFormat::F16, KvFormat::Int8] {
            let before = device.stats();
            // The second chunk has a past; the last one is too short.
            let chunks = [CHUNK, CHUNK, 5];
            let (expected, _) = logits(&model, &chunks, format, None);
            let (found, refused) = logits(&model, &chunks, format, Some(&device));
            let worst = furthest(&found, &expected);
            assert!(worst < 0.02, "{name}, {format:?}: off by {worst}");
            let (layers, AttentionStats { launches, read, kept, .. }) =
                (model.config().layers, device.stats().since(&before));
            assert_eq!((refused, launches), (layers, 2 * layers as u64));
            // Each position once.
            assert_eq!(read, 2 * u64::from(CHUNK) * layers as u64);
            assert!(kept > Bytes(0));
        }
    }
}

/// Layers with a window are the crew's, the others the device's.
#[test]
fn layers_with_a_window_stay_with_the_crew() {
    let model = tiny("gemma3");
    let Some(device) = attention(&model, CHUNK) else { return };
    let windows = model.blueprint().layers.iter().filter(|layer| layer.window.is_some()).count();
    let (expected, _) = logits(&model, &[CHUNK, CHUNK], KvFormat::F16, None);
    let (found, refused) = logits(&model, &[CHUNK, CHUNK], KvFormat::F16, Some(&device));
    let worst = furthest(&found, &expected);
    assert!(worst < 0.02, "off by {worst}");
    assert!(windows > 0 && windows < model.config().layers);
    assert_eq!((refused, device.stats().launches), (2 * windows, 2 * (model.config().layers - windows) as u64));
}

/// A prompt that is cancelled in the middle of a chunk and read again, and two that go on from it: to the bit as if nothing
/// had been kept.
#[test]
fn forks_and_cancelled_prompts_find_what_they_would_without_a_past() {
    let model = tiny("llama");
    let Some(device) = attention(&model, CHUNK) else { return };
    let format = KvFormat::F16;
    let pool = model.kv_pool(format, Tokens(2048));
    let (fresh, _) = logits(&model, &[CHUNK, CHUNK, CHUNK], format, Some(&attention(&model, CHUNK).unwrap()));
    let (near, _) = logits(&model, &[CHUNK, CHUNK, CHUNK], format, None);
    let mut reading = Reading::new(&model, pool.table(), Some(&device));
    reading.read(&[CHUNK]);
    for nodes in [2, 3, model.nodes().len() - 1] {
        reading.cancel(CHUNK, nodes);
    }
    reading.read(&[CHUNK]);
    let fork = reading.kv().fork(Tokens(CHUNK + 30)).unwrap();
    reading.read(&[CHUNK]);
    assert_eq!(reading.logits, fresh);
    let worst = furthest(&reading.logits, &near);
    assert!(worst < 0.02, "off by {worst}");
    // One that goes on from the middle, and reads the same tokens in other chunks.
    let before = device.stats();
    let mut other = Reading::new(&model, fork, Some(&device));
    other.read(&[CHUNK, 2 * CHUNK - 30 - CHUNK]);
    let worst = furthest(&other.logits, &near);
    assert!(worst < 0.02, "off by {worst}");
    let layers = model.config().layers as u64;
    assert_eq!(device.stats().since(&before).read, u64::from(CHUNK) * layers, "what they have in common is there");
}

/// A context that has outgrown the graphs is the crew's, and its copy is given back.
#[test]
fn what_is_kept_of_a_context_that_is_too_long_is_given_back() {
    let model = tiny("llama");
    let Some(device) = attention(&model, 96) else { return };
    assert_eq!(device.chunks().context_max, Tokens(192), "one chunk and two; the model takes 256");
    let mut reading = Reading::new(&model, model.kv_pool(KvFormat::F16, Tokens(256)).table(), Some(&device));
    reading.read(&[96, 96]);
    assert!(device.stats().kept > Bytes(0) && reading.refused == 0);
    reading.read(&[64]);
    assert_eq!((device.stats().kept, reading.refused), (Bytes(0), model.config().layers));
}

/// Forgets what is kept before each layer, as if each chunk copied the whole cache.
#[derive(Debug)]
struct Forgetful<'a>(&'a PlacedAttention);

impl AttentionWise for Forgetful<'_> {
    fn chunks(&self) -> duet_model::forward::ChunksTaken {
        self.0.chunks()
    }

    fn attend(&self, layer: usize, chunk: &ChunkRows<'_>, attended: &mut [f32]) -> Result<(), NotRun> {
        self.0.outgrown(&chunk.cache);
        self.0.attend(layer, chunk, attended)
    }
}

/// The test model, a prompt of four chunks: as near as its products on the device are, and each position read once. Prints
/// what a chunk takes, and what it takes where the whole cache is read each time.
#[test]
fn a_prompt_of_several_chunks_on_the_test_model() {
    let Some(path) = duet_testing::path(duet_testing::Need::Model) else { return };
    let model = load(&path);
    let Some(device) = attention(&model, 256) else { return };
    let pool = model.kv_pool(KvFormat::F16, Tokens(4096));
    let chunks = [256, 256, 256, 256];
    let took = |device: Option<&dyn AttentionWise>| {
        let (mut reading, start) = (Reading::new(&model, pool.table(), device), Instant::now());
        reading.read(&chunks);
        (reading.logits, start.elapsed())
    };
    let (expected, on_cpu) = took(None);
    let before = device.stats();
    let (found, kept) = took(Some(&device));
    let after = device.stats();
    let (again, copied) = took(Some(&Forgetful(&device)));
    told("kept", &after.since(&before), kept);
    told("copied each time", &device.stats().since(&after), copied);
    println!("on the CPU: {on_cpu:?} in all");
    assert_eq!(found, again, "what is kept is what would be copied");
    let worst = furthest(&found, &expected);
    assert!(worst < 0.05, "off by {worst}");
    let likeliest = |logits: &[f32]| (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    assert_eq!(likeliest(&found), likeliest(&expected));
    let layers = model.config().layers as u64;
    assert_eq!(after.since(&before).read, 1024 * layers);
    assert_eq!(after.since(&before).launches, 4 * layers);
}

fn told(how: &str, stats: &AttentionStats, all: Duration) {
    let each = |ms: f64| ms / stats.launches as f64;
    println!(
        "{how}: {:.2} ms to get a layer's chunk ready, {:.2} ms on the device, {} positions read, {all:?} in all",
        each(stats.padding.as_millis_f64()),
        each(stats.running.as_millis_f64()),
        stats.read
    );
}
