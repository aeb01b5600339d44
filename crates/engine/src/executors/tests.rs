use super::float_attention::FloatAttention;
use super::float_device::FloatDevice;
use super::*;
use duet_kernels::crew::Solo;
use duet_model::LoadOptions;
use duet_model::forward::{Activations, AttentionWise, ChunksTaken, HoldsLayers, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_scheduler::Share;
use duet_scheduler::layers::HeldLayers;
use duet_scheduler::machine::{Anchors, AttendedChunks, Attention, FewRows, Lane, PerRow};
use duet_types::{Bytes, Nanos, TokenId, Tokens};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const ROWS: u32 = 48;

/// A device that fails when it is asked to.
#[derive(Debug)]
struct Moody {
    inner: FloatDevice,
    fails: Arc<AtomicBool>,
}

impl Moody {
    fn checked<R>(&self, run: impl FnOnce(&FloatDevice) -> Result<R, NotRun>) -> Result<R, NotRun> {
        if self.fails.load(Ordering::Relaxed) { Err(NotRun::Failed("it is gone".to_owned())) } else { run(&self.inner) }
    }
}

impl TokenWise for Moody {
    fn qkv(&self, layer: usize, residual: &[f32], qkv: &mut [f32]) -> Result<(), NotRun> {
        self.checked(|device| device.qkv(layer, residual, qkv))
    }

    fn feed_forward(&self, layer: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        self.checked(|device| device.feed_forward(layer, attended, residual, fed))
    }

    fn head(&self, residual: &[f32], logits: &mut [f32]) -> Result<(), NotRun> {
        self.checked(|device| device.head(residual, logits))
    }
}

/// A model, two devices beside the cores, and a pass of it.
struct Bed {
    model: Model,
    executors: Executors,
    fails: [Arc<AtomicBool>; 2],
}

impl Bed {
    fn new(fallback: Fallback) -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        let model = Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap();
        let fails = [Arc::default(), Arc::default()];
        let taken = ChunksTaken { rows_min: Tokens(8), rows_max: Tokens(ROWS), context_max: Tokens(64) };
        let device = |at: usize| {
            let nodes = Moody { inner: FloatDevice::new(&model), fails: Arc::clone(&fails[at]) };
            let attention: Arc<dyn AttentionWise> = Arc::new(FloatAttention::new(&model, taken, &fails[at]));
            Device { attention: Some(attention), ..Device::new(format!("float{at}"), "1", Arc::new(nodes)) }
        };
        let executors = Executors::new(model.work(), vec![device(0), device(1)], fallback);
        Self { model, executors, fails }
    }

    /// Runs a node on these lanes with these shares of the first two.
    fn run(&self, lanes: &[u8], shares: [u32; 2], node: Node) -> Result<(), EngineError> {
        let table = self.model.kv_pool(KvFormat::F16, Tokens(ROWS)).table();
        let segment = Segment::new(table, (3..3 + ROWS).map(TokenId).collect());
        let mut pass = Pass::new(&self.model, Activations::new(&self.model, ROWS as usize), vec![segment]).unwrap();
        self.model.run_node(&mut pass, Node::Embed, 0..ROWS as usize, &Solo);
        let lanes: LaneSet = lanes.iter().map(|&lane| LaneId(lane)).collect();
        let shares = [0, 1].map(|lane| {
            let rows = Tokens(shares[usize::from(lane)]);
            Share { lane: LaneId(lane), qkv: rows, ffn: rows }
        });
        let site = Site { shares: &shares, ..Site::new(lanes, &Solo) };
        self.executors.run_node(&self.model, &mut pass, node, 0..ROWS as usize, site)
    }

    /// Rows that each device and the crew computed of such nodes so far.
    fn rows(&self, node: Node) -> [u64; 3] {
        let work = self.executors.linear_work();
        let macs = [work.devices[0].macs, work.devices[1].macs, work.on_crew];
        macs.map(|macs| macs / self.executors.macs(node))
    }
}

#[test]
fn rows_go_to_the_executors_of_their_kernel() {
    for node in [Node::Qkv { layer: 0 }, Node::Ffn { layer: 0 }] {
        for (lanes, shares, rows) in [
            (&[0][..], [0, 0], [48, 0, 0]),
            (&[1], [0, 0], [0, 48, 0]),
            (&[2], [0, 0], [0, 0, 48]),
            (&[0, 2], [32, 0], [32, 0, 16]),
            (&[0, 1, 2], [16, 16], [16, 16, 16]),
            (&[0, 1], [16, 32], [16, 32, 0]),
        ] {
            let bed = Bed::new(Fallback::Never);
            bed.run(lanes, shares, node).unwrap();
            assert_eq!(bed.rows(node), rows, "lanes {lanes:?}");
        }
    }
}

#[test]
fn a_device_that_fails_is_stood_in_for_told_of_once_and_left_alone_until_it_is_probed() {
    let (bed, node) = (Bed::new(Fallback::Crew), Node::Ffn { layer: 0 });
    bed.fails[0].store(true, Ordering::Relaxed);
    bed.run(&[0, 1, 2], [16, 16], node).unwrap();
    assert_eq!(bed.rows(node), [0, 16, 32]);
    let all = LaneSet::first(3);
    assert_eq!(bed.executors.take_failures(LaneSet::from_iter([LaneId(1)])), LaneSet::EMPTY);
    assert_eq!(bed.executors.take_failures(all), LaneSet::first(1));
    assert_eq!(bed.executors.take_failures(all), LaneSet::EMPTY);
    // It works again, but nobody has looked.
    assert!(bed.executors.probe(&bed.model, LaneId(0)).is_err());
    bed.fails[0].store(false, Ordering::Relaxed);
    bed.run(&[0], [0, 0], node).unwrap();
    assert_eq!(bed.rows(node), [0, 16, 80]);
    bed.executors.probe(&bed.model, LaneId(0)).unwrap();
    bed.run(&[0], [0, 0], node).unwrap();
    assert_eq!(bed.rows(node), [48, 16, 80]);
    assert_eq!(bed.executors.linear_work().refused(), 1);
}

#[test]
fn without_a_fallback_its_error_is_the_requests() {
    let bed = Bed::new(Fallback::Never);
    bed.fails[1].store(true, Ordering::Relaxed);
    let error = bed.run(&[0, 1, 2], [16, 16], Node::Ffn { layer: 0 }).unwrap_err();
    assert!(matches!(&error, EngineError::Device { device, .. } if device == "float1"), "{error}");
}

#[test]
fn a_device_attends_for_what_it_is_given() {
    let (bed, node) = (Bed::new(Fallback::Crew), Node::Attention { layer: 0 });
    let launched = |lanes: &[u8], attention: Attention| {
        let before = bed.executors.attention_stats().launches;
        bed.executors.give_attention(LaneId(0), attention);
        bed.run(lanes, [0, 0], node).unwrap();
        bed.executors.attention_stats().launches - before
    };
    let chunks = |rows_min, context_min| {
        Attention::Chunks(AttendedChunks {
            rows_min: Tokens(rows_min),
            rows_max: Tokens(64),
            context_min: Tokens(context_min),
            context_max: Tokens(64),
        })
    };
    for (attention, launches) in [
        (Attention::None, 0),
        (Attention::Any, 1),
        (Attention::UpTo(Tokens(ROWS)), 1),
        (Attention::UpTo(Tokens(ROWS - 1)), 0),
        (chunks(ROWS, 0), 1),
        (chunks(ROWS + 1, 0), 0),
        (chunks(1, ROWS), 1),
        (chunks(1, ROWS + 1), 0),
    ] {
        assert_eq!(launched(&[0], attention), launches, "{attention:?}");
        assert_eq!(launched(&[0, 2], attention), launches, "{attention:?} in a team");
        assert_eq!(launched(&[2], attention), 0, "the cores alone");
    }
    bed.fails[0].store(true, Ordering::Relaxed);
    assert_eq!(launched(&[0], Attention::Any), 0);
    assert_eq!(bed.executors.take_failures(LaneSet::first(3)), LaneSet::first(1));
}

/// Where a device has room for one layer.
#[derive(Debug)]
struct Shelf(Mutex<Range<usize>>);

impl HoldsLayers for Shelf {
    fn room(&self) -> Bytes {
        Bytes(1)
    }

    fn bytes_of(&self, _: usize) -> Bytes {
        Bytes(1)
    }

    fn held(&self) -> Range<usize> {
        self.0.lock().unwrap().clone()
    }

    fn hold(&self, layers: Range<usize>) -> Result<(), NotRun> {
        if layers.len() != 1 {
            return Err(NotRun::Failed("there is room for one".to_owned()));
        }
        *self.0.lock().unwrap() = layers;
        Ok(())
    }
}

#[test]
fn a_device_computes_the_layers_that_it_holds_and_the_crew_the_others() {
    let bed = Bed::new(Fallback::Crew);
    let layers: Arc<dyn HoldsLayers> = Arc::new(Shelf(Mutex::new(0..1)));
    let device = Device { layers: Some(layers), ..bed.executors.device(LaneId(0)).unwrap().clone() };
    let bed = Bed { executors: Executors::new(bed.model.work(), vec![device.clone(), device], Fallback::Crew), ..bed };
    let held = |layers: &Range<usize>| {
        let capabilities = Capabilities { layers: Some(HeldLayers::new(layers)), ..Capabilities::DYNAMIC };
        let anchors = Anchors {
            macs_per_s: 1.0,
            attention_macs_per_s: 1.0,
            bytes_per_s: 1.0,
            launch: Nanos::ZERO,
            exposed: 0.0,
            per_row: PerRow::NONE,
            few_rows: FewRows::NONE,
        };
        Machine::of(vec![Lane::new("float0", capabilities, anchors)])
    };
    let rows = |layer| {
        let (node, before) = (Node::Ffn { layer }, bed.rows(Node::Ffn { layer }));
        for (lanes, shares) in [(&[0][..], [0, 0]), (&[0, 2], [32, 0])] {
            bed.run(lanes, shares, node).unwrap();
        }
        let after = bed.rows(node);
        [after[0] - before[0], after[2] - before[2]]
    };
    assert_eq!([rows(0), rows(1)], [[80, 16], [0, 96]]);
    bed.executors.hold_as(&held(&(1..2))).unwrap();
    assert_eq!(bed.executors.held(LaneSet::first(1)), 1..2);
    assert_eq!(bed.executors.held(LaneSet::from_iter([LaneId(2)])), 0..2, "cores hold all");
    assert_eq!([rows(0), rows(1)], [[0, 96], [80, 16]]);
    bed.executors.hold_as(&held(&(0..2))).unwrap();
    assert!(bed.executors.failed().contains(LaneId(0)), "what it cannot hold it has failed at");
}
