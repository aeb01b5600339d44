//! `duet bench throughput`: how fast a model runs on this machine, and how near to what the machine can do.

use crate::ceiling::{Sample, beside, overall};
use crate::forward::likeliest_of_each;
pub use crate::probe::Ceilings;
use crate::probe::{Ceiling, peak_rss_bytes};
use crate::samples::median;
use duet_device::{Cpu, CpuConfig, Pinning};
use duet_engine::profile::heg;
use duet_kernels::crew::Crew;
use duet_kernels::read_ahead::ReadAhead;
use duet_model::arch::Blueprint;
use duet_model::forward::{Activations, Node, Pass, PassRefused, Segment};
use duet_model::gguf::{GgufFile, TensorInfo};
use duet_model::kv::{KvFormat, KvPool, KvTable};
use duet_model::{ExpertMemoryStats, ExpertUnread, LoadError, LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use serde::Serialize;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Prompt tokens of the prefill measurement.
    pub prompt: usize,
    /// Tokens generated in each decode measurement.
    pub generate: usize,
    /// Sequences decoded together.
    pub batches: Vec<usize>,
    /// Threads.
    pub threads: usize,
    /// Samples of each figure.
    pub samples: usize,
    /// Contexts beyond [`DECODE_CONTEXT`] to decode at, with each KV format.
    pub long_contexts: Vec<usize>,
}

/// Rows of a prefill pass.
const CHUNK: usize = 256;

/// Context at which decode and pass costs are measured.
pub const DECODE_CONTEXT: usize = 128;

/// Rows of the passes whose cost is compared.
const PASS_ROWS: [usize; 10] = [1, 2, 3, 4, 5, 6, 8, 12, 16, 32];

/// What was measured: medians over `n` samples.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model's name.
    pub model: String,
    /// The instruction set of the kernels.
    pub isa: String,
    /// How products of few rows fetch their weights: the way in which a step of one sequence was fastest.
    pub read_ahead: String,
    /// As set.
    pub threads: usize,
    /// As set.
    pub prompt: usize,
    /// As set.
    #[serde(rename = "gen")]
    pub generate: usize,
    /// Samples of each figure.
    pub n: usize,
    /// What the machine can do.
    pub ceilings: Ceilings,
    /// From opening the file to a model that can run.
    pub load_s: f64,
    /// Most memory in use, up to the end of a prefill and a decode with each batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
    /// Packed weights.
    pub weight_bytes: u64,
    /// Weights that a token of one sequence needs, as the file stores them: no row of the embedding but one, which does
    /// not count; of experts those that a token goes to.
    pub file_bytes_per_token: u64,
    /// The same weights as they are packed, which is what is read.
    pub packed_bytes_per_token: u64,
    /// `file_bytes_per_token` for each token of the decode with a batch of 1, over the read ceiling: what of the machine's
    /// bandwidth is put to use. Absent without such a decode, or if its share of the ceiling is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_share_of_ceiling: Option<f64>,
    /// KV of the largest measurement that `peak_rss_bytes` covers.
    pub kv_bytes: u64,
    /// Prompt tokens a second.
    pub prefill_tok_s: f64,
    /// 10⁹ multiply-accumulates a second within QKV and feed-forward nodes, norms and rope included in their time.
    pub prefill_linear_gmacs: f64,
    /// That over the integer ceiling probed beside each sample; absent if it was above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_share_of_ceiling: Option<f64>,
    /// Why it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<String>,
    /// Share of prefill time spent in attention nodes.
    pub prefill_attention_share: f64,
    /// By batch, at a context of [`DECODE_CONTEXT`].
    pub decode: Vec<Decode>,
    /// By context and KV format.
    pub decode_long: Vec<DecodeLong>,
    /// By rows of one sequence, head included, at a context of [`DECODE_CONTEXT`].
    pub pass_cost: Vec<PassCost>,
    /// The same at each of the long contexts.
    pub pass_cost_long: Vec<PassCostLong>,
}

/// Decode speed of a batch.
#[derive(Clone, Debug, Serialize)]
pub struct Decode {
    /// Sequences.
    pub batch: usize,
    /// Tokens of all sequences together a second.
    pub tok_s: f64,
    /// Weights and KV read, 10⁹ bytes a second.
    pub read_gbs: f64,
    /// That over the read ceiling probed beside each sample; absent if it was above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_share: Option<f64>,
    /// Why it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<String>,
    /// What was read from disk, of the first sample, where experts are on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertReads>,
}

/// Experts that were read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExpertReads {
    /// Bytes for a token.
    pub bytes_per_token: f64,
    /// Of the experts that layers asked for, the share that was in memory.
    pub in_memory: f64,
    /// The share that was on its way because it was foreseen.
    pub foreseen: f64,
    /// Of the experts that were foreseen, the share that was asked for; absent if none were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreseen_right: Option<f64>,
    /// How long passes waited for the disk, in seconds.
    pub waited_s: f64,
}

impl ExpertReads {
    /// What was done between two times, for so many tokens.
    fn of(before: &ExpertMemoryStats, after: &ExpertMemoryStats, tokens: usize) -> Self {
        let (cache, earlier) = (after.cache, before.cache);
        let (hits, misses) = (cache.hits - earlier.hits, cache.misses - earlier.misses);
        let foreseen = cache.foreseen_used - earlier.foreseen_used;
        let share = |count: u64| count as f64 / (hits + misses).max(1) as f64;
        let [predicted, right] = [0, 1].map(|at| after.predicted[at] - before.predicted[at]);
        Self {
            bytes_per_token: (after.read.0 - before.read.0) as f64 / tokens.max(1) as f64,
            in_memory: share(hits - foreseen),
            foreseen: share(foreseen),
            foreseen_right: (predicted > 0).then(|| right as f64 / predicted as f64),
            waited_s: (after.waited - before.waited).as_secs_f64(),
        }
    }
}

/// Decode speed of one sequence at a long context.
#[derive(Clone, Debug, Serialize)]
pub struct DecodeLong {
    /// Context.
    pub context: usize,
    /// `f16` or `int8`.
    pub kv: &'static str,
    /// Tokens a second.
    pub tok_s: f64,
    /// As in [`Decode`].
    pub read_gbs: f64,
    /// As in [`Decode`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_share: Option<f64>,
    /// As in [`Decode`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspect: Option<String>,
}

/// The cost of a pass.
#[derive(Clone, Debug, Serialize)]
pub struct PassCost {
    /// Rows of one sequence.
    pub rows: usize,
    /// Milliseconds.
    pub ms: f64,
    /// Over that of one row.
    pub ratio: f64,
}

/// The costs of passes at a long context.
#[derive(Clone, Debug, Serialize)]
pub struct PassCostLong {
    /// Context.
    pub context: usize,
    /// By rows.
    pub pass_cost: Vec<PassCost>,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum ThroughputError {
    /// The model could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Settings beyond the model's context.
    #[error("{tokens} tokens exceed the model's context of {context}")]
    Context {
        /// What the settings need.
        tokens: usize,
        /// The model's.
        context: usize,
    },
    /// Threads could not be started, or a lane stopped.
    #[error("cannot run on this machine's cores: {0}")]
    Lanes(String),
    /// A pass was refused.
    #[error("a pass was refused: {0}")]
    Pass(String),
    /// Weights on disk could not be read.
    #[error(transparent)]
    Unread(#[from] ExpertUnread),
}

/// Measures `path`; `progress` gets a line for each phase.
///
/// # Errors
/// [`ThroughputError`] names what is wrong.
pub fn run(path: &Path, settings: &Settings, progress: fn(&str)) -> Result<Report, ThroughputError> {
    progress("loading");
    let start = Instant::now();
    let model = Model::load(path, &LoadOptions::default(), &mut |_| {})?;
    run_loaded(path, (Arc::new(model), start.elapsed()), settings, progress)
}

/// The same of a model that is loaded already, which took so long.
///
/// # Errors
/// As [`run`].
pub fn run_loaded(
    path: &Path,
    (model, load): (Arc<Model>, Duration),
    settings: &Settings,
    progress: fn(&str),
) -> Result<Report, ThroughputError> {
    let file_bytes = file_bytes_per_token(&GgufFile::open(path).map_err(LoadError::from)?, model.blueprint());
    let longest = settings.long_contexts.iter().copied().max().unwrap_or(0).max(DECODE_CONTEXT);
    let tokens = settings.prompt.max(longest + settings.generate.max(PASS_ROWS[PASS_ROWS.len() - 1]));
    let context = model.config().context.as_usize();
    if tokens > context {
        return Err(ThroughputError::Context { tokens, context });
    }
    let lanes = CpuConfig { lanes: vec![settings.threads.max(1)], pinning: Pinning::Pinned };
    let cpu = Cpu::start(&lanes).map_err(|error| ThroughputError::Lanes(error.to_string()))?;
    let (send, receive) = mpsc::channel();
    let lanes = cpu.lanes();
    let all = lanes.all();
    let settings = settings.clone();
    let job = Box::new(move |crew: &dyn Crew| {
        let report = Bench { model: &model, crew, settings: &settings, progress }.report(load, file_bytes);
        // The receiver waits for this; if it is gone, nobody wants the report.
        let _ = send.send(report);
    });
    lanes.launch(all, job).map_err(|error| ThroughputError::Lanes(error.to_string()))?;
    receive.recv().map_err(|_| ThroughputError::Lanes("a kernel panicked".to_owned()))?
}

struct Bench<'a> {
    model: &'a Model,
    crew: &'a dyn Crew,
    settings: &'a Settings,
    progress: fn(&str),
}

/// A prefill's times.
struct Prefill {
    total: Duration,
    linear: Duration,
    /// Of linear layers.
    macs: u64,
    attention: Duration,
}

impl Bench<'_> {
    fn report(&self, load: Duration, file_bytes: u64) -> Result<Report, ThroughputError> {
        let (model, settings) = (self.model, self.settings);
        let samples = settings.samples.max(1);
        let mut ceiling = Ceiling::new(model.isa(), self.crew);
        (self.progress)("warming up");
        let kv_bytes = self.warm_up()?;
        let read_ahead = self.try_read_ahead()?.to_string();
        let peak_rss_bytes = peak_rss_bytes();

        (self.progress)("prefill");
        let (mut rates, mut linear, mut shares, mut attention) = (vec![], vec![], vec![], vec![]);
        let macs = |prefill: &Prefill| prefill.macs as f64 / prefill.linear.as_secs_f64();
        for _ in 0..samples {
            let (prefill, share) = beside(|| {
                let before = ceiling.int8();
                let value = self.prefill(settings.prompt)?;
                Ok::<_, ThroughputError>(Sample { rate: macs(&value), value, before, after: ceiling.int8() })
            })?;
            rates.push(settings.prompt as f64 / prefill.total.as_secs_f64());
            linear.push(macs(&prefill) / 1e9);
            shares.push(share);
            attention.push(prefill.attention.as_secs_f64() / prefill.total.as_secs_f64());
        }
        let (prefill_share_of_ceiling, suspect) = overall(&shares, "linear layers", "GMAC/s", DISTURBED);

        (self.progress)("decode");
        let decode: Result<Vec<Decode>, _> =
            settings.batches.iter().map(|&batch| self.decode(batch, samples, &mut ceiling)).collect();
        let mut decode_long = Vec::new();
        for &context in &settings.long_contexts {
            for format in KvFormat::ALL {
                let speed = self.decode_at(context, format, 1, samples, &mut ceiling)?;
                let Decode { tok_s, read_gbs, read_share, suspect, .. } = speed;
                decode_long.push(DecodeLong { context, kv: format.name(), tok_s, read_gbs, read_share, suspect });
            }
        }
        (self.progress)("pass cost");
        let pass_cost = self.pass_costs(DECODE_CONTEXT, samples)?;
        let mut pass_cost_long = Vec::new();
        for &context in &settings.long_contexts {
            pass_cost_long.push(PassCostLong { context, pass_cost: self.pass_costs(context, samples)? });
        }
        let middle = |values| median(values).unwrap_or(0.0);
        let (decode, ceilings) = (decode?, ceiling.ceilings());
        let one = decode.iter().find(|decode| decode.batch == 1 && decode.read_share.is_some());
        Ok(Report {
            model: model.config().name.clone(),
            isa: model.isa().to_string(),
            read_ahead,
            threads: settings.threads,
            prompt: settings.prompt,
            generate: settings.generate,
            n: samples,
            ceilings,
            load_s: load.as_secs_f64(),
            peak_rss_bytes,
            weight_bytes: model.weight_bytes().0,
            file_bytes_per_token: file_bytes,
            packed_bytes_per_token: self.weights_read(1) as u64,
            read_share_of_ceiling: one.map(|one| file_bytes as f64 * one.tok_s / (ceilings.read_gbs * 1e9)),
            kv_bytes,
            prefill_tok_s: middle(rates),
            prefill_linear_gmacs: middle(linear),
            prefill_share_of_ceiling,
            suspect,
            prefill_attention_share: middle(attention),
            decode,
            decode_long,
            pass_cost,
            pass_cost_long,
        })
    }

    /// One prefill and one decode step of each batch. Returns the KV bytes of the largest.
    fn warm_up(&self) -> Result<u64, ThroughputError> {
        self.prefill(self.settings.prompt)?;
        let page = |pool: &KvPool| (pool.capacity_pages() - pool.free_pages()) as u64 * pool.page_bytes().0;
        let mut most = 0;
        for &batch in &self.settings.batches {
            let pool = self.pool(KvFormat::default(), batch * (DECODE_CONTEXT + self.settings.generate + 64));
            let mut tables = self.contexts(&pool, DECODE_CONTEXT, batch)?;
            self.steps(&mut tables, 1)?;
            most = most.max(page(&pool));
        }
        Ok(most)
    }

    /// With whole steps: an engine's profile tries the same with some of the layers.
    fn try_read_ahead(&self) -> Result<ReadAhead, ThroughputError> {
        let pool = self.pool(KvFormat::default(), 64);
        let mut tables = self.contexts(&pool, 1, 1)?;
        ReadAhead::tried(|| {
            let took = self.steps(&mut tables, 1)?;
            tables.iter_mut().for_each(|table| table.truncate(Tokens(1)));
            Ok(took.as_secs_f64())
        })
    }

    fn pool(&self, format: KvFormat, tokens: usize) -> KvPool {
        // Each table may waste most of a page.
        self.model.kv_pool(format, Tokens((tokens + 64 * 64) as u32))
    }

    fn prefill(&self, prompt: usize) -> Result<Prefill, ThroughputError> {
        let pool = self.pool(KvFormat::default(), prompt);
        let mut activations = Activations::new(self.model, CHUNK.min(prompt));
        let mut kv = pool.table();
        let tokens = self.text(prompt, 0);
        let mut times = Prefill { total: Duration::ZERO, linear: Duration::ZERO, macs: 0, attention: Duration::ZERO };
        let start = Instant::now();
        for chunk in tokens.chunks(CHUNK) {
            let is_last = chunk.as_ptr_range().end == tokens.as_ptr_range().end;
            let mut pass = self.pass(activations, vec![Segment::new(kv, chunk.to_vec())])?;
            pass.set_head_rows(chunk.len() - usize::from(is_last)..chunk.len());
            for node in self.model.nodes() {
                let start = Instant::now();
                self.model.try_run_node(&mut pass, node, 0..chunk.len(), self.crew)?;
                match node {
                    Node::Embed => {}
                    Node::Attention { .. } => times.attention += start.elapsed(),
                    Node::Qkv { .. } | Node::Ffn { .. } | Node::Route { .. } | Node::Experts { .. } => {
                        times.linear += start.elapsed()
                    }
                }
                let rows = self.model.rows_of(&pass, node, 0..chunk.len());
                times.macs += rows.len() as u64 * self.model.linear_of(node).macs;
            }
            if is_last {
                self.model.logits(&mut pass, &[chunk.len() - 1], &mut Vec::new(), self.crew);
            }
            let (buffers, tables) = pass.finish();
            activations = buffers;
            kv = only(tables)?;
        }
        times.total = start.elapsed();
        Ok(times)
    }

    fn decode(&self, batch: usize, samples: usize, ceiling: &mut Ceiling<'_>) -> Result<Decode, ThroughputError> {
        self.decode_at(DECODE_CONTEXT, KvFormat::default(), batch, samples, ceiling)
    }

    fn decode_at(
        &self,
        context: usize,
        format: KvFormat,
        batch: usize,
        samples: usize,
        ceiling: &mut Ceiling<'_>,
    ) -> Result<Decode, ThroughputError> {
        let steps = self.settings.generate.max(1);
        let pool = self.pool(format, batch * (context + steps + 64));
        let mut tables = self.contexts(&pool, context, batch)?;
        let kv_token = pool.page_bytes().0 as f64 / 64.0;
        let (mut rates, mut reads, mut shares) = (vec![], vec![], vec![]);
        let mut experts = Vec::new();
        let kv = (context as f64 + steps as f64 / 2.0) * batch as f64 * kv_token;
        let read = |took: f64| (self.weights_read(batch) + kv) * steps as f64 / took;
        for _ in 0..samples {
            let (took, share) = beside(|| {
                let (before, stats) = (ceiling.read(), self.model.expert_memory_stats());
                let value = self.steps(&mut tables, steps)?.as_secs_f64();
                let after = stats.zip(self.model.expert_memory_stats());
                experts.extend(after.map(|(before, after)| ExpertReads::of(&before, &after, batch * steps)));
                let sample = Sample { rate: read(value), value, before, after: ceiling.read() };
                for table in &mut tables {
                    table.truncate(Tokens(context as u32));
                }
                Ok::<_, ThroughputError>(sample)
            })?;
            rates.push((batch * steps) as f64 / took);
            reads.push(read(took) / 1e9);
            shares.push(share);
        }
        let middle = |values| median(values).unwrap_or(0.0);
        let (read_share, suspect) = overall(&shares, "reading weights and KV", "GB/s", DISTURBED_OR_CACHED);
        // Of the first sample: the next ones go the same way again, with what that left in memory.
        let experts = experts.into_iter().next();
        Ok(Decode { batch, tok_s: middle(rates), read_gbs: middle(reads), read_share, suspect, experts })
    }

    /// Bytes of weights that a step of `batch` sequences reads: of experts as many as the scheduler expects.
    fn weights_read(&self, batch: usize) -> f64 {
        let (heg, rows) = (heg(self.model, KvFormat::default()), batch as f64);
        let layer = heg.qkv.weights_read(rows) + heg.ffn.weights_read(rows);
        heg.layers as f64 * layer + heg.head.weights_read(rows)
    }

    /// `steps` greedy steps of all sequences together; where experts are on disk, over tokens that are spread over the
    /// vocabulary.
    fn steps(&self, tables: &mut Vec<KvTable>, steps: usize) -> Result<Duration, ThroughputError> {
        let (batch, vocabulary) = (tables.len(), self.model.config().vocabulary);
        let rows: Vec<usize> = (0..batch).collect();
        let mut activations = Activations::new(self.model, batch);
        let mut tokens = self.text(batch, 7);
        let mut logits = Vec::new();
        let start = Instant::now();
        for step in 0..steps {
            let segments = tables.drain(..).zip(&tokens).map(|(kv, &token)| Segment::new(kv, vec![token]));
            let mut pass = self.pass(activations, segments.collect())?;
            self.run_all(&mut pass)?;
            self.model.logits(&mut pass, &rows, &mut logits, self.crew);
            let chosen = likeliest_of_each(&logits[..batch * vocabulary], vocabulary, self.crew);
            // Experts on disk are read for what is said, and a model of random weights repeats itself.
            let goes_on = self.model.expert_memory().is_none();
            tokens = if goes_on { chosen } else { self.text(batch, 8 + step) };
            (activations, *tables) = pass.finish();
        }
        Ok(start.elapsed())
    }

    fn pass_costs(&self, context: usize, samples: usize) -> Result<Vec<PassCost>, ThroughputError> {
        /// Passes of each size in a sample: enough to time, few enough that the machine's speed holds.
        const REPEAT: usize = 8;
        let pool = self.pool(KvFormat::default(), context + 64);
        let mut tables = self.contexts(&pool, context, 1)?;
        let mut times = vec![Vec::new(); PASS_ROWS.len()];
        let mut activations = Activations::new(self.model, PASS_ROWS[PASS_ROWS.len() - 1]);
        let mut logits = Vec::new();
        for _ in 0..samples {
            for (times, rows) in times.iter_mut().zip(PASS_ROWS) {
                let tokens = self.text(rows, 3);
                let chosen: Vec<usize> = (0..rows).collect();
                let start = Instant::now();
                for _ in 0..REPEAT {
                    let segments = tables.drain(..).map(|kv| Segment::new(kv, tokens.clone()));
                    let mut pass = self.pass(activations, segments.collect())?;
                    self.run_all(&mut pass)?;
                    self.model.logits(&mut pass, &chosen, &mut logits, self.crew);
                    (activations, tables) = pass.abandon();
                }
                times.push(start.elapsed().as_secs_f64() * 1e3 / REPEAT as f64);
            }
        }
        let one = median(times[0].clone()).unwrap_or(0.0);
        let costs = times.into_iter().zip(PASS_ROWS).map(|(times, rows)| {
            let ms = median(times).unwrap_or(0.0);
            PassCost { rows, ms, ratio: ms / one }
        });
        Ok(costs.collect())
    }

    /// `count` sequences of `context` tokens.
    fn contexts(&self, pool: &KvPool, context: usize, count: usize) -> Result<Vec<KvTable>, ThroughputError> {
        let mut activations = Activations::new(self.model, CHUNK);
        let mut all = Vec::with_capacity(count);
        for index in 0..count {
            let mut kv = pool.table();
            for chunk in self.text(context, index).chunks(CHUNK) {
                let mut pass = self.pass(activations, vec![Segment::new(kv, chunk.to_vec())])?;
                self.run_all(&mut pass)?;
                let (buffers, tables) = pass.finish();
                activations = buffers;
                kv = only(tables)?;
            }
            all.push(kv);
        }
        Ok(all)
    }

    fn run_all(&self, pass: &mut Pass) -> Result<(), ThroughputError> {
        let rows = pass.rows();
        let mut nodes = self.model.nodes().into_iter();
        Ok(nodes.try_for_each(|node| self.model.try_run_node(pass, node, 0..rows, self.crew))?)
    }

    fn pass(&self, activations: Activations, segments: Vec<Segment>) -> Result<Pass, ThroughputError> {
        Pass::new(self.model, activations, segments)
            .map_err(|refused: Box<PassRefused>| ThroughputError::Pass(refused.error.to_string()))
    }

    /// Tokens that stand for text: spread over the vocabulary, the same in every run.
    fn text(&self, count: usize, seed: usize) -> Vec<TokenId> {
        tokens(self.model.config().vocabulary, count, seed)
    }
}

/// Tokens of no text, others for each seed.
pub(crate) fn tokens(vocabulary: usize, count: usize, seed: usize) -> Vec<TokenId> {
    (0..count).map(|i| TokenId(((i * 7919 + seed * 104_729 + 1000) % vocabulary) as u32)).collect()
}

/// Bytes of the file's tensors that one token needs: experts in proportion, the embedding only where it is the head too.
fn file_bytes_per_token(file: &GgufFile, blueprint: &Blueprint) -> u64 {
    const EMBEDDING: &str = "token_embd.weight";
    let is_head_too = file.tensor("output.weight").is_none();
    let chosen = |tensor: &TensorInfo| match blueprint.experts {
        Some(experts) if tensor.name.contains("_exps.") => experts.chosen as f64 / experts.count as f64,
        _ => 1.0,
    };
    let read = file.tensors().iter().filter(|tensor| is_head_too || tensor.name != EMBEDDING);
    read.map(|tensor| tensor.bytes() as f64 * chosen(tensor)).sum::<f64>() as u64
}

/// What a figure above its ceiling is due to.
const DISTURBED: &str = "the probes were disturbed; measure again on a machine that does nothing else";
const DISTURBED_OR_CACHED: &str =
    "the probes were disturbed, or a cache holds what is read; a ceiling of memory says nothing then";

fn only(mut tables: Vec<KvTable>) -> Result<KvTable, ThroughputError> {
    tables.pop().ok_or_else(|| ThroughputError::Pass("no table came back".to_owned()))
}
