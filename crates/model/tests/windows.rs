//! A sequence that is too long for its pool lets windows pass, and its logits are the same bytes as with a pool that holds
//! all of it: read at once and in chunks, forked, shared with one that is kept whole, and through a file.

use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::{KvFormat, KvPool, KvTable, PAGE_TOKENS};
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use std::path::Path;

/// Windows of 16 positions, contexts of 256; heads alike and of two shapes.
const MODELS: [&str; 5] = ["gemma3", "gemma4", "gemma4_dense", "gemma4_experts", "gptoss"];

fn load(name: &str) -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/golden_{name}.gguf"));
    Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn text() -> Vec<TokenId> {
    (0..240).map(|i| TokenId((i * 37 + 101 + i * i % 11) % 250)).collect()
}

/// Feeds tokens in chunks, and adds the logits of all of them.
fn feed(model: &Model, mut kv: KvTable, tokens: &[TokenId], chunk: usize, logits: &mut Vec<f32>) -> KvTable {
    let crew = Solo;
    for tokens in tokens.chunks(chunk) {
        let segment = Segment::new(kv, tokens.to_vec());
        let mut pass = Pass::new(model, Activations::new(model, chunk), vec![segment]).unwrap();
        model.run_span(&mut pass, 0..model.node_count(), &crew);
        let rows: Vec<usize> = (0..tokens.len()).collect();
        let mut own = Vec::new();
        model.logits(&mut pass, &rows, &mut own, &crew);
        logits.extend_from_slice(&own[..rows.len() * model.config().vocabulary]);
        kv = pass.finish().1.pop().unwrap();
    }
    kv
}

fn whole(model: &Model, format: KvFormat) -> Vec<f32> {
    let mut logits = Vec::new();
    feed(model, model.kv_pool(format, Tokens(1024)).table(), &text(), 240, &mut logits);
    logits
}

fn small(model: &Model, format: KvFormat, pages: usize) -> KvPool {
    let pool = model.kv_pool_with_windows(format, pages);
    assert_eq!(pool.capacity_pages(), pages);
    pool
}

fn for_each(check: impl Fn(&Model, KvFormat, &[f32])) {
    for name in MODELS {
        let model = load(name);
        for format in KvFormat::ALL {
            check(&model, format, &whole(&model, format));
        }
    }
}

#[test]
fn a_sequence_that_does_not_fit_whole_is_the_same_to_the_bit() {
    for_each(|model, format, expected| {
        for chunk in [1, 7, 32] {
            let pool = small(model, format, 4);
            let mut logits = Vec::new();
            let kv = feed(model, pool.table(), &text(), chunk, &mut logits);
            assert!(logits == expected, "{format:?}, {chunk}");
            assert_eq!(kv.cuts_from(), Tokens(3 * PAGE_TOKENS as u32 + 16));
            drop(kv);
            assert_eq!(pool.free_pages(), 4);
        }
    });
}

#[test]
fn one_that_goes_on_from_its_end_or_from_a_file_is_the_same() {
    for_each(|model, format, expected| {
        let (pool, text) = (small(model, format, 6), text());
        let behind = &expected[220 * model.config().vocabulary..];
        let (mut long, mut logits) = (pool.table(), Vec::new());
        long.expect(Tokens(400));
        let kv = feed(model, long, &text[..220], 20, &mut logits);
        let mut file = Vec::new();
        kv.write_to(&mut file).unwrap();
        let whole_pages = 220_usize.div_ceil(PAGE_TOKENS) * model.kv_layout(format).page_bytes();
        assert!(file.len() < whole_pages, "what has passed is not written");
        let fork = kv.fork(Tokens(220)).unwrap();
        assert_eq!(kv.fork(Tokens(140)).unwrap().len(), Tokens::ZERO, "there is nothing to go on from");
        drop(kv);
        let mut logits = Vec::new();
        drop(feed(model, fork, &text[220..], 20, &mut logits));
        assert!(logits == behind, "{format:?}");
        let restored = pool.read_table(Tokens(220), &mut file.as_slice()).unwrap();
        let mut logits = Vec::new();
        drop(feed(model, restored, &text[220..], 20, &mut logits));
        assert!(logits == behind, "{format:?}");
        // Another time with room for all of it, where what has passed has passed all the same.
        let pool = small(model, format, 9);
        let restored = pool.read_table(Tokens(220), &mut file.as_slice()).unwrap();
        let mut logits = Vec::new();
        drop(feed(model, restored, &text[220..], 20, &mut logits));
        assert!(logits == behind, "{format:?}");
    });
}

#[test]
fn what_was_written_whole_is_read_into_little_memory() {
    for_each(|model, format, expected| {
        let (text, mut logits) = (text(), Vec::new());
        let kv = feed(model, small(model, format, 9).table(), &text[..220], 220, &mut logits);
        assert_eq!(kv.cuts_from(), Tokens::ZERO);
        let mut file = Vec::new();
        kv.write_to(&mut file).unwrap();
        let restored = small(model, format, 3).read_table(Tokens(220), &mut file.as_slice()).unwrap();
        assert!(restored.cuts_from() > Tokens::ZERO);
        let mut logits = Vec::new();
        feed(model, restored, &text[220..], 20, &mut logits);
        assert!(logits == expected[220 * model.config().vocabulary..], "{format:?}");
    });
}

#[test]
fn who_has_the_same_beginning_whole_loses_nothing() {
    for_each(|model, format, expected| {
        let (pool, text, vocabulary) = (small(model, format, 6), text(), model.config().vocabulary);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let kept = feed(model, pool.table(), &text[..64], 64, &mut first);
        let mut fork = kept.fork(Tokens(64)).unwrap();
        fork.expect(Tokens(400));
        let fork = feed(model, fork, &text[64..], 16, &mut second);
        assert!(second == expected[64 * vocabulary..], "{format:?}");
        assert!(fork.cuts_from() > Tokens::ZERO && kept.cuts_from() == Tokens::ZERO);
        drop(fork);
        // It may still be cut anywhere.
        let mut again = Vec::new();
        feed(model, kept.fork(Tokens(30)).unwrap(), &text[30..90], 60, &mut again);
        assert!(again == expected[30 * vocabulary..90 * vocabulary], "{format:?}");
    });
}
