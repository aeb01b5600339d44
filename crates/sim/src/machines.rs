//! Machines for scenarios, with figures that make times round. None is a real one.
//!
//! The model has two layers: seven nodes. Reading the weights of a node takes the NPU 1 ms, the iGPU and a team of two
//! CPU lanes 0.5 ms, and one CPU lane 1 ms. A row of a node takes the NPU and the team 10 µs, the iGPU and one CPU lane
//! 20 µs. So a chunk of 100 rows is 1 ms a node on the NPU and 2 ms on the iGPU. Attention reads 1 µs a position
//! where weights take 0.5 ms, and 2 µs where they take 1 ms. Launching, embeddings and the head take no time. The encoder
//! beside it has one such layer.

use duet_scheduler::heg::{ExpertLaunches, ForHead, Heg, OnDisk, RoutedWeights, SequenceWise, TokenWise};
use duet_scheduler::layers::HeldLayers;
use duet_scheduler::machine::{Anchors, Capabilities, FewRows, Lane, Machine, MemoryDomain, PerRow, Team};
use duet_scheduler::progressive::{Blocks, GraphCost, Pair, PassTime};
use duet_scheduler::{GraphSet, Limits, Mechanisms, MemoryLimits, SchedulerConfig};
use duet_types::{Bytes, LaneId, Nanos, Tokens};

/// An NPU and an iGPU. Compiling a graph takes 5 ms.
#[must_use]
pub fn npu_igpu() -> SchedulerConfig {
    let npu = Capabilities::static_with(Nanos(5_000_000));
    config(Machine::of(vec![lane("npu", npu, FAST, SLOW), lane("igpu", Capabilities::DYNAMIC, SLOW, FAST)]), 1000)
}

/// An NPU, an iGPU and a lane of cores, which are three kinds: the papers' machine, with a team of the two that take any rows.
#[must_use]
pub fn npu_igpu_cpu() -> SchedulerConfig {
    let npu = Capabilities::static_with(Nanos(5_000_000));
    let igpu = lane("igpu", Capabilities::DYNAMIC, SLOW, FAST);
    let lanes = vec![lane("npu", npu, FAST, SLOW), igpu, lane("cpu", Capabilities::CORES, SLOW, SLOW)];
    let team = Team { lanes: [LaneId(1), LaneId(2)].into_iter().collect(), anchors: anchors(FAST, FAST) };
    config(Machine { teams: vec![team], ..Machine::of(lanes) }, 1000)
}

/// A GPU with memory of its own beside a lane of cores half as fast: a position that it lacks takes 5 µs a layer, and it has room
/// for 500. Their team reads weights no faster than the core.
#[must_use]
pub fn discrete_gpu() -> SchedulerConfig {
    let memory = MemoryDomain::Own { bytes_per_s: 1.6e9, room: Bytes(8_000_000) };
    let gpu = Capabilities { memory, ..Capabilities::DYNAMIC };
    let lanes = vec![lane("gpu", gpu, FAST, FAST), lane("cpu", Capabilities::CORES, SLOW, SLOW)];
    config(Machine::of(lanes).with_team(anchors(FAST + SLOW, SLOW)), 132)
}

/// An iGPU that holds the second layer only, and a lane of cores half as fast.
#[must_use]
pub fn half_on_igpu() -> SchedulerConfig {
    let igpu = Capabilities { layers: Some(HeldLayers::new(&(1..2))), ..Capabilities::DYNAMIC };
    let lanes = vec![lane("igpu", igpu, FAST, FAST), lane("cpu", Capabilities::CORES, SLOW, SLOW)];
    config(Machine::of(lanes).with_team(anchors(FAST + SLOW, FAST)), 132)
}

/// Two sets of cores, which can join.
#[must_use]
pub fn cpu() -> SchedulerConfig {
    let lanes = ["cpu0", "cpu1"].map(|name| lane(name, Capabilities::CORES, SLOW, SLOW));
    config(Machine::of(lanes.to_vec()).with_team(anchors(FAST, FAST)), 132)
}

/// One lane that takes everything, through graphs of which there is room for one of each block (or `spare` bytes more):
/// six layers, each a block of its own. A prefill graph has 100 rows and takes 3 ms, a decode graph has 10 and takes
/// 0.6 ms; to load either takes 2 ms, to keep either a byte.
#[must_use]
pub fn exchanging(spare: Bytes) -> SchedulerConfig {
    let cost = |pass_us: u64| GraphCost {
        pass: PassTime { empty: Nanos(pass_us * 1000), per_position: Nanos::ZERO },
        load: Nanos(2_000_000),
        bytes: Bytes(1),
    };
    let rows = Pair { prefill: Tokens(100), decode: Tokens(10) };
    let blocks = Blocks::new(rows, vec![Pair { prefill: cost(3000), decode: cost(600) }; 6]);
    let config = single();
    let (lanes, budget) = (config.machine.all(), Bytes(6) + spare);
    let graphs = GraphSet { lanes, blocks: blocks.expect("these blocks can be"), budget };
    SchedulerConfig { heg: Heg { layers: 6, ..config.heg }, graphs: Some(graphs), ..config }
}

/// One lane that takes everything.
#[must_use]
pub fn single() -> SchedulerConfig {
    config(Machine::of(vec![lane("cpu", Capabilities::CORES, FAST, FAST)]), 132)
}

/// One lane that takes everything, with experts in three launches a layer: 13 nodes. Routing takes as long as projection, and
/// so does each launch.
#[must_use]
pub fn launching() -> SchedulerConfig {
    let config = single();
    let experts = Some(ExpertLaunches { launches: 3, route: config.heg.ffn, launch: config.heg.ffn });
    SchedulerConfig { heg: Heg { experts, ..config.heg }, ..config }
}

/// Two sets of cores, which can join, with a model whose last layer's attention and feed-forward compute rows for the head alone.
#[must_use]
pub fn for_head() -> SchedulerConfig {
    let config = cpu();
    let (before, behind) = (config.heg.mean(), config.heg.mean());
    SchedulerConfig { heg: Heg { for_head: Some(ForHead { from: 5, before, behind }), ..config.heg }, ..config }
}

/// Two sets of cores with experts on disk: a row of a feed-forward node reads those of 2 MB beside its other 2 MB, and half of
/// them from a disk, which takes 1 ms.
#[must_use]
pub fn mixture() -> SchedulerConfig {
    let config = cpu();
    let disk = Some(OnDisk { missing: 0.5, bytes_per_s: 1e9 });
    let routed = Some(RoutedWeights { bytes: 16e6, share: 0.125, disk });
    let ffn = TokenWise { weight_bytes: 2e6, routed, ..config.heg.ffn };
    SchedulerConfig { heg: Heg { ffn, ..config.heg }, ..config }
}

/// How fast, of two speeds.
const FAST: f64 = 2.0;
const SLOW: f64 = 1.0;

fn anchors(arithmetic: f64, memory: f64) -> Anchors {
    Anchors {
        macs_per_s: arithmetic * 0.5e11,
        attention_macs_per_s: 1e15,
        bytes_per_s: memory * 4e9,
        launch: Nanos::ZERO,
        exposed: 0.0,
        per_row: PerRow::NONE,
        few_rows: FewRows::NONE,
    }
}

fn lane(name: &str, capabilities: Capabilities, arithmetic: f64, memory: f64) -> Lane {
    Lane::new(name, capabilities, anchors(arithmetic, memory))
}

fn config(machine: Machine, prefill_rows: u32) -> SchedulerConfig {
    let linear = TokenWise { macs_per_row: 1e6, weight_bytes: 4e6, row_bytes: 0.0, routed: None };
    let attention = SequenceWise { macs_per_pair: 1.0, bytes_per_position: 8e3, row_bytes: 0.0, windowed: None };
    let head = TokenWise { macs_per_row: 0.0, weight_bytes: 0.0, row_bytes: 0.0, routed: None };
    SchedulerConfig {
        machine,
        heg: Heg { layers: 2, qkv: linear, ffn: linear, attention, head, experts: None, for_head: None },
        encoder: Some(Heg { layers: 1, qkv: linear, ffn: linear, attention, head, experts: None, for_head: None }),
        limits: Limits {
            chunk: Tokens(100),
            prefill_rows: Tokens(prefill_rows),
            batch: 8,
            preempt: Nanos(4_000_000),
            decode_stall: Nanos(50_000_000),
            age: Nanos(1_000_000_000),
            overtaking: Nanos(1_000_000_000),
            graph_expiry: Nanos(50_000_000),
            ..Limits::default()
        },
        memory: MemoryLimits { page: Tokens(10), ..MemoryLimits::UNBOUNDED },
        mechanisms: Mechanisms::ALL,
        graphs: None,
    }
}
