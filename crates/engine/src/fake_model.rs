//! A small deterministic model for the engine's tests. It is a real implementation of the seam: its next token depends
//! on every token in its KV, pages are counted and run out, nodes must come in order and on the whole crew, and tokens
//! of its vocabulary make kernels wait or panic.

use crate::backend::{Accepted, Backend, KvPages, Refused, Rows, Shape, Table};
use crate::executors::{Ran, Site};
use crate::request::EngineError;
use duet_kernels::crew::Crew;
use duet_model::Tell;
use duet_model::encoder::Text;
use duet_model::forward::BestOfRow;
use duet_model::kv::{KvError, PAGE_TOKENS};
use duet_scheduler::OnMiss;
use duet_types::{LaneSet, TokenId, Tokens};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub(crate) const VOCABULARY: usize = 40;
/// Floats of a hidden state.
pub(crate) const HIDDEN: usize = 3;
/// What opens a model's reasoning, and what closes it.
pub(crate) const THINK: [TokenId; 2] = [TokenId(34), TokenId(35)];
/// After this token of a prompt the model spells the script, then ends its turn.
pub(crate) const SPELL: TokenId = TokenId(36);
/// A kernel with this row panics.
pub(crate) const PANIC: TokenId = TokenId(37);
/// A kernel with this row waits until the test lets it go.
pub(crate) const HOLD: TokenId = TokenId(38);
/// The end of a turn.
pub(crate) const END: TokenId = TokenId(39);
/// Embeddings and two layers.
pub(crate) const NODES: usize = 7;

/// Embeddings and three layers.
pub(crate) const ENCODER_NODES: usize = 10;

/// A hash of a text.
pub(crate) fn hash_of(text: &[TokenId]) -> f32 {
    (text.iter().fold(7_u64, |hash, token| mix(hash ^ u64::from(token.0))) % 1_000_000) as f32
}

/// A test that fails while it holds a kernel ends nevertheless.
const HOLD_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct FakeModel {
    pub(crate) pool: FakePool,
    pub(crate) script: Vec<TokenId>,
    pub(crate) context: Tokens,
    /// Rows computed, over all passes.
    pub(crate) rows: AtomicUsize,
    /// Those of them that were to be read behind the last layer.
    pub(crate) head_rows: AtomicUsize,
    pub(crate) hold: Arc<Hold>,
    /// Whether a device computes parts of nodes without the pass.
    pub(crate) device: FakeDevice,
    /// Whether all of its kernels panic.
    pub(crate) is_broken: bool,
    /// Where it brings back the best of rows and no others, and how many rows it did that for; else it has to be asked for all.
    pub(crate) best: Option<Arc<AtomicUsize>>,
    /// Rows of nodes that ran on a graph which was made for them.
    pub(crate) exact: AtomicUsize,
    /// How often a pass left lanes to wait for weights.
    pub(crate) given_back: AtomicUsize,
}

/// What becomes of parts of nodes that go to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FakeDevice {
    /// There is none: a lane is a lane.
    Absent,
    Works,
    /// It loses every kernel to the crew.
    Refuses,
}

/// What nodes read: the tokens of a pass.
#[derive(Debug)]
pub(crate) struct FakeInputs {
    nodes: Range<usize>,
    tokens: Vec<TokenId>,
}

/// What rows of nodes came to.
#[derive(Debug)]
pub(crate) struct FakeOutputs {
    nodes: Range<usize>,
    rows: Range<usize>,
}

/// Where kernels with a `HOLD` row wait.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    state: Mutex<HoldState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HoldState {
    reached: usize,
    let_go: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct FakePool {
    used: Arc<AtomicUsize>,
    capacity: usize,
}

#[derive(Debug)]
pub(crate) struct FakeTable {
    pool: FakePool,
    tokens: Vec<TokenId>,
    pages: usize,
}

#[derive(Debug)]
pub(crate) struct FakePass {
    segments: Vec<FakeSegment>,
    /// Those that are encoded, in a pass of the encoder.
    texts: Option<Arc<[Text]>>,
    /// The next node of each row.
    nodes: Vec<usize>,
    /// Nodes whose weights were read for it.
    read: Vec<usize>,
    /// Rows that are read behind the last layer.
    head_rows: Range<usize>,
}

#[derive(Debug)]
struct FakeSegment {
    table: FakeTable,
    /// Length before the pass.
    before: usize,
    /// As [`Rows`] has them.
    parents: Option<Vec<Option<usize>>>,
}

impl FakePass {
    fn tokens(&self) -> Vec<TokenId> {
        if let Some(texts) = &self.texts {
            return texts.iter().flat_map(|text| text.tokens()).copied().collect();
        }
        self.segments.iter().flat_map(|segment| &segment.table.tokens[segment.before..]).copied().collect()
    }
}

impl FakePass {
    /// The first feed-forward node of these whose weights have to be read for it.
    fn missing(&mut self, nodes: &Range<usize>) -> Option<usize> {
        let first = nodes.clone().find(|node| node % 3 == 0 && *node > 0 && !self.read.contains(node))?;
        self.read.push(first);
        Some(first)
    }
}

/// By a full sort.
fn best_of(logits: &[f32], count: usize) -> BestOfRow {
    let mut all: BestOfRow = (0..).map(TokenId).zip(logits.iter().copied()).collect();
    all.retain(|(_, logit)| *logit > f32::NEG_INFINITY);
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(count);
    all
}

impl FakeSegment {
    /// The rows on the path of a row, itself last.
    fn path(&self, row: usize) -> Vec<usize> {
        let Some(parents) = &self.parents else { return (0..=row).collect() };
        let mut path: Vec<usize> = std::iter::successors(Some(row), |&row| parents[row]).collect();
        path.reverse();
        path
    }

    /// What a row sees, itself included.
    fn text_to(&self, row: usize) -> Vec<TokenId> {
        let rows = &self.table.tokens[self.before..];
        let path = self.path(row).into_iter().map(|row| rows[row]);
        self.table.tokens[..self.before].iter().copied().chain(path).collect()
    }

    fn accept(self, accepted: &Accepted) -> FakeTable {
        let Accepted::Path(rows) = accepted else {
            assert!(self.parents.is_none(), "of a draft that branches not all rows can be kept");
            return self.table;
        };
        assert_eq!(self.path(*rows.last().unwrap()), *rows, "what is accepted is a path");
        let text = self.text_to(*rows.last().unwrap());
        let mut table = self.table;
        table.truncate(Tokens(text.len() as u32));
        table.tokens = text;
        table
    }
}

impl FakeModel {
    pub(crate) fn new(context: u32, pages: usize) -> Self {
        Self {
            pool: FakePool::new(pages),
            script: Vec::new(),
            context: Tokens(context),
            rows: AtomicUsize::new(0),
            head_rows: AtomicUsize::new(0),
            hold: Arc::default(),
            device: FakeDevice::Absent,
            is_broken: false,
            best: None,
            exact: AtomicUsize::new(0),
            given_back: AtomicUsize::new(0),
        }
    }

    /// The logits behind a text.
    pub(crate) fn logits_of(&self, tokens: &[TokenId]) -> Vec<f32> {
        let mut logits = Vec::new();
        self.logits_after(tokens, &mut logits);
        logits
    }

    fn logits_of_rows(&self, pass: &FakePass, rows: &[usize]) -> Vec<f32> {
        let (mut start, mut logits) = (0, Vec::new());
        for segment in &pass.segments {
            let count = segment.table.tokens.len() - segment.before;
            for row in (0..count).filter(|row| rows.contains(&(start + row))) {
                self.logits_after(&segment.text_to(row), &mut logits);
            }
            start += count;
        }
        logits
    }

    fn logits_after(&self, tokens: &[TokenId], logits: &mut Vec<f32>) {
        if let Some(start) = tokens.iter().rposition(|&token| token == SPELL) {
            let next = self.script.get(tokens.len() - 1 - start).copied().unwrap_or(END);
            logits.extend((0..VOCABULARY).map(|token| if token == next.0 as usize { 50.0 } else { 0.0 }));
            return;
        }
        // A hash of the whole context for every letter; other tokens are out of the question.
        let context = tokens.iter().fold(7_u64, |hash, token| mix(hash ^ u64::from(token.0)));
        logits.extend((0..VOCABULARY as u64).map(|token| match token {
            0..26 => (mix(context ^ token << 32) % 1000) as f32 / 250.0,
            _ => f32::NEG_INFINITY,
        }));
    }
}

impl Hold {
    /// Waits until `count` kernels have reached their hold since the beginning.
    pub(crate) fn wait_until_reached(&self, count: usize) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.reached < count).unwrap());
    }

    /// Lets one kernel go, now or when it comes.
    pub(crate) fn let_go(&self) {
        self.state.lock().unwrap().let_go += 1;
        self.changed.notify_all();
    }

    /// Waits to be let go.
    pub(crate) fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.reached += 1;
        self.changed.notify_all();
        let (mut state, waited) = self.changed.wait_timeout_while(state, HOLD_MAX, |state| state.let_go == 0).unwrap();
        assert!(!waited.timed_out(), "a test held a kernel and never let it go");
        state.let_go -= 1;
    }
}

impl FakePool {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { used: Arc::default(), capacity }
    }

    pub(crate) fn used_pages(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// A table that holds `tokens`.
    pub(crate) fn table_of(&self, tokens: &[TokenId]) -> FakeTable {
        let mut table = FakeTable { pool: self.clone(), tokens: Vec::new(), pages: 0 };
        table.extend(tokens).expect("the pool is large enough");
        table
    }
}

impl FakeTable {
    pub(crate) fn contents(&self) -> Vec<TokenId> {
        self.tokens.clone()
    }

    fn extend(&mut self, tokens: &[TokenId]) -> Result<(), KvError> {
        let pages = (self.tokens.len() + tokens.len()).div_ceil(PAGE_TOKENS);
        let (wanted, capacity) = (pages - self.pages, self.pool.capacity);
        let free = capacity - self.pool.used_pages();
        if wanted > free {
            return Err(KvError::Full { wanted, free, capacity });
        }
        self.pool.used.fetch_add(wanted, Ordering::Relaxed);
        self.pages = pages;
        self.tokens.extend(tokens);
        Ok(())
    }
}

impl Drop for FakeTable {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

impl Table for FakeTable {
    fn len(&self) -> Tokens {
        Tokens(self.tokens.len() as u32)
    }

    fn truncate(&mut self, len: Tokens) {
        self.tokens.truncate(len.as_usize());
        let pages = self.tokens.len().div_ceil(PAGE_TOKENS);
        self.pool.used.fetch_sub(self.pages - pages, Ordering::Relaxed);
        self.pages = pages;
    }

    fn fork(&self, prefix: Tokens) -> Result<Self, KvError> {
        // Pages are not shared here: every table pays for its own.
        let mut table = Self { pool: self.pool.clone(), tokens: Vec::new(), pages: 0 };
        table.extend(&self.tokens[..prefix.as_usize()])?;
        Ok(table)
    }
}

impl Backend for FakeModel {
    type Table = FakeTable;
    type Pass = FakePass;
    type Text = ();
    type Vocabulary = Vec<TokenId>;
    type Inputs = FakeInputs;
    type Outputs = FakeOutputs;

    fn shape(&self) -> Shape {
        Shape { context: self.context, vocabulary: VOCABULARY, hidden: HIDDEN }
    }

    fn nodes(&self) -> usize {
        NODES
    }

    fn kv_pages(&self) -> KvPages {
        KvPages { free: self.pool.capacity - self.pool.used_pages(), capacity: self.pool.capacity }
    }

    fn table(&self) -> FakeTable {
        self.pool.table_of(&[])
    }

    fn begin(&self, rows: Vec<Rows<FakeTable>>) -> Result<FakePass, Refused<FakeTable>> {
        let mut segments = Vec::new();
        let mut error = None;
        let texts = rows.first().and_then(|rows| rows.texts.clone());
        if let Some(texts) = texts {
            let nodes = vec![0; texts.iter().map(|text| text.tokens().len()).sum()];
            let segment = |rows: Rows<FakeTable>| FakeSegment { table: rows.table, before: 0, parents: None };
            return Ok(FakePass {
                segments: rows.into_iter().map(segment).collect(),
                texts: Some(texts),
                nodes,
                read: Vec::new(),
                head_rows: 0..0,
            });
        }
        for Rows { mut table, tokens, parents, .. } in rows {
            let before = table.tokens.len();
            assert!(before + tokens.len() <= self.context.as_usize(), "beyond the context");
            if let Err(full) = table.extend(&tokens) {
                error.get_or_insert(EngineError::OutOfMemory(full.to_string()));
            }
            segments.push(FakeSegment { table, before, parents });
        }
        let rows = segments.iter().map(|segment| segment.table.tokens.len() - segment.before).sum();
        let pass = FakePass { segments, texts: None, nodes: vec![0; rows], read: Vec::new(), head_rows: 0..rows };
        match error {
            None => Ok(pass),
            Some(error) => Err(Refused { error, tables: self.abandon(pass) }),
        }
    }

    fn run(
        &self,
        pass: &mut FakePass,
        nodes: Range<usize>,
        rows: Range<usize>,
        site: Site<'_>,
    ) -> Result<Ran, EngineError> {
        let crew = site.crew;
        assert!(!self.is_broken, "a fake model is broken");
        assert!(pass.nodes[rows.clone()].iter().all(|&node| node == nodes.start), "nodes come in order");
        let end = nodes.end;
        let attention = nodes.clone().find(|node| node % 3 == 2).filter(|_| nodes.len() == 1);
        assert!(
            attention.is_none_or(|node| pass.nodes.iter().all(|&other| other >= node)),
            "all rows come to attention"
        );
        let nodes = match site.on_miss {
            OnMiss::GivesBack => nodes.start..pass.missing(&nodes).unwrap_or(nodes.end),
            OnMiss::Waits => nodes,
        };
        if site.exact.is_some() {
            self.exact.fetch_add(nodes.len() * rows.len(), Ordering::Relaxed);
        }
        let tokens = pass.tokens();
        let members = AtomicUsize::new(0);
        crew.run(&|worker| {
            members.fetch_add(1, Ordering::Relaxed);
            worker.sync();
            assert_eq!(members.load(Ordering::Relaxed), worker.size());
            let rows = &tokens[rows.clone()];
            if nodes.contains(&1) && rows.contains(&PANIC) && worker.rank() + 1 == worker.size() {
                panic!("a fake kernel met a {PANIC}");
            }
            if nodes.contains(&1) && rows.contains(&HOLD) && worker.rank() == 0 {
                self.hold.wait();
            }
            worker.sync();
        });
        pass.nodes[rows].fill(nodes.end);
        Ok(if nodes.end == end { Ran::ToItsEnd } else { Ran::ToMissing { done: nodes.len(), about: Duration::ZERO } })
    }

    /// Told at once of one pass, by a thread of its own of the other.
    fn when_ready(&self, pass: &FakePass, tell: Tell) -> Option<Tell> {
        self.given_back.fetch_add(1, Ordering::Relaxed);
        if pass.tokens().len().is_multiple_of(2) {
            return Some(tell);
        }
        std::thread::spawn(tell);
        None
    }

    fn device_lanes(&self) -> LaneSet {
        if self.device == FakeDevice::Absent { LaneSet::EMPTY } else { LaneSet::first(1) }
    }

    fn inputs(&self, pass: &mut FakePass, nodes: Range<usize>, _: Site<'_>) -> Option<FakeInputs> {
        let token_wise = (nodes.end - 1) % 3 != 2;
        (self.device != FakeDevice::Absent && token_wise).then(|| FakeInputs { nodes, tokens: pass.tokens() })
    }

    fn run_apart(
        &self,
        inputs: &FakeInputs,
        rows: Range<usize>,
        _: Site<'_>,
    ) -> Result<Option<FakeOutputs>, EngineError> {
        if self.device == FakeDevice::Refuses {
            return Ok(None);
        }
        let FakeInputs { nodes, tokens } = inputs;
        assert!(!(nodes.contains(&1) && tokens[rows.clone()].contains(&PANIC)), "a fake kernel met a {PANIC}");
        if nodes.contains(&1) && tokens[rows.clone()].contains(&HOLD) {
            self.hold.wait();
        }
        Ok(Some(FakeOutputs { nodes: nodes.clone(), rows }))
    }

    fn join(&self, pass: &mut FakePass, outputs: &FakeOutputs, _: &dyn Crew) -> Result<(), EngineError> {
        let FakeOutputs { nodes, rows } = outputs;
        let rows = &mut pass.nodes[rows.clone()];
        assert!(rows.iter().all(|&node| node == nodes.start), "rows are joined once, in order");
        rows.fill(nodes.end);
        Ok(())
    }

    fn logits(
        &self,
        pass: &mut FakePass,
        rows: &[usize],
        logits: &mut Vec<f32>,
        site: Site<'_>,
    ) -> Result<(), EngineError> {
        let crew = site.crew;
        assert!(pass.nodes.iter().all(|&node| node == NODES), "logits come after the last node");
        assert!(rows.iter().all(|row| pass.head_rows.contains(row)), "a row was said not to be read");
        crew.run(&|worker| worker.sync());
        logits.clear();
        logits.extend(self.logits_of_rows(pass, rows));
        Ok(())
    }

    fn best(
        &self,
        pass: &mut FakePass,
        rows: &[usize],
        count: usize,
        site: Site<'_>,
    ) -> Result<Option<Vec<BestOfRow>>, EngineError> {
        let Some(asked) = &self.best else { return Ok(None) };
        asked.fetch_add(rows.len(), Ordering::Relaxed);
        let mut logits = Vec::new();
        self.logits(pass, rows, &mut logits, site)?;
        Ok(Some(logits.chunks_exact(VOCABULARY).map(|logits| best_of(logits, count)).collect()))
    }

    fn has_encoder(&self) -> bool {
        true
    }

    /// A hash of each text.
    fn encoded(&self, pass: &FakePass) -> Vec<Vec<f32>> {
        assert!(pass.nodes.iter().all(|&node| node == ENCODER_NODES), "texts are encoded after the last node");
        pass.texts.iter().flat_map(|texts| texts.iter()).map(|text| vec![hash_of(text.tokens())]).collect()
    }

    fn set_head_rows(&self, pass: &mut FakePass, rows: Range<usize>) {
        pass.head_rows = rows;
    }

    /// A hash of all that a row sees, for each float.
    fn add_hidden(&self, pass: &FakePass, rows: Range<usize>, sum: &mut [f64]) {
        assert!(pass.nodes.iter().all(|&node| node == NODES), "hidden states come after the last node");
        assert!(rows.clone().all(|row| pass.head_rows.contains(&row)), "a row was said not to be read");
        let of = |segment: &FakeSegment| segment.table.tokens.len() - segment.before;
        let all = pass.segments.iter().flat_map(|segment| (0..of(segment)).map(move |row| segment.text_to(row)));
        for text in all.skip(rows.start).take(rows.len()) {
            let context = text.iter().fold(7_u64, |hash, token| mix(hash ^ u64::from(token.0)));
            for (sum, at) in sum.iter_mut().zip(0_u64..) {
                // No sum of these is exact, so that the order of additions shows.
                *sum += (mix(context ^ at << 32) % 1000) as f64 / 3.0 - 160.0;
            }
        }
    }

    fn vocabulary_of(&self, text: &[TokenId]) -> Option<Vec<TokenId>> {
        Some(text.to_vec())
    }

    fn successors(
        &self,
        pass: &mut FakePass,
        rows: Range<usize>,
        among: Option<&Vec<TokenId>>,
        count: usize,
        crew: &dyn Crew,
    ) -> Vec<Vec<(TokenId, f32)>> {
        let all: Vec<TokenId> = (0..VOCABULARY as u32).map(TokenId).collect();
        assert!(
            among.is_some() || rows.clone().all(|row| pass.head_rows.contains(&row)),
            "a row was said not to be read"
        );
        crew.run(&|worker| worker.sync());
        let logits = self.logits_of_rows(pass, &rows.collect::<Vec<_>>());
        let among = among.unwrap_or(&all);
        let likeliest = |logits: &[f32]| {
            let mut of: Vec<_> = among.iter().map(|&token| (token, logits[token.0 as usize])).collect();
            of.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            of.dedup();
            of.truncate(count);
            of
        };
        logits.chunks_exact(VOCABULARY).map(likeliest).collect()
    }

    fn finish(&self, pass: FakePass, accepted: &[Accepted]) -> Vec<FakeTable> {
        let nodes = if pass.texts.is_some() { ENCODER_NODES } else { NODES };
        assert!(pass.nodes.iter().all(|&node| node == nodes), "a pass ends after the last node");
        assert_eq!(pass.segments.len(), accepted.len());
        self.rows.fetch_add(pass.nodes.len(), Ordering::Relaxed);
        self.head_rows.fetch_add(pass.head_rows.len(), Ordering::Relaxed);
        pass.segments.into_iter().zip(accepted).map(|(segment, accepted)| segment.accept(accepted)).collect()
    }

    fn abandon(&self, pass: FakePass) -> Vec<FakeTable> {
        let tables = pass.segments.into_iter().map(|FakeSegment { mut table, before, .. }| {
            table.truncate(Tokens(before as u32));
            table
        });
        tables.collect()
    }

    fn save(&self, table: &FakeTable, out: &mut dyn Write) -> io::Result<()> {
        table.tokens.iter().try_for_each(|token| out.write_all(&token.0.to_le_bytes()))
    }

    fn load(&self, _: Tokens, prefix: Tokens, from: &mut dyn Read) -> io::Result<FakeTable> {
        let mut table = self.table();
        for _ in 0..prefix.0 {
            let mut bytes = [0; 4];
            from.read_exact(&mut bytes)?;
            table.extend(&[TokenId(u32::from_le_bytes(bytes))]).map_err(io::Error::other)?;
        }
        Ok(table)
    }

    fn warm_memory(&self) {}

    fn text(&self) {}

    fn push_text(&self, (): &mut (), token: TokenId) -> String {
        char::from_u32(u32::from(b'a') + token.0).filter(char::is_ascii_lowercase).map(String::from).unwrap_or_default()
    }

    fn finish_text(&self, (): &mut ()) -> String {
        String::new()
    }

    fn special_name(&self, token: TokenId) -> Option<&str> {
        let marks = ["<think>", "</think>"];
        THINK.iter().position(|mark| *mark == token).map(|which| marks[which])
    }

    fn ends_turn(&self, token: TokenId) -> bool {
        token == END
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
