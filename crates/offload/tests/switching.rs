//! A small model's graphs, exchanged on OpenVINO's CPU device while a prompt is read: every plan computes the same. Skipped,
//! with a word, where there is no runtime.

use duet_kernels::crew::Solo;
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_offload::switching::{Exchange, Loaded, Placement, Shelf, SwitchingError, read};
use duet_openvino::{Activations, CompileOptions, Runtime};
use duet_runtimes::{BlobCache, FaultPlan, FaultyDevice, GraphDevice};
use duet_scheduler::progressive::{
    Block, Blocks, GraphCost, Pair, PassTime, Plan, Problem, Prompt, Role, Timeline, asynchronous, both_resident,
    greedy, just_in_time, shared, synchronous,
};
use duet_types::{Bytes, Nanos, TokenId, Tokens};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

const ROWS: Pair<Tokens> = Pair { prefill: Tokens(16), decode: Tokens(4) };
const PROMPT: u32 = 43;

fn model() -> Arc<Model> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

/// A device that fails by the plan, and a shelf of the model's graphs in a folder.
fn shelf(model: &Arc<Model>, folder: &Path, faults: FaultPlan) -> Option<Shelf> {
    shelf_within(model, folder, Bytes(1 << 30), faults)
}

/// The same with so much room in the cache.
fn shelf_within(model: &Arc<Model>, folder: &Path, room: Bytes, faults: FaultPlan) -> Option<Shelf> {
    let runtime = duet_testing::loaded(Runtime::load())?;
    let device = runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED));
    let device: Arc<dyn GraphDevice> = Arc::new(FaultyDevice::new(device, faults));
    let cache = BlobCache::new(folder.to_owned(), room);
    let placement = Placement { device, cache };
    let blocks = NonZeroUsize::new(2).unwrap();
    Some(Shelf::fill(model, placement, blocks, &[ROWS.decode, ROWS.prefill], &mut |_| {}).unwrap())
}

/// Loads take about as long as half a chunk, so that plans differ.
fn blocks(shelf: &Shelf) -> Blocks {
    let cost = |empty, bytes| GraphCost {
        pass: PassTime { empty: Nanos(empty), per_position: Nanos(0) },
        load: Nanos(1_000),
        bytes,
    };
    let block = |block| Block {
        prefill: cost(2_000, shelf.bytes(block, ROWS.prefill)),
        decode: cost(600, shelf.bytes(block, ROWS.decode)),
    };
    Blocks::new(ROWS, (0..shelf.count()).map(block).collect()).unwrap()
}

fn plans(blocks: &Blocks) -> Vec<Plan> {
    let prompt = Prompt { context: Tokens::ZERO, rows: Tokens(PROMPT) };
    let (in_place, beside) = (Problem::in_place(blocks, prompt).unwrap(), Problem::beside(blocks, prompt).unwrap());
    vec![
        shared(blocks, prompt, Role::Prefill).unwrap(),
        shared(blocks, prompt, Role::Decode).unwrap(),
        both_resident(blocks, prompt).unwrap(),
        synchronous(&in_place),
        asynchronous(&in_place),
        greedy(&in_place),
        just_in_time(&in_place),
        greedy(&beside),
    ]
}

/// The logits after the prompt, what is loaded then, and what took how long.
fn follow(
    model: &Model,
    shelf: &Shelf,
    blocks: &Blocks,
    plan: Plan,
) -> Result<(Vec<f32>, Loaded, Timeline), SwitchingError> {
    let tokens: Vec<TokenId> = (0..PROMPT).map(|index| TokenId(3 + index * 5 % 50)).collect();
    let pool = model.kv_pool(KvFormat::F16, Tokens(PROMPT));
    let loaded = Loaded::load(shelf, ROWS, plan.initial())?;
    let (read, loaded, timeline) = Exchange::new(shelf, blocks, plan, loaded).run(|exchange| {
        let read = read(model, exchange, pool.table(), &tokens, &Solo)?;
        exchange.wait_switched()?;
        Ok(read)
    })?;
    assert_eq!(read.kv.len(), Tokens(PROMPT));
    Ok((read.logits, loaded, timeline))
}

#[test]
fn every_plan_computes_the_same_and_ends_with_what_it_says() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let Some(shelf) = shelf(&model, folder.path(), FaultPlan::default()) else { return };
    let blocks = blocks(&shelf);
    let mut first: Option<Vec<f32>> = None;
    for plan in plans(&blocks) {
        let (initial, loads) = (plan.initial().to_vec(), plan.loads().to_vec());
        let (logits, loaded, timeline) = follow(&model, &shelf, &blocks, plan).unwrap();
        let first = first.get_or_insert_with(|| logits.clone());
        let largest = first.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
        let off = logits.iter().zip(&*first).fold(0.0_f32, |off, (a, b)| off.max((a - b).abs()));
        assert!(off <= 1e-5 * largest, "off by {off} of {largest}: {initial:?}, {loads:?}");
        // What was loaded is there, and what it took the place of is gone.
        assert_eq!(timeline.loaded.iter().map(|done| done.load).collect::<Vec<_>>(), loads);
        for (block, initial) in initial.iter().enumerate() {
            let switched = loads.iter().any(|load| load.block == block);
            for role in [Role::Prefill, Role::Decode] {
                let is_there = if switched { role == Role::Decode } else { initial.has(role) };
                assert_eq!(loaded.get(block, role).is_ok(), is_there, "block {block}, {role:?}");
            }
        }
        let chunks = PROMPT.div_ceil(ROWS.prefill.0) as usize;
        assert_eq!(timeline.computed.len(), chunks * shelf.count());
        assert!(timeline.computed.windows(2).all(|pair| pair[0].until <= pair[1].from));
        assert!(timeline.prefilled.0 >= timeline.stalled.0);
    }
}

#[test]
fn one_graph_of_each_block_stays_within_the_budget() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let Some(shelf) = shelf(&model, folder.path(), FaultPlan::default()) else { return };
    let blocks = blocks(&shelf);
    let one = blocks.bytes(Role::Prefill).max(blocks.bytes(Role::Decode));
    let prompt = Prompt { context: Tokens::ZERO, rows: Tokens(PROMPT) };
    let plan = greedy(&Problem::in_place(&blocks, prompt).unwrap());
    assert!(follow(&model, &shelf, &blocks, plan).unwrap().2.peak <= one);
    let both = follow(&model, &shelf, &blocks, both_resident(&blocks, prompt).unwrap()).unwrap().2.peak;
    assert_eq!(both, blocks.bytes(Role::Prefill) + blocks.bytes(Role::Decode));
}

#[test]
fn a_load_that_fails_ends_the_run_with_its_reason() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    // The first shelf compiles; of the second one nothing but loads and trials are imports.
    if shelf(&model, folder.path(), FaultPlan::default()).is_none() {
        return;
    }
    let layers = model.config().layers as u32;
    let before = 5 + 2 * layers;
    // What cannot be taken up is compiled, after the cache was asked once more.
    let faults = FaultPlan::default().import_fails(before + 1).import_fails(before + 2).compile_fails(0);
    let shelf = shelf(&model, folder.path(), faults).unwrap();
    let blocks = blocks(&shelf);
    let prompt = Prompt { context: Tokens::ZERO, rows: Tokens(PROMPT) };
    let plan = asynchronous(&Problem::in_place(&blocks, prompt).unwrap());
    let error = follow(&model, &shelf, &blocks, plan).unwrap_err();
    assert!(error.to_string().contains("compile_model"), "{error}");
}

/// All files of the cache are gone, or nothing was ever kept: graphs are compiled when they are loaded, and compute the same.
#[test]
fn a_graph_that_has_gone_from_the_cache_is_compiled_again() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let Some(roomy) = shelf(&model, folder.path(), FaultPlan::default()) else { return };
    let blocks = blocks(&roomy);
    let prompt = Prompt { context: Tokens::ZERO, rows: Tokens(PROMPT) };
    let plan = || greedy(&Problem::in_place(&blocks, prompt).unwrap());
    let expected = follow(&model, &roomy, &blocks, plan()).unwrap().0;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(follow(&model, &roomy, &blocks, plan()).unwrap().0, expected);
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 0, "they are kept again");
    // Room for no graph at all.
    let nowhere = tempfile::tempdir().unwrap();
    let tight = shelf_within(&model, nowhere.path(), Bytes(100), FaultPlan::default()).unwrap();
    assert_eq!(follow(&model, &tight, &blocks, plan()).unwrap().0, expected);
    // What they take is known all the same; a compiler writes some bytes more or less each time.
    let [known, kept] = [&tight, &roomy].map(|shelf| shelf.bytes(0, ROWS.decode).0 as f64);
    assert!((known / kept - 1.0).abs() < 0.01, "{known} and {kept}");
}

#[test]
fn what_was_never_on_the_shelf_is_not_loaded() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let Some(shelf) = shelf(&model, folder.path(), FaultPlan::default()) else { return };
    assert!(matches!(shelf.load(0, Tokens(99)), Err(SwitchingError::NoShape(Tokens(99)))));
    assert!(matches!(shelf.load(7, ROWS.decode), Err(SwitchingError::NotLoaded(7))));
}

#[test]
fn a_prompt_that_was_not_planned_for_ends_the_run() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let Some(shelf) = shelf(&model, folder.path(), FaultPlan::default()) else { return };
    let blocks = blocks(&shelf);
    let prompt = Prompt { context: Tokens::ZERO, rows: Tokens(PROMPT) };
    let plan = asynchronous(&Problem::in_place(&blocks, prompt).unwrap());
    let begin = || Exchange::new(&shelf, &blocks, plan.clone(), Loaded::load(&shelf, ROWS, plan.initial()).unwrap());
    let table = model.kv_pool(KvFormat::F16, Tokens(PROMPT)).table();
    let read = begin().run(|exchange| read(&model, exchange, table, &[TokenId(3)], &Solo));
    assert!(matches!(read, Err(SwitchingError::OtherPrompt)));
    // Nobody waits for loads that are never due.
    assert!(matches!(begin().run(|_| Ok(())), Err(SwitchingError::OtherPrompt)));
    assert!(matches!(begin().run(Exchange::wait_switched), Err(SwitchingError::OtherPrompt)));
}
