//! A static lane: parts of a node on both lanes at once, and graphs for exactly a prompt's rows that are asked for, used,
//! called off and given back.

use super::*;
use crate::exact::ExactCounts;
use crate::fake_model::{FakeDevice, HOLD, NODES, PANIC};
use duet_model::forward::{NotPrepared, NotRun, Prepared, TokenWise as Kernels};
use duet_types::Bytes;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// What makes graphs, two layers each.
#[derive(Debug, Default)]
pub(super) struct Preparing {
    /// Prompts with this number of rows get no graphs.
    refuses: Option<Tokens>,
    /// Layers of prompts with this number of rows wait here.
    holds: Option<Tokens>,
    hold: Arc<Hold>,
    /// Layers that were made.
    layers: AtomicUsize,
    /// The threads on which graphs were freed.
    freed_on: Arc<Mutex<Vec<String>>>,
}

/// A graph that says where it was freed.
#[derive(Debug)]
struct Graph {
    freed_on: Arc<Mutex<Vec<String>>>,
}

impl Preparing {
    /// All prompts get one but those of so many rows.
    pub(super) fn refusing(rows: Tokens) -> Self {
        Self { refuses: Some(rows), ..Self::default() }
    }
}

impl PreparesRows for Preparing {
    fn prepare(&self, rows: Tokens, goes_on: &dyn Fn() -> bool) -> Result<Prepared, NotPrepared> {
        if self.refuses == Some(rows) {
            return Err(NotPrepared::Failed("it is refused".to_owned()));
        }
        for _ in 0..2 {
            if !goes_on() {
                return Err(NotPrepared::CalledOff);
            }
            if self.holds == Some(rows) {
                self.hold.wait();
            }
            self.layers.fetch_add(1, Ordering::Relaxed);
        }
        let kernels = Arc::new(Graph { freed_on: Arc::clone(&self.freed_on) });
        Ok(Prepared { kernels, bytes: Bytes(rows.0.into()) })
    }

    fn bytes(&self) -> Bytes {
        Bytes(1)
    }
}

/// The fake model has its own way to compute.
impl Kernels for Graph {
    fn qkv(&self, _: usize, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported(String::new()))
    }

    fn feed_forward(&self, _: usize, _: &[f32], _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported(String::new()))
    }

    fn head(&self, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(NotRun::Unsupported(String::new()))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.freed_on.lock().unwrap().push(thread);
    }
}

/// A device's lane that takes chunks of 8 rows, and a lane of cores.
pub(super) fn beside_a_device(preparing: Preparing) -> Setup {
    static_setup(&Arc::new(preparing))
}

fn static_setup(preparing: &Arc<Preparing>) -> Setup {
    let prepares: Arc<dyn PreparesRows> = Arc::clone(preparing) as _;
    Setup { first: Capabilities::static_with(Nanos(1_000_000)), prepares: Some(prepares), ..setup() }
}

fn bench(preparing: &Arc<Preparing>) -> Bench {
    Bench::with(FakeModel { device: FakeDevice::Works, ..FakeModel::new(1000, 100) }, &static_setup(preparing))
}

/// Waits for something that other threads do.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed().as_secs() < 10, "{what}");
        std::thread::yield_now();
    }
}

/// A prompt of 20 tokens that holds the lanes until it is let go.
pub(super) fn holding() -> Vec<TokenId> {
    let mut prompt = letters("zyxwvutsrqponmlkjihg");
    prompt[2] = HOLD;
    prompt
}

#[test]
fn both_lanes_have_rows_of_one_node_at_once() {
    let bench = bench(&Arc::new(Preparing::refusing(Tokens(11))));
    // One in the chunk, one in the remainder.
    let mut prompt = letters("abcdefghijk");
    (prompt[2], prompt[9]) = (HOLD, HOLD);
    let generation = bench.start(hashed(&prompt, 3));
    bench.hold.wait_until_reached(2);
    bench.hold.let_go();
    bench.hold.let_go();
    assert_eq!(answer(generation).tokens, alone(&prompt, 3));
}

/// Whichever lane comes first: what the other one finds is no pass of its own to begin.
#[test]
fn a_part_that_fails_beside_another_says_why() {
    let bench = bench(&Arc::new(Preparing::refusing(Tokens(11))));
    for panics_at in [2, 9].repeat(20) {
        let mut prompt = letters("abcdefghijk");
        prompt[panics_at] = PANIC;
        let failed = bench.answer(request(&prompt));
        assert_eq!(failed.error(), &EngineError::Internal("a kernel panicked: a fake kernel met a 37".to_owned()));
        let good = letters("bcdefghijkl");
        assert_eq!(bench.answer(hashed(&good, 2)).tokens, alone(&good, 2));
    }
}

#[test]
fn a_prompt_that_waits_is_read_on_a_graph_of_its_own() {
    let preparing = Arc::new(Preparing::refusing(Tokens(20)));
    let bench = bench(&preparing);
    let first = bench.start(hashed(&holding(), 3));
    bench.hold.wait_until_reached(1);
    let prompt = letters("abcdefghijklmnopqrstu");
    let second = bench.start(hashed(&prompt, 3));
    until("its graph is ready", || bench.runtime.exact().ready == 1);
    assert_eq!(bench.runtime.exact().resident_bytes, Bytes(21));
    bench.hold.let_go();
    assert_eq!(answer(second).tokens, alone(&prompt, 3));
    drop(answer(first));
    assert_eq!(bench.runtime.backend().exact.load(Ordering::Relaxed), 21 * NODES);
    let ExactCounts { asked, ready, used, failed, reclaimed, resident, resident_bytes, .. } = bench.runtime.exact();
    assert_eq!((asked, ready, used, failed, reclaimed), (2, 1, 1, 1, 1));
    assert_eq!((resident, resident_bytes), (0, Bytes(0)));
    let metrics = bench.runtime.metrics_text();
    for line in ["duet_exact_graphs_total{fate=\"used\"} 1", "duet_exact_graphs_memory_bytes 0"] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    until("it is freed", || *preparing.freed_on.lock().unwrap() == ["duet-graphs"]);
}

#[test]
fn a_graph_whose_prompt_goes_is_called_off_between_layers() {
    let preparing = Arc::new(Preparing { holds: Some(Tokens(21)), refuses: Some(Tokens(20)), ..Preparing::default() });
    let bench = bench(&preparing);
    let first = bench.start(hashed(&holding(), 3));
    bench.hold.wait_until_reached(1);
    let gone = bench.start(hashed(&letters("abcdefghijklmnopqrstu"), 3));
    preparing.hold.wait_until_reached(1);
    gone.cancel();
    let next = letters("bcdefghijklmnopqrstuvw");
    let last = bench.start(hashed(&next, 3));
    assert_eq!(bench.runtime.exact().called_off, 1);
    preparing.hold.let_go();
    // The one layer that was under way, and two of the next prompt's graph, whose turn it is then.
    until("the next graph is ready", || bench.runtime.exact().ready == 1);
    assert_eq!(preparing.layers.load(Ordering::Relaxed), 3);
    bench.hold.let_go();
    assert_eq!(answer(last).tokens, alone(&next, 3));
    drop((answer(first), answer(gone)));
    assert_eq!(bench.runtime.exact().used, 1);
}

#[test]
fn a_graph_that_comes_too_late_is_freed() {
    let preparing = Arc::new(Preparing { holds: Some(Tokens(21)), refuses: Some(Tokens(20)), ..Preparing::default() });
    let bench = bench(&preparing);
    let first = bench.start(hashed(&holding(), 3));
    bench.hold.wait_until_reached(1);
    let gone = bench.start(hashed(&letters("abcdefghijklmnopqrstu"), 3));
    preparing.hold.let_go();
    // In its last layer.
    preparing.hold.wait_until_reached(2);
    gone.cancel();
    preparing.hold.let_go();
    until("it is freed", || *preparing.freed_on.lock().unwrap() == ["duet-graphs"]);
    bench.hold.let_go();
    drop((answer(first), answer(gone)));
    let counts = bench.runtime.exact();
    assert_eq!((counts.called_off, counts.ready, counts.resident), (1, 0, 0));
}

/// What is said to a prompt on lanes of cores.
fn alone(prompt: &[TokenId], max_tokens: u32) -> Vec<TokenId> {
    let bench = Bench::new(FakeModel::new(1000, 100));
    prompt.iter().filter(|&&token| token == HOLD).for_each(|_| bench.hold.let_go());
    bench.answer(hashed(prompt, max_tokens)).tokens
}
