//! A model on a GPU alone, and passes of it.

use duet_gpu::{Adapters, GpuModel};
use duet_kernels::crew::{Crew, Scoped, Solo};
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::{KvFormat, KvPool, KvTable};
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use std::cell::RefCell;
use std::error::Error;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// Rows of a chunk of a prompt.
pub(crate) const CHUNK: usize = 512;

/// Threads that put keys and values of a prompt into the cache.
const THREADS_MAX: usize = 8;
/// Of each row, what is read back of its logits.
const BEST: usize = 4;

pub(crate) struct Bed {
    pub(crate) model: Arc<Model>,
    pub(crate) gpu: GpuModel,
    pub(crate) adapter: String,
    pool: KvPool,
    activations: RefCell<Option<Activations>>,
    crew: Scoped,
}

/// What was given for an option.
pub(crate) fn given(name: &str, default: &str) -> String {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).unwrap_or_else(|| default.to_owned())
}

impl Bed {
    /// The model that the first argument names, on the GPU of `--gpu`, with a cache of so many positions.
    pub(crate) fn new(positions: usize) -> Result<Self, Box<dyn Error>> {
        let path = std::env::args().nth(1).ok_or("the path of a model is wanted")?;
        let model = Arc::new(Model::load(Path::new(&path), &LoadOptions::default(), &mut |_| {})?);
        let adapters = Adapters::look();
        let adapter = adapters.named(&given("--gpu", "gpu:0"))?;
        let gpu = GpuModel::new(Arc::clone(&model), adapter)?;
        let pool = model.kv_pool(KvFormat::Int8, Tokens(positions as u32));
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX);
        let (activations, crew) = (RefCell::default(), Scoped { threads });
        Ok(Self { model, gpu, adapter: adapter.full_name.clone(), pool, activations, crew })
    }

    /// Tokens that stand for text.
    fn text(&self, from: usize, count: usize) -> Vec<TokenId> {
        let vocabulary = self.model.config().vocabulary;
        (from..from + count).map(|i| TokenId(((i * 7919 + 1000) % vocabulary) as u32)).collect()
    }

    fn pass(&self, segments: Vec<Segment>) -> Result<Vec<KvTable>, Box<dyn Error>> {
        let (mut last, mut yielding) = (0, Vec::new());
        for segment in &segments {
            last += segment.tokens.len();
            yielding.push(last - 1);
        }
        let activations = self.activations.take().unwrap_or_else(|| Activations::new(&self.model, CHUNK));
        let mut pass = Pass::new(&self.model, activations, segments).map_err(|refused| refused.error)?;
        // Threads are begun anew each time: for few rows one is sooner done.
        let crew: &dyn Crew = if yielding.len() == pass.rows() { &Solo } else { &self.crew };
        // As greedy requests have it.
        pass.seek_best(&yielding, BEST);
        self.model.run_span_on(&self.gpu, &mut pass, &self.model.nodes(), crew)?;
        self.model.best_on(&self.gpu, &mut pass, &yielding, BEST)?.ok_or("a GPU does not look for so many")?;
        let (activations, tables) = pass.finish();
        self.activations.replace(Some(activations));
        Ok(tables)
    }

    /// Reads a prompt.
    pub(crate) fn read(&self, prompt: usize) -> Result<KvTable, Box<dyn Error>> {
        let mut table = self.pool.table();
        for chunk in self.text(0, prompt).chunks(CHUNK) {
            table = self.pass(vec![Segment::new(table, chunk.to_vec())])?.remove(0);
        }
        Ok(table)
    }

    /// So many sequences, which have read a context each.
    pub(crate) fn sequences(&self, batch: usize, context: usize) -> Result<Vec<KvTable>, Box<dyn Error>> {
        (0..batch).map(|_| self.read(context)).collect()
    }

    /// A token of each.
    pub(crate) fn step(&self, tables: &mut Vec<KvTable>, index: usize) -> Result<(), Box<dyn Error>> {
        let taken = std::mem::take(tables).into_iter().enumerate();
        let segments = taken.map(|(at, table)| Segment::new(table, self.text(at + index, 1))).collect();
        *tables = self.pass(segments)?;
        Ok(())
    }
}
