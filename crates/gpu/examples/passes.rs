//! A model on a GPU alone, in tokens a second: prompts, and answers of several sequences, head included; and the head alone of as
//! many rows, in milliseconds and in bytes that come back, with all logits and with the best of each row:
//! `cargo run --release -p duet-gpu --example passes -- MODEL.gguf [--gpu gpu:0] [--prompt 512] [--context 128] [--gen 16]
//! [--batch 1,16] [--best 4]`. One JSON object on stdout.

use duet_gpu::{Adapters, GpuModel};
use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, Pass, Segment, TokenWise};
use duet_model::kv::{KvFormat, KvPool, KvTable};
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Rows of a chunk of a prompt.
const CHUNK: usize = 256;
/// How often a head is timed; the first compiles.
const HEADS: usize = 6;

struct Bed {
    model: Arc<Model>,
    gpu: GpuModel,
    pool: KvPool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str, default: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).cloned().unwrap_or_else(|| default.to_owned())
    };
    let path = arguments.first().ok_or("the path of a model is wanted")?;
    let (prompt, context): (usize, usize) = (given("--prompt", "512").parse()?, given("--context", "128").parse()?);
    let new: usize = given("--gen", "16").parse()?;
    let batches = given("--batch", "1,16").split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let most = batches.iter().max().copied().unwrap_or(1);
    let model = Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {})?);
    let adapters = Adapters::look();
    let adapter = adapters.named(&given("--gpu", "gpu:0"))?;
    let gpu = GpuModel::new(Arc::clone(&model), adapter)?;
    // Sequences round their positions up to whole pages.
    let pool = model.kv_pool(KvFormat::Int8, Tokens((most * (context + new + 64)).max(2 * prompt + 128) as u32));
    let bed = Bed { model, gpu, pool };
    // Compiles what is to be timed.
    bed.read(CHUNK.min(prompt))?;
    let began = Instant::now();
    bed.read(prompt)?;
    let prefill = prompt as f64 / began.elapsed().as_secs_f64();
    let decode = batches.iter().map(|&batch| {
        let speed = bed.decode(batch, context, new)?;
        Ok(format!("\"decode {batch}\": {speed:.2}"))
    });
    let decode = decode.collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(", ");
    let count: usize = given("--best", "4").parse()?;
    let heads = batches.iter().map(|&rows| {
        let (all, best) = (bed.head(rows, None)?, bed.head(rows, Some(count))?);
        Ok(format!("\"head {rows}\": {all}, \"head {rows}, best {count}\": {best}"))
    });
    let heads = heads.collect::<Result<Vec<_>, Box<dyn Error>>>()?.join(", ");
    println!("{{\"adapter\": \"{}\", \"prefill\": {prefill:.2}, {decode}, {heads}}}", adapter.full_name);
    Ok(())
}

impl Bed {
    /// Tokens that stand for text.
    fn text(&self, from: usize, count: usize) -> Vec<TokenId> {
        let vocabulary = self.model.config().vocabulary;
        (from..from + count).map(|i| TokenId(((i * 7919 + 1000) % vocabulary) as u32)).collect()
    }

    fn pass(&self, segments: Vec<Segment>) -> Result<Vec<KvTable>, Box<dyn Error>> {
        let rows: usize = segments.iter().map(|segment| segment.tokens.len()).sum();
        let (mut last, mut yielding) = (0, Vec::new());
        for segment in &segments {
            last += segment.tokens.len();
            yielding.push(last - 1);
        }
        let activations = Activations::new(&self.model, rows);
        let mut pass = Pass::new(&self.model, activations, segments).map_err(|refused| refused.error)?;
        self.model.run_span_on(&self.gpu, &mut pass, &self.model.nodes(), &Solo)?;
        let mut logits = Vec::new();
        self.model.logits_on(&self.gpu, &mut pass, &yielding, &mut logits)?;
        Ok(pass.finish().1)
    }

    fn read(&self, prompt: usize) -> Result<KvTable, Box<dyn Error>> {
        let mut table = self.pool.table();
        for chunk in self.text(0, prompt).chunks(CHUNK) {
            table = self.pass(vec![Segment::new(table, chunk.to_vec())])?.remove(0);
        }
        Ok(table)
    }

    /// Tokens a second of so many sequences together.
    fn decode(&self, batch: usize, context: usize, new: usize) -> Result<f64, Box<dyn Error>> {
        let mut tables = (0..batch).map(|_| self.read(context)).collect::<Result<Vec<_>, _>>()?;
        let mut step = |index: usize| -> Result<(), Box<dyn Error>> {
            let taken = std::mem::take(&mut tables).into_iter().enumerate();
            let segments = taken.map(|(at, table)| Segment::new(table, self.text(at + index, 1))).collect();
            tables = self.pass(segments)?;
            Ok(())
        };
        step(0)?;
        let began = Instant::now();
        (1..new).try_for_each(&mut step)?;
        Ok(((new - 1) * batch) as f64 / began.elapsed().as_secs_f64())
    }
    /// What the head costs for so many rows, with all their logits or with the best of each: the least of a few times.
    fn head(&self, rows: usize, best: Option<usize>) -> Result<String, Box<dyn Error>> {
        let (hidden, vocabulary) = (self.model.blueprint().hidden, self.model.config().vocabulary);
        let residual: Vec<f32> = (0..rows * hidden).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let mut logits = vec![0.0; rows * vocabulary];
        let (mut least, mut bytes) = (f64::INFINITY, 0);
        for _ in 0..HEADS {
            let (began, before) = (Instant::now(), self.gpu.read_bytes());
            match best {
                None => self.gpu.head(&residual, &mut logits)?,
                Some(count) => {
                    self.gpu.head_best(&residual, count)?.ok_or("a GPU does not look for so many")?;
                }
            }
            least = least.min(began.elapsed().as_secs_f64());
            bytes = (self.gpu.read_bytes() - before).0;
        }
        Ok(format!("{{\"ms\": {:.3}, \"bytes\": {bytes}}}", 1e3 * least))
    }
}
