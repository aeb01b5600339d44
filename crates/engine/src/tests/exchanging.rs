//! A device's graphs are exchanged while prompts are read, by a thread of its own.

use super::*;
use crate::exchange::ExchangesGraphs;
use duet_model::forward::NotRun;
use duet_scheduler::GraphLoad;
use duet_scheduler::progressive::{Blocks, Exchange, GraphCost, Pair, PassTime, Role};
use duet_types::Bytes;
use std::sync::Mutex;

/// What loads graphs, and remembers it.
#[derive(Debug, Default)]
pub(super) struct Loading {
    /// Whether loads of it fail.
    failing: Option<Role>,
    loads: Mutex<Vec<GraphLoad>>,
}

impl ExchangesGraphs for Loading {
    fn load(&self, load: GraphLoad) -> Result<(), NotRun> {
        self.loads.lock().unwrap().push(load);
        if self.failing == Some(load.role) { Err(NotRun::Failed("it is refused".to_owned())) } else { Ok(()) }
    }
}

impl Loading {
    /// Blocks and graphs that were loaded, and in whose place.
    pub(super) fn loads(&self) -> Vec<(usize, Role, Exchange)> {
        self.loads.lock().unwrap().iter().map(|load| (load.block, load.role, load.exchange)).collect()
    }

    /// The last loads may come after the answer.
    fn wait_for(&self, role: Role, count: usize) {
        let start = std::time::Instant::now();
        while self.loads().iter().filter(|load| load.1 == role).count() < count {
            assert!(start.elapsed().as_secs() < 20, "{:?}", self.loads());
            std::thread::yield_now();
        }
    }
}

/// Each of the two layers is a block. A pass of 8 rows takes 3 ms, one of 2 rows 1 ms; either graph is a byte.
pub(super) fn exchanging(loading: &Arc<Loading>, budget: u64) -> Setup {
    let cost = |millis: u64| GraphCost {
        pass: PassTime { empty: Nanos(millis * 1_000_000), per_position: Nanos::ZERO },
        load: Nanos(1_000_000),
        bytes: Bytes(1),
    };
    let rows = Pair { prefill: Tokens(8), decode: Tokens(2) };
    let blocks = Blocks::new(rows, vec![Pair { prefill: cost(3), decode: cost(1) }; 2]).unwrap();
    let device = Arc::clone(loading) as Arc<dyn ExchangesGraphs>;
    Setup { exchange: Some(GraphExchange { device, blocks, budget: Bytes(budget) }), ..setup() }
}

pub(super) fn prompt(len: u32) -> GenerateRequest {
    GenerateRequest {
        prompt: (0..len).map(|index| TokenId(1 + (len + index) % 16)).collect(),
        stop: StopConditions { max_tokens: Some(Tokens(4)), ..StopConditions::default() },
        ..GenerateRequest::default()
    }
}

/// Every block has its decode graph when the answer comes; the next prompt, which is long, has its prefill graphs again.
#[test]
fn graphs_are_exchanged_for_each_prompt_and_the_answers_are_the_same() {
    for (budget, exchange) in [(2, Exchange::InPlace), (3, Exchange::Beside)] {
        let loading = Arc::<Loading>::default();
        let bench = Bench::with(FakeModel::new(1000, 100), &exchanging(&loading, budget));
        let plain = Bench::new(FakeModel::new(1000, 100));
        for (len, decode_loads) in [(40, 2), (65, 4)] {
            assert_eq!(bench.answer(prompt(len)).tokens, plain.answer(prompt(len)).tokens);
            loading.wait_for(Role::Decode, decode_loads);
        }
        let loads = loading.loads();
        assert!(loads.iter().all(|load| load.2 == exchange), "{loads:?}");
        assert_eq!(loads.iter().filter(|load| load.1 == Role::Prefill).count(), 2, "{loads:?}");
    }
}

/// A device that loads nothing any more is nobody's harm.
#[test]
fn a_graph_that_cannot_be_loaded_ends_no_answer() {
    let loading = Arc::new(Loading { failing: Some(Role::Decode), ..Loading::default() });
    let bench = Bench::with(FakeModel::new(1000, 100), &exchanging(&loading, 2));
    let plain = Bench::new(FakeModel::new(1000, 100));
    for len in [40, 65, 3] {
        assert_eq!(bench.answer(prompt(len)).tokens, plain.answer(prompt(len)).tokens);
    }
    assert!(!loading.loads().is_empty());
}
