//! How long experts take on the CPU, measured with all its threads together.
//!
//! Threads share the memory that weights are read from: the time of one, divided by how many there are, says what arithmetic
//! takes and not what reading does. So the kernels run on all of them, and rows and weights are told apart by a single row,
//! for which all that it goes to is read, and a chunk, for which it is read once, too. Each run is in another layer, so that
//! weights come from memory, as they do when a model is served, and not from a cache that has one layer's.

use duet_kernels::crew::{Crew, Scoped, Worker};
use duet_model::Model;
use duet_model::forward::{Activations, Node, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_moe::MoeShape;
use duet_types::{Nanos, TokenId, Tokens};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A row of an expert, and its weights, on `threads` threads. Who all rows go to counts by its size.
pub(super) fn measure(model: &Model, shape: &MoeShape, threads: usize) -> (Nanos, Nanos) {
    let Some(work) = model.work().experts else { return (Nanos::ZERO, Nanos::ZERO) };
    let shared = work.shared as f64 / work.expert.max(1) as f64;
    let places = f64::from(shape.chosen) + shared;
    let rows = shape.chunk.min(model.config().context).as_usize().max(2);
    let crew = Timed::new(threads);
    let run = |rows: usize| {
        let (took, touched) = experts_time(model, rows, &crew);
        Run { places: rows as f64 * places, read: touched as f64 + shared, took: took.0 as f64 }
    };
    divided(&run(1), &run(rows))
}

/// Experts on some rows.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Rows of all experts.
    places: f64,
    /// Experts that were read.
    read: f64,
    /// Nanoseconds.
    took: f64,
}

/// A row and an expert's weights, of a run that reads an expert for each of its places, and one of many rows. Each takes
/// `places × row + read × weights`.
fn divided(one: &Run, many: &Run) -> (Nanos, Nanos) {
    let each = one.took / one.read.max(1.0);
    let row = (many.took - many.read * each) / (many.places - many.read).max(1.0);
    let row = row.clamp(1.0, each.max(1.0));
    (Nanos(row as u64), Nanos((each - row).max(1.0) as u64))
}

/// The experts of a layer on some rows, and how many of them these go to: the median of some layers.
fn experts_time(model: &Model, rows: usize, crew: &Timed) -> (Nanos, usize) {
    let vocabulary = model.config().vocabulary as u32;
    let tokens = (0..rows as u32).map(|row| TokenId(row * 37 % vocabulary)).collect();
    let table = model.kv_pool(KvFormat::F16, Tokens(rows as u32)).table();
    let Ok(mut pass) = Pass::new(model, Activations::new(model, rows), vec![Segment::new(table, tokens)]) else {
        return (Nanos::ZERO, 0);
    };
    model.run_node(&mut pass, Node::Embed, 0..rows, crew);
    let mut runs = Vec::with_capacity(2 * RUNS);
    for layer in (0..model.config().layers).cycle().take(2 * RUNS) {
        for node in [Node::Qkv { layer }, Node::Attention { layer }, Node::Route { layer }] {
            model.run_node(&mut pass, node, 0..rows, crew);
        }
        let chosen: BTreeSet<u32> =
            (0..rows).filter_map(|row| pass.routes(row)).flat_map(|routes| routes.experts.to_vec()).collect();
        let took = crew.time(|| model.run_node(&mut pass, Node::Experts { layer, launch: 0 }, 0..rows, crew));
        runs.push((took, chosen.len()));
    }
    // The first ones may be the first to read these weights from a file.
    let mut runs = runs.split_off(runs.len().min(RUNS));
    runs.sort_unstable();
    runs.get(runs.len() / 2).copied().unwrap_or_default()
}

/// Threads that run kernels as lanes do. Unlike those of lanes they are started for each call; that is not counted.
#[derive(Debug)]
struct Timed {
    crew: Scoped,
    /// What was counted too much so far.
    starting: AtomicU64,
}

impl Timed {
    fn new(threads: usize) -> Self {
        Self { crew: Scoped { threads }, starting: AtomicU64::new(0) }
    }

    /// How long this takes where threads are there already.
    fn time(&self, work: impl FnOnce()) -> Nanos {
        self.starting.store(0, Ordering::Relaxed);
        let start = Instant::now();
        work();
        let starting = Duration::from_nanos(self.starting.load(Ordering::Relaxed));
        Nanos::from(start.elapsed().saturating_sub(starting))
    }
}

impl Crew for Timed {
    fn size(&self) -> usize {
        self.crew.size()
    }

    fn run(&self, work: &(dyn Fn(Worker<'_>) + Sync)) {
        let (start, worked) = (Instant::now(), AtomicU64::new(0));
        self.crew.run(&|worker| {
            worker.sync();
            let start = Instant::now();
            work(worker);
            worker.sync();
            if worker.rank() == 0 {
                worked.store(Nanos::from(start.elapsed()).0, Ordering::Relaxed);
            }
        });
        let starting = Nanos::from(start.elapsed()).saturating_sub(Nanos(worked.into_inner()));
        self.starting.fetch_add(starting.0, Ordering::Relaxed);
    }
}

/// Runs that count, each in another layer if there are so many.
const RUNS: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use duet_model::LoadOptions;
    use duet_moe::worth::worth;
    use duet_moe::{ExpertId, Group, Times};
    use duet_types::Bytes;

    /// Eight cores of 10 GB/s each, which read 40 GB/s together, and experts of 5 MB, a row of which takes a core 100 µs.
    #[test]
    fn reading_is_as_fast_as_all_cores_together() {
        let run = |cores: f64, bytes_per_nano: f64, places: f64, read: f64| {
            let took = places * 100_000.0 / cores + read * 5e6 / bytes_per_nano;
            Run { places, read, took }
        };
        let together = |places, read| run(8.0, 40.0, places, read);
        let (row, weights) = divided(&together(8.0, 8.0), &together(2048.0, 128.0));
        assert_eq!((row, weights), (Nanos(12_500), Nanos(125_000)));
        let alone = |places, read| run(1.0, 10.0, places, read);
        let (one_row, one_weights) = divided(&alone(8.0, 8.0), &alone(2048.0, 128.0));
        assert_eq!((one_row.0 / 8, one_weights.0 / 8), (12_500, 62_500), "a core's time divided is half of that");
        // A group of eight experts with four rows each: reading them is what a launch saves.
        let group = Group { capacity: Tokens(16), experts: (0..8).map(ExpertId).collect() };
        let shape = MoeShape { chunk: Tokens(64), chosen: 8, expert_bytes: Bytes(5_000_000) };
        let times = Times {
            launch: Nanos(800_000),
            weights: Nanos::ZERO,
            slot: Nanos(1_000),
            cpu_row: row,
            cpu_weights: weights,
        };
        let even = [1.0 / 128.0; 128];
        assert!((worth(&group, &even, &shape, &times) - 472_000.0).abs() < 1.0);
        let flattered = Times { cpu_weights: Nanos(one_weights.0 / 8), ..times };
        assert!(worth(&group, &even, &shape, &flattered) < 0.0);
    }

    /// Where reading hides behind arithmetic, or measuring was disturbed, neither is below nothing.
    #[test]
    fn times_are_never_below_nothing() {
        for (one, many) in [(0.0, 0.0), (100.0, 1.0), (1.0, 1e9), (1e9, 1e9)] {
            let (row, weights) =
                divided(&Run { places: 2.0, read: 2.0, took: one }, &Run { places: 128.0, read: 8.0, took: many });
            assert!(
                row.0 >= 1 && weights.0 >= 1 && row.0 as f64 <= one.max(2.0),
                "{one}, {many}: {row:?}, {weights:?}"
            );
        }
    }

    #[test]
    fn starting_threads_is_not_counted() {
        let crew = Timed::new(2);
        let pause = |millis| std::thread::sleep(Duration::from_millis(millis));
        let start = Instant::now();
        let took = crew.time(|| {
            crew.run(&|worker| pause(if worker.rank() == 0 { 1 } else { 20 }));
            pause(10);
        });
        assert!(took >= Nanos(30_000_000), "the slowest counts, and what is done outside: {took:?}");
        let starting = crew.starting.load(Ordering::Relaxed);
        assert!(starting > 0 && took.0 + starting <= Nanos::from(start.elapsed()).0);
    }

    #[test]
    fn a_model_s_experts_are_measured_on_any_number_of_threads() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_qwen2moe.gguf");
        let model = Model::load(path.as_ref(), &LoadOptions::default(), &mut |_| {}).unwrap();
        let chosen = model.blueprint().experts.unwrap().chosen as u32;
        let shape = MoeShape { chunk: Tokens(64), chosen, expert_bytes: Bytes(1) };
        for threads in [0, 1, 2, 3] {
            let (row, weights) = measure(&model, &shape, threads);
            assert!(row.0 >= 1 && weights.0 >= 1 && row < Nanos(50_000_000), "{threads}: {row:?}, {weights:?}");
        }
    }
}
