//! Graphs that follow traffic, on a device that takes graphs up and computes nothing; who compiles groups counts them.

use super::super::plan::LayerPlan;
use super::*;
use duet_graphs::LayoutRules;
use duet_moe::{ExpertId, Load, MoeShape, Times};
use duet_runtimes::{
    BlobSource, Buffer, DeviceInfo, DeviceKind, Digest, Emitted, Error, Graph, GraphSource, Ports, Tensors,
};
use duet_types::{Bytes, Nanos, Tokens};
use std::time::{Duration, Instant};

/// Takes graphs up whose bytes are not empty, and compiles none.
#[derive(Debug)]
struct Importing(DeviceInfo);

#[derive(Debug)]
struct Idle(Ports);

impl Importing {
    fn device() -> Arc<dyn GraphDevice> {
        let (name, peaks) = ("IMPORTING".to_owned(), Vec::new());
        let (full_name, architecture, driver, memory) = Default::default();
        Arc::new(Self(DeviceInfo { name, kind: DeviceKind::Npu, full_name, architecture, driver, memory, peaks }))
    }
}

impl GraphDevice for Importing {
    fn info(&self) -> &DeviceInfo {
        &self.0
    }

    fn rules(&self) -> LayoutRules {
        LayoutRules::FREE
    }

    fn toolchain(&self) -> &str {
        "1"
    }

    fn settings(&self) -> String {
        String::new()
    }

    fn tolerance(&self) -> f64 {
        0.0
    }

    fn emit(&self, _: &GraphSource<'_>) -> Result<Emitted, Error> {
        Err(Error::NotStarted)
    }

    fn compile_graph(&self, _: &Emitted) -> Result<Box<dyn Graph>, Error> {
        Err(Error::NotStarted)
    }

    fn import_graph(&self, _: &[u8]) -> Result<Box<dyn Graph>, Error> {
        Ok(Box::new(Idle(Ports { inputs: Vec::new(), outputs: Vec::new() })))
    }
}

impl Graph for Idle {
    fn ports(&self) -> &Ports {
        &self.0
    }

    fn export(&self) -> Result<Vec<u8>, Error> {
        Err(Error::NotStarted)
    }

    fn start(&mut self, _: Tensors) -> Result<(), Error> {
        Ok(())
    }

    fn wait(&mut self, _: Nanos) -> Result<Vec<Buffer>, Error> {
        Ok(Vec::new())
    }
}

/// Compiles groups, but for some that it cannot so often.
#[derive(Debug, Default)]
struct Making {
    made: Mutex<Vec<u32>>,
    fails: Mutex<Vec<u32>>,
}

impl MakesGroups for Arc<Making> {
    fn make(&self, kept: &Kept) -> Result<Box<dyn Graph>, OffloadError> {
        let expert = kept.group.experts[0].0;
        let mut fails = self.fails.lock().unwrap();
        if let Some(at) = fails.iter().position(|other| *other == expert) {
            fails.remove(at);
            return Err(OffloadError::Dense);
        }
        self.made.lock().unwrap().push(expert);
        Ok(Box::new(Idle(Ports { inputs: Vec::new(), outputs: Vec::new() })))
    }
}

fn loads(loads: [u64; 4]) -> LayerCounts {
    LayerCounts::of(loads.map(Load).to_vec())
}

/// One layer of four experts, each a group; the first ones are busy, and there is memory for two.
fn plan() -> Plan {
    let group = |expert| Group { capacity: Tokens(16), experts: vec![ExpertId(expert)] };
    let times = Times {
        launch: Nanos(100),
        weights: Nanos::ZERO,
        slot: Nanos(1),
        cpu_row: Nanos(100),
        cpu_weights: Nanos(100),
    };
    Plan {
        shape: MoeShape { chunk: Tokens(64), chosen: 1, expert_bytes: Bytes(10) },
        device: duet_moe::Device {
            tile: Tokens(16),
            graph_bytes_max: Bytes(100),
            group_max: 1,
            resident_bytes_max: Bytes(20),
            times,
        },
        layers: vec![LayerPlan { counts: loads([50, 40, 5, 5]), groups: (0..4).map(group).collect() }],
    }
}

/// A shelf whose cache holds the graphs of these experts.
fn shelf(folder: &std::path::Path, cached: &[u32], making: &Arc<Making>) -> Shelf {
    let (device, cache) = (Importing::device(), BlobCache::new(folder.to_owned(), Bytes(1 << 20)));
    let kept = |(expert, group): (u32, &Group)| {
        let source = BlobSource { model: Digest([0; 32]), block: Digest([expert as u8; 32]), shape: "16".to_owned() };
        let key = BlobKey::new(&source, &*device);
        if cached.contains(&expert) {
            cache.put(&key, b"a graph").unwrap();
        }
        let widths = Widths { inputs: vec![4], outputs: vec![4] };
        Kept {
            layer: 0,
            group: group.clone(),
            ranges: None,
            widths,
            patience: Some(Patience::new(Tokens(16), Nanos(1))),
            key,
        }
    };
    let plan = plan();
    let kept = (0..).zip(&plan.layers[0].groups).map(kept).collect();
    Shelf::new(&plan, kept, Sources { device, cache, maker: Box::new(Arc::clone(making)) }).unwrap()
}

fn hot(shelf: &Shelf, counts: LayerCounts) -> Vec<u32> {
    shelf.routed(0, counts).into_iter().map(|(id, _)| id.0).collect()
}

/// Routes chunks of such counts until these are hot.
fn until(shelf: &Shelf, counts: [u64; 4], wanted: &[u32]) {
    let start = Instant::now();
    while hot(shelf, loads(counts)) != wanted {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", hot(shelf, loads(counts)));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn graphs_follow_traffic_and_those_that_are_there_can_be_launched() {
    let folder = tempfile::tempdir().unwrap();
    let making = Arc::default();
    let shelf = shelf(folder.path(), &[0, 1, 2, 3], &making);
    assert_eq!(hot(&shelf, loads([50, 40, 5, 5])), [0, 1], "what was calibrated is there from the beginning");
    assert_eq!(shelf.loads(), Loads { done: 0, failed: 0, resident: Bytes(20) });
    until(&shelf, [1, 1, 31, 31], &[2, 3]);
    assert!(shelf.loads().done >= 2 && shelf.loads().failed == 0 && shelf.loads().resident == Bytes(20));
    for (id, there) in [(0, false), (1, false), (2, true), (3, true)] {
        assert_eq!(shelf.graph(GroupId(id)).unwrap().1.is_some(), there, "group {id}");
    }
    assert!(shelf.graph(GroupId(4)).is_none());
    assert!(making.made.lock().unwrap().is_empty(), "all come from the cache");
}

#[test]
fn a_graph_that_the_cache_lost_is_compiled_again() {
    let (folder, making) = (tempfile::tempdir().unwrap(), Arc::default());
    let shelf = shelf(folder.path(), &[0, 3], &making);
    assert_eq!(hot(&shelf, loads([50, 40, 5, 5])), [0, 1]);
    until(&shelf, [1, 1, 31, 31], &[2, 3]);
    assert_eq!(*making.made.lock().unwrap(), [1, 2]);
}

#[test]
fn a_group_that_could_not_be_made_is_the_cpus_and_tried_again() {
    let (folder, making) = (tempfile::tempdir().unwrap(), Arc::<Making>::default());
    making.fails.lock().unwrap().extend([1, 1]);
    let shelf = shelf(folder.path(), &[0, 2, 3], &making);
    // The memory is there for whoever can be brought meanwhile.
    assert!(!hot(&shelf, loads([50, 40, 5, 5])).contains(&1));
    until(&shelf, [30, 30, 1, 1], &[0, 1]);
    assert_eq!(*making.made.lock().unwrap(), [1], "it failed twice, and then it came");
    assert_eq!(shelf.loads().failed, 2);
}

/// Compiles groups of many layers, keeps them as the real one does, and fails as often as is asked.
#[derive(Debug)]
struct Keeping {
    cache: BlobCache,
    fails: AtomicU64,
    made: AtomicU64,
    takes: Duration,
}

impl MakesGroups for Arc<Keeping> {
    fn make(&self, kept: &Kept) -> Result<Box<dyn Graph>, OffloadError> {
        if self.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |fails| fails.checked_sub(1)).is_ok() {
            return Err(OffloadError::Dense);
        }
        std::thread::sleep(self.takes);
        self.made.fetch_add(1, Ordering::Relaxed);
        self.cache.put(&kept.key, &[1; BLOB]).unwrap();
        Ok(Box::new(Idle(Ports { inputs: Vec::new(), outputs: Vec::new() })))
    }
}

const BLOB: usize = 1000;
const LAYERS: usize = 8;
const EXPERTS: u32 = 128;
/// Of four experts each.
const OF_LAYER: usize = 32;

/// 256 groups, of which memory holds 25, and a cache of about as many. Nothing is compiled at the beginning.
fn many(folder: &std::path::Path, (fails, takes): (u64, Duration)) -> (Shelf, Arc<Keeping>) {
    let (device, cache) = (Importing::device(), BlobCache::new(folder.to_owned(), Bytes(25 * (BLOB as u64 + 200))));
    let fails = AtomicU64::new(fails);
    let maker = Arc::new(Keeping { cache: cache.clone(), fails, made: AtomicU64::new(0), takes });
    let experts: Vec<ExpertId> = (0..EXPERTS).map(ExpertId).collect();
    let groups = experts.chunks(4).map(|experts| Group { capacity: Tokens(16), experts: experts.to_vec() });
    let groups: Vec<Group> = groups.collect();
    let plan = plan();
    let layer = || LayerPlan { counts: LayerCounts::none(EXPERTS as usize), groups: groups.clone() };
    let plan = Plan {
        shape: MoeShape { chosen: 8, chunk: Tokens(64), ..plan.shape },
        device: duet_moe::Device { group_max: 4, resident_bytes_max: Bytes(25 * 40), ..plan.device },
        layers: (0..LAYERS).map(|_| layer()).collect(),
    };
    let kept = (0..LAYERS).flat_map(|layer| groups.iter().map(move |group| (layer, group)));
    let kept = kept.map(|(layer, group)| {
        let block = Digest([(layer * OF_LAYER) as u8 + group.experts[0].0 as u8 / 4; 32]);
        let source = BlobSource { model: Digest([0; 32]), block, shape: "16".to_owned() };
        let (key, widths) = (BlobKey::new(&source, &*device), Widths { inputs: vec![4], outputs: vec![4] });
        Kept { layer, group: group.clone(), ranges: None, widths, patience: None, key }
    });
    let kept = kept.collect();
    (Shelf::new(&plan, kept, Sources { device, cache, maker: Box::new(Arc::clone(&maker)) }).unwrap(), maker)
}

/// Passes in which all rows of a layer go to one of its groups, until that is there.
fn brought(shelf: &Shelf, (layer, at): (usize, usize)) {
    let busy = |expert: usize| Load(if expert / 4 == at { 128 } else { 0 });
    let wanted = LayerCounts::of((0..EXPERTS as usize).map(busy).collect());
    let even = LayerCounts::of(vec![Load(4); EXPERTS as usize]);
    let (id, start) = (GroupId((layer * OF_LAYER + at) as u32), Instant::now());
    loop {
        let counts = |of| if of == layer { wanted.clone() } else { even.clone() };
        let hot: Vec<_> = (0..LAYERS).map(|layer| shelf.routed(layer, counts(layer))).collect();
        if hot[layer].iter().any(|(hot, _)| *hot == id) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "group {at} of layer {layer} never comes");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(shelf.graph(id).unwrap().1.is_some());
}

/// Each group comes when it is wanted, comes back after others put it out of memory and cache, and comes although it failed;
/// those that the cache still has are not compiled.
#[test]
fn of_hundreds_of_groups_none_is_lost_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, maker) = many(folder.path(), (40, Duration::ZERO));
    let order = || (0..LAYERS).flat_map(|layer| (0..OF_LAYER).step_by(3).map(move |at| (layer, at)));
    let wanted = order().chain(order().rev());
    let mut asked = 0;
    for group in wanted {
        brought(&shelf, group);
        asked += 1;
        let kept = std::fs::read_dir(folder.path()).unwrap().count();
        assert!(kept <= 25, "{kept} graphs are kept");
        assert!(shelf.loads().resident <= Bytes(25 * 40), "{:?}", shelf.loads());
    }
    let (made, loads) = (maker.made.load(Ordering::Relaxed), shelf.loads().done);
    assert_eq!((asked, maker.fails.load(Ordering::Relaxed)), (2 * LAYERS * OF_LAYER.div_ceil(3), 0));
    assert!(made > 100 && loads <= 2 * asked as u64, "{made} compiled, {loads} loads for {asked} wanted");
}

#[test]
fn who_drops_the_groups_waits_for_none_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, maker) = many(folder.path(), (0, Duration::from_millis(10)));
    let before = maker.made.load(Ordering::Relaxed);
    for id in 100..200 {
        shelf.commands.as_ref().unwrap().send(Command::Load(GroupId(id))).unwrap();
    }
    drop(shelf);
    let made = maker.made.load(Ordering::Relaxed) - before;
    assert!(made < 50, "{made} were compiled for nobody");
}
