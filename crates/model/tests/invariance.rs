//! A row's logits are the same bytes in any company: batches, chunks, crews, node by node, draft trees, forked caches.

use duet_kernels::crew::{Crew, Scoped, Solo};
use duet_model::forward::{Activations, Pass, PassError, Segment};
use duet_model::kv::{KvFormat, KvPool, KvTable};
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use proptest::prelude::*;
use std::path::Path;

const MODELS: [&str; 22] = [
    "llama",
    "qwen3",
    "gemma3",
    "gemma4",
    "gemma4_dense",
    "gemma4_experts",
    "mixtral",
    "olmoe",
    "qwen2moe",
    "qwen3moe",
    "phimoe",
    "phi3",
    "gptoss",
    "glm4moe_air",
    "lfm2",
    "lfm2moe",
    "qwen3next",
    "qwen35",
    "qwen35moe",
    "granitemoe",
    "granitehybrid",
    "granitehybrid_experts",
];

fn load(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/golden_{name}.gguf"));
    Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn text(count: usize, seed: usize) -> Vec<TokenId> {
    (0..count).map(|i| TokenId(((i * 37 + seed * 101 + i * i % 11) % 250) as u32)).collect()
}

fn pool(model: &Model, format: KvFormat) -> KvPool {
    model.kv_pool(format, Tokens(8192))
}

/// Feeds tokens and returns the logits of all of them.
fn feed(model: &Model, kv: KvTable, tokens: &[TokenId], crew: &dyn Crew) -> (KvTable, Vec<Vec<f32>>) {
    let mut pass =
        Pass::new(model, Activations::new(model, tokens.len()), vec![Segment::new(kv, tokens.to_vec())]).unwrap();
    model.run_span(&mut pass, 0..model.node_count(), crew);
    let logits = all_logits(model, &mut pass, crew);
    let (_, mut tables) = pass.finish();
    (tables.pop().unwrap(), logits)
}

fn all_logits(model: &Model, pass: &mut Pass, crew: &dyn Crew) -> Vec<Vec<f32>> {
    let rows: Vec<usize> = (0..pass.rows()).collect();
    let mut logits = Vec::new();
    model.logits(pass, &rows, &mut logits, crew);
    logits.chunks_exact(model.config().vocabulary).take(rows.len()).map(<[f32]>::to_vec).collect()
}

/// One token after the other.
fn one_by_one(model: &Model, mut kv: KvTable, tokens: &[TokenId]) -> (KvTable, Vec<Vec<f32>>) {
    let mut all = Vec::new();
    for token in tokens {
        let (table, logits) = feed(model, kv, &[*token], &Solo);
        kv = table;
        all.extend(logits);
    }
    (kv, all)
}

#[test]
fn what_only_the_head_reads_begins_behind_the_last_layer_that_keeps_something() {
    // Attention of the last layer and its feed-forward block; the block alone behind a state; and what reads others' keys.
    for (name, left_out) in [("llama", 2), ("lfm2", 1), ("qwen3next", 2), ("gemma4", 8)] {
        let model = load(name);
        assert_eq!(model.node_count() - model.nodes_for_all_rows(), left_out, "{name}");
    }
}

#[test]
#[should_panic(expected = "3..4 of 4..5 are read")]
fn a_row_that_was_said_not_to_be_read_has_no_logits() {
    let model = load("llama");
    let segment = Segment::new(pool(&model, KvFormat::F16).table(), text(5, 1));
    let mut pass = Pass::new(&model, Activations::new(&model, 5), vec![segment]).unwrap();
    pass.set_head_rows(4..5);
    model.run_span(&mut pass, 0..model.node_count(), &Solo);
    model.logits(&mut pass, &[3], &mut Vec::new(), &Solo);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn chunks_and_crews_change_nothing(
        which in 0..MODELS.len(),
        chunks in prop::collection::vec(1_usize..50, 1..5),
        threads in 1_usize..4,
        format in prop::sample::select(KvFormat::ALL.to_vec()),
    ) {
        let model = load(MODELS[which]);
        let pool = pool(&model, format);
        let tokens = text(chunks.iter().sum(), 1);
        let (_, expected) = one_by_one(&model, pool.table(), &tokens);
        let (mut kv, mut all, mut at) = (pool.table(), Vec::new(), 0);
        for chunk in chunks {
            let (table, logits) = feed(&model, kv, &tokens[at..at + chunk], &Scoped { threads });
            kv = table;
            all.extend(logits);
            at += chunk;
        }
        prop_assert!(all == expected);
    }

    /// Of a chunk some rows are read behind the last layer; the others are there for what later rows read of them.
    #[test]
    fn rows_that_nobody_reads_change_no_others(
        which in 0..MODELS.len(),
        chunks in prop::collection::vec((1_usize..50, 0_usize..60), 1..5),
        threads in 1_usize..4,
        format in prop::sample::select(KvFormat::ALL.to_vec()),
    ) {
        let model = load(MODELS[which]);
        let tokens = text(chunks.iter().map(|(rows, _)| rows).sum(), 1);
        let (_, expected) = one_by_one(&model, pool(&model, format).table(), &tokens);
        let (pool, crew) = (pool(&model, format), Scoped { threads });
        let (mut kv, mut at) = (pool.table(), 0);
        for (rows, unread) in chunks {
            let segment = Segment::new(kv, tokens[at..at + rows].to_vec());
            let mut pass = Pass::new(&model, Activations::new(&model, rows), vec![segment]).unwrap();
            let read = unread.min(rows)..rows;
            pass.set_head_rows(read.clone());
            model.run_span(&mut pass, 0..model.node_count(), &crew);
            let mut logits = Vec::new();
            model.logits(&mut pass, &read.clone().collect::<Vec<_>>(), &mut logits, &crew);
            let width = model.config().vocabulary;
            for (row, logits) in read.zip(logits.chunks_exact(width)) {
                prop_assert!(logits == expected[at + row], "row {} of {}", row, MODELS[which]);
            }
            kv = pass.finish().1.pop().unwrap();
            at += rows;
        }
    }

    /// Sequences of different lengths in one pass, and the nodes of the pass run on ranges of rows.
    #[test]
    fn batches_and_row_ranges_change_nothing(
        which in 0..MODELS.len(),
        contexts in prop::collection::vec(1_usize..70, 1..6),
        rows in 1_usize..4,
        cut in 0_usize..8,
    ) {
        let model = load(MODELS[which]);
        let pool = pool(&model, KvFormat::F16);
        let mut expected = Vec::new();
        let mut segments = Vec::new();
        for (index, &context) in contexts.iter().enumerate() {
            let (kv, _) = feed(&model, pool.table(), &text(context, index), &Solo);
            let tokens = text(rows, index + 50);
            expected.extend(one_by_one(&model, kv.fork(kv.len()).unwrap(), &tokens).1);
            segments.push(Segment::new(kv, tokens));
        }
        let total = rows * contexts.len();
        let cut = cut.min(total);
        let mut pass = Pass::new(&model, Activations::new(&model, total), segments).unwrap();
        for node in model.nodes() {
            for range in [0..cut, cut..total] {
                model.run_node(&mut pass, node, range, &Scoped { threads: 2 });
            }
        }
        prop_assert!(all_logits(&model, &mut pass, &Solo) == expected);
    }

    /// Each row of a draft tree has the logits of its path fed token by token; the accepted path then goes on as if it
    /// had been. Contexts lie around the borders of pages (64).
    #[test]
    fn a_draft_tree_is_its_paths(
        which in 0..MODELS.len(),
        context in prop::sample::select(vec![1_usize, 5, 60, 63, 64, 100, 127, 190]),
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
        format in prop::sample::select(KvFormat::ALL.to_vec()),
        threads in 1_usize..3,
    ) {
        let model = load(MODELS[which]);
        let pool = pool(&model, format);
        let (kv, _) = feed(&model, pool.table(), &text(context, 3), &Scoped { threads: 2 });
        let parents: Vec<Option<usize>> =
            parents.iter().enumerate().map(|(row, index)| index.index(row + 1).checked_sub(1)).collect();
        let tokens = text(parents.len(), 9);
        let path = |mut row: usize| {
            let mut path = vec![row];
            while let Some(parent) = parents[row] {
                path.insert(0, parent);
                row = parent;
            }
            path
        };
        let along = |rows: &[usize]| rows.iter().map(|&row| tokens[row]).collect::<Vec<_>>();
        let fork = || kv.fork(kv.len()).unwrap();
        let tree = Segment { parents: Some(parents.clone()), ..Segment::new(fork(), tokens.clone()) };
        let mut pass = Pass::new(&model, Activations::new(&model, 16), vec![tree]).unwrap();
        let crew = Scoped { threads };
        model.run_span(&mut pass, 0..model.node_count(), &crew);
        let logits = all_logits(&model, &mut pass, &crew);
        for (row, logits) in logits.iter().enumerate() {
            let (_, expected) = one_by_one(&model, fork(), &along(&path(row)));
            prop_assert!(expected.last() == Some(logits), "row {}", row);
        }
        let accepted = path(parents.len() - 1);
        let (_, mut tables) = pass.finish_accepting(std::slice::from_ref(&accepted));
        let (grown, _) = one_by_one(&model, fork(), &along(&accepted));
        let next = text(3, 77);
        prop_assert!(one_by_one(&model, tables.pop().unwrap(), &next).1 == one_by_one(&model, grown, &next).1);
    }
}

#[test]
fn impossible_passes_are_refused_and_nothing_is_lost() {
    let model = load("llama");
    let pool = model.kv_pool(KvFormat::F16, Tokens(64));
    let refused = |segment: Segment| {
        let refused = Pass::new(&model, Activations::new(&model, 128), vec![segment]).unwrap_err();
        assert_eq!(refused.segments[0].kv.pages(), 0);
        refused.error
    };
    let plain = |count| Segment::new(pool.table(), text(count, 0));
    assert!(matches!(refused(plain(129)), PassError::Rows { rows: 129, capacity: 128 }));
    assert!(matches!(refused(plain(65)), PassError::Kv(_)));
    let token = TokenId(model.config().vocabulary as u32);
    assert!(matches!(refused(Segment::new(pool.table(), vec![token])), PassError::Token(t) if t == token));
    let tree = |parents: Vec<Option<usize>>, rows| Segment { parents: Some(parents), ..plain(rows) };
    assert!(matches!(refused(tree(vec![None, Some(1)], 2)), PassError::Parent { row: 1 }));
    assert!(matches!(refused(tree(vec![None], 2)), PassError::Parent { row: 1 }));
    assert!(matches!(refused(tree(vec![None; 65], 65)), PassError::Tree { rows: 65 }));
    assert_eq!(pool.free_pages(), pool.capacity_pages());
}
