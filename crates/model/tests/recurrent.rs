//! The state of recurrent layers is a part of what is kept of a sequence: however it was come by, cut, shared, given up or
//! read back, what follows is to the bit what it would be in a sequence that was read in one go.

use duet_kernels::crew::{Scoped, Solo};
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::{KvFormat, KvPool, KvTable, PAGE_TOKENS, StateLayout};
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use proptest::prelude::*;
use std::path::Path;

const MODELS: [&str; 5] = ["lfm2", "lfm2moe", "qwen3next", "qwen35", "granitehybrid"];

fn load(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/golden_{name}.gguf"));
    Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn text(count: usize) -> Vec<TokenId> {
    (0..count).map(|i| TokenId(((i * 37 + i * i % 11) % 250) as u32)).collect()
}

fn begun(model: &Model, kv: KvTable, tokens: &[TokenId]) -> Pass {
    let segment = Segment::new(kv, tokens.to_vec());
    let mut pass = Pass::new(model, Activations::new(model, tokens.len()), vec![segment]).unwrap();
    model.run_span(&mut pass, 0..model.node_count(), &Scoped { threads: 2 });
    pass
}

/// Feeds some tokens; the logits of the last one.
fn feed(model: &Model, kv: KvTable, tokens: &[TokenId]) -> (KvTable, Vec<f32>) {
    let mut pass = begun(model, kv, tokens);
    let mut logits = Vec::new();
    model.logits(&mut pass, &[tokens.len() - 1], &mut logits, &Solo);
    logits.truncate(model.config().vocabulary);
    (pass.finish().1.remove(0), logits)
}

/// A pool in which large states are kept so many pages apart, and how far from each other a sequence may be cut.
fn pool(model: &Model, format: KvFormat, every: usize) -> (KvPool, usize) {
    let states = model.kv_states(format).map(|states| StateLayout { every, ..states });
    let distance = states.map_or(PAGE_TOKENS, |states| states.distance());
    (KvPool::with_states(model.kv_layout(format), states, 400), distance)
}

#[test]
fn a_sequence_takes_the_pages_that_it_is_said_to() {
    let model = load("qwen35");
    for every in [1, 2] {
        let (pool, _) = pool(&model, KvFormat::Int8, every);
        let tokens = text(200);
        let mut kv = pool.table();
        for chunk in tokens.chunks(50) {
            kv = feed(&model, kv, chunk).0;
            assert_eq!(pool.capacity_pages() - pool.free_pages(), pool.pages_of(kv.len()), "{every}, {}", kv.len());
        }
        // Too little for one more state.
        let taken = pool.capacity_pages() - pool.free_pages();
        let small = KvPool::with_states(*pool.layout(), pool.states().copied(), taken - 1);
        let mut kv = small.table();
        for chunk in tokens[..150].chunks(50) {
            kv = feed(&model, kv, chunk).0;
        }
        let before = small.free_pages();
        assert!(kv.reserve(Tokens(50)).is_err() && small.free_pages() == before);
    }
}

/// What a sequence of these tokens leads to, read in one go.
fn fresh(model: &Model, pool: &KvPool, tokens: &[TokenId]) -> Vec<f32> {
    feed(model, pool.table(), tokens).1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_sequence_may_be_cut_at_borders_and_at_its_end(
        which in 0..MODELS.len(),
        len in 1_usize..200,
        prefix in any::<prop::sample::Index>(),
        chunk in 1_usize..90,
        every in 1_usize..4,
        format in prop::sample::select(KvFormat::ALL.to_vec()),
    ) {
        let model = load(MODELS[which]);
        prop_assert_eq!(model.cuts(), Tokens(PAGE_TOKENS as u32));
        let (pool, distance) = pool(&model, format, every);
        let (tokens, prefix) = (text(len + 1), prefix.index(len) + 1);
        let mut kv = pool.table();
        for chunk in tokens[..len].chunks(chunk) {
            kv = feed(&model, kv, chunk).0;
        }
        let cut = if prefix == len { len } else { prefix / distance * distance };
        prop_assert_eq!(kv.cut(Tokens(prefix as u32)), Tokens(cut as u32));
        let fork = kv.fork(Tokens(prefix as u32)).unwrap();
        let mut file = Vec::new();
        kv.write_to(&mut file).unwrap();
        let read = pool.read_table(Tokens(cut as u32), &mut file.as_slice()).unwrap();
        let mut truncated = kv.fork(kv.len()).unwrap();
        truncated.truncate(Tokens(prefix as u32));
        let next = &tokens[cut..=cut];
        let expected = fresh(&model, &pool, &tokens[..=cut]);
        for table in [fork, read, truncated] {
            prop_assert_eq!(table.len(), Tokens(cut as u32));
            prop_assert!(feed(&model, table, next).1 == expected);
        }
        prop_assert!(feed(&model, kv, &tokens[len..]).1 == fresh(&model, &pool, &tokens), "the sequence itself goes on");
        prop_assert_eq!(pool.free_pages(), pool.capacity_pages());
    }

    #[test]
    fn passes_that_are_given_up_or_accepted_in_part_leave_what_they_should(
        which in 0..MODELS.len(),
        context in prop::sample::select(vec![0_usize, 1, 2, 61, 62, 63, 64, 65, 127, 128]),
        drafted in 1_usize..64,
        accepted in any::<prop::sample::Index>(),
        every in 1_usize..3,
    ) {
        let model = load(MODELS[which]);
        let (pool, distance) = pool(&model, KvFormat::F16, every);
        let tokens = text(context + drafted + 1);
        let kv = if context == 0 { pool.table() } else { feed(&model, pool.table(), &tokens[..context]).0 };
        let wrong: Vec<TokenId> = tokens[context..context + drafted].iter().map(|t| TokenId(249 - t.0)).collect();
        let kv = begun(&model, kv, &wrong).abandon().1.remove(0);
        prop_assert_eq!(kv.len(), Tokens(context as u32));
        let accepted = accepted.index(drafted + 1);
        let pass = begun(&model, kv, &tokens[context..context + drafted]);
        let rows: Vec<usize> = (0..accepted).collect();
        let kv = pass.finish_accepting(std::slice::from_ref(&rows)).1.remove(0);
        let end = context + accepted;
        prop_assert_eq!(kv.len(), Tokens(end as u32));
        let (kv, logits) = feed(&model, kv, &tokens[end..=end]);
        prop_assert!(logits == fresh(&model, &pool, &tokens[..=end]));
        // What was shared before is still what it was.
        if end >= distance {
            let border = end / distance * distance;
            let fork = kv.fork(Tokens(border as u32)).unwrap();
            prop_assert!(feed(&model, fork, &tokens[border..=border]).1 == fresh(&model, &pool, &tokens[..=border]));
        }
    }
}

#[test]
fn models_without_recurrent_layers_may_be_cut_anywhere() {
    let model = load("llama");
    assert_eq!(model.cuts(), Tokens(1));
    let kv = feed(&model, model.kv_pool(KvFormat::F16, Tokens(256)).table(), &text(70)).0;
    assert_eq!(kv.cut(Tokens(65)), Tokens(65));
}
