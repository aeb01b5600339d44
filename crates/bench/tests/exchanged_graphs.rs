//! An engine with OpenVINO's CPU device, which is given room for one graph of each block: prompts are read and answered
//! while graphs are exchanged, and the answers stay. Skipped, with a word, where there is no runtime.

#[path = "serving/preferring.rs"]
mod preferring;
mod serving;

use duet_engine::{Device, Engine, EngineConfig, ExchangesGraphs, Generation, GraphExchange, Method};
use duet_model::forward::NotRun;
use duet_offload::switching::{Placement, ResidentModel, Shelf};
use duet_runtimes::{BlobCache, FaultPlan, FaultyDevice, GraphDevice};
use duet_scheduler::GraphLoad;
use duet_scheduler::progressive::{Block, Blocks, GraphCost, Pair, PassTime, Role};
use duet_types::{Bytes, Class, Nanos, TokenId, Tokens};
use serving::{ANSWER, answer, metric, model, start, until};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

const ROWS: Pair<Tokens> = Pair { prefill: Tokens(16), decode: Tokens(4) };

#[derive(Debug)]
struct Serving(Arc<ResidentModel>);

impl ExchangesGraphs for Serving {
    fn load(&self, load: GraphLoad) -> Result<(), NotRun> {
        self.0.load(load).map_err(|error| NotRun::Failed(error.to_string()))
    }
}

/// Whether graphs are exchanged, or those that read prompts stay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Graphs {
    Stay,
    Exchanged,
}

/// Loads take about as long as half a chunk, as the scheduler sees it; there is room for `sets` sets of the larger graphs.
fn exchange(shelf: &Shelf, sets: f64) -> (Blocks, Bytes) {
    let cost = |empty, bytes| GraphCost {
        pass: PassTime { empty: Nanos(empty), per_position: Nanos(0) },
        load: Nanos(1_000_000),
        bytes,
    };
    let block = |block| Block {
        prefill: cost(2_000_000, shelf.bytes(block, ROWS.prefill)),
        decode: cost(1_200_000, shelf.bytes(block, ROWS.decode)),
    };
    let blocks = Blocks::new(ROWS, (0..shelf.count()).map(block).collect()).unwrap();
    let larger = blocks.bytes(Role::Prefill).max(blocks.bytes(Role::Decode));
    (blocks, Bytes((larger.0 as f64 * sets) as u64))
}

fn engine(folder: &Path, graphs: Graphs, sets: f64, faults: FaultPlan) -> Option<Engine> {
    let device: Arc<dyn GraphDevice> = Arc::new(FaultyDevice::new(serving::device()?, faults));
    let placement = Placement { device, cache: BlobCache::new(folder.to_owned(), Bytes(1 << 30)) };
    let model = model();
    let count = NonZeroUsize::new(2).unwrap();
    let shelf = Shelf::fill(&model, placement, count, &[ROWS.decode, ROWS.prefill], &mut |_| {}).unwrap();
    let (blocks, budget) = exchange(&shelf, sets);
    let resident = Arc::new(ResidentModel::prefilling(shelf, ROWS).unwrap());
    let exchanging = Arc::new(Serving(Arc::clone(&resident)));
    let device = Device {
        exchange: (graphs == Graphs::Exchanged).then_some(GraphExchange { device: exchanging, blocks, budget }),
        ..Device::new("openvino:CPU", "", resident)
    };
    let config = EngineConfig {
        threads: Some(1),
        devices: vec![device],
        speculate: Method::None,
        chunk: ROWS.prefill,
        ..EngineConfig::default()
    };
    Some(preferring::preferring_devices(&model, &config))
}

/// Prompts one after another, and then all of them at once, of both classes.
fn answers(engine: &Engine, graphs: Graphs) -> Vec<Vec<TokenId>> {
    let prompts = [(70, Class::Reactive), (9, Class::Reactive), (100, Class::Proactive), (33, Class::Reactive)];
    let mut answers = Vec::new();
    for (rows, class) in prompts {
        answers.push(answer(start(engine, rows, class)));
        settle(engine, graphs);
    }
    let at_once: Vec<Generation> = prompts.iter().map(|&(rows, class)| start(engine, rows + 1, class)).collect();
    answers.extend(at_once.into_iter().map(answer));
    answers
}

/// Waits until both blocks have their decode graphs: the last loads may come after the answer.
fn settle(engine: &Engine, graphs: Graphs) {
    let decode_graphs = || loads(engine, "decode", "done") - loads(engine, "prefill", "done");
    until(engine, || graphs == Graphs::Stay || decode_graphs() == 2);
}

fn loads(engine: &Engine, graph: &str, outcome: &str) -> u64 {
    metric(engine, &format!(r#"duet_graph_loads_total{{graph="{graph}",outcome="{outcome}"}}"#))
}

#[test]
fn answers_are_the_same_whatever_is_exchanged_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let Some(plain) = engine(folder.path(), Graphs::Stay, 1.0, FaultPlan::default()) else { return };
    let expected = answers(&plain, Graphs::Stay);
    assert_eq!(loads(&plain, "decode", "done"), 0);
    drop(plain);
    // In place, and beside.
    for sets in [1.0, 1.6] {
        let engine = engine(folder.path(), Graphs::Exchanged, sets, FaultPlan::default()).unwrap();
        assert_eq!(answers(&engine, Graphs::Exchanged), expected);
        // Back for one of the longer prompts; a load may take longer than the small model takes to answer.
        until(&engine, || loads(&engine, "prefill", "done") >= 1);
        let work = engine.linear_work();
        assert!(work.on_devices() > 0 && work.refused() == 0, "{work:?}");
    }
}

/// Its blocks have the graphs that they had, or none: then the CPU does their work.
#[test]
fn a_device_that_loads_no_more_loses_no_request() {
    let folder = tempfile::tempdir().unwrap();
    // Far more than those with which the engine starts.
    let no_more = |plan: FaultPlan, nth| plan.import_fails(nth).compile_fails(nth);
    let faults = (20..2000).fold(FaultPlan::default(), no_more);
    let Some(engine) = engine(folder.path(), Graphs::Exchanged, 1.0, faults) else { return };
    for _ in 0..8 {
        let answers = answers(&engine, Graphs::Stay);
        assert!(answers.iter().all(|answer| answer.len() == ANSWER), "{answers:?}");
    }
    assert!(engine.linear_work().refused() > 0, "{:?}", engine.linear_work());
    assert!(loads(&engine, "decode", "failed") > 0);
    assert!(engine.is_running());
}
