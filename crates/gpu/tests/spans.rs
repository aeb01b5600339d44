//! Spans of nodes on a GPU, beside the cores: prompts in chunks, batches, draft trees and windows; and passes and sequences that
//! change hands between the two. Whatever form the cache has, results are the same to the bit, where the adapter adds as the cores
//! do.

mod common;

use common::{adapter, fixture, loaded};
use duet_gpu::{Adapter, CacheAccess, Fault, Fusing, GpuModel};
use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::forward::{Activations, Node, NotRun, Pass, Segment, SpanWise};
use duet_model::kv::{KvFormat, KvPool, KvTable};
use duet_types::{Bytes, RequestId, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

const CREW: Scoped = Scoped { threads: 2 };

/// Who runs the nodes of a pass.
#[derive(Clone, Copy)]
enum Hands<'a> {
    Cores,
    Gpu(&'a dyn SpanWise),
    /// In turns, each so many nodes.
    Turns(&'a dyn SpanWise, usize),
}

/// Positions of a long context: two spans and a part of a third.
const LONG: u32 = 1100;
/// Rows of a chunk behind it.
const CHUNK: u32 = 256;

struct Bed {
    model: Arc<Model>,
    gpu: GpuModel,
}

impl Bed {
    /// On the adapter as it is.
    fn of(path: &Path) -> Option<Self> {
        Some(Self::on(loaded(path), &adapter()?))
    }

    fn on(model: Arc<Model>, adapter: &Adapter) -> Self {
        let gpu = GpuModel::new(Arc::clone(&model), adapter).unwrap();
        Self { model, gpu }
    }

    fn pool(&self, format: KvFormat) -> KvPool {
        self.model.kv_pool(format, Tokens(1024))
    }

    /// Logits of all rows of a pass, and the tables after it.
    fn pass(&self, segments: Vec<Segment>, hands: Hands<'_>) -> (Vec<Vec<f32>>, Vec<KvTable>) {
        let accepted: Vec<Vec<usize>> = segments.iter().map(first_path).collect();
        self.pass_accepting(segments, hands, &accepted)
    }

    /// The same, and these rows stay.
    fn pass_accepting(
        &self,
        segments: Vec<Segment>,
        hands: Hands<'_>,
        accepted: &[Vec<usize>],
    ) -> (Vec<Vec<f32>>, Vec<KvTable>) {
        let rows = segments.iter().map(|segment| segment.tokens.len()).sum();
        let mut pass = Pass::new(&self.model, Activations::new(&self.model, rows), segments).unwrap();
        let nodes = self.model.nodes();
        match hands {
            Hands::Cores => self.model.run_span(&mut pass, 0..nodes.len(), &CREW),
            Hands::Gpu(gpu) => self.model.run_span_on(gpu, &mut pass, &nodes, &CREW).unwrap(),
            Hands::Turns(gpu, each) => {
                for (turn, nodes) in nodes.chunks(each).enumerate() {
                    if turn % 2 == 0 {
                        nodes.iter().for_each(|&node| self.model.run_node(&mut pass, node, 0..rows, &CREW));
                    } else {
                        self.model.run_span_on(gpu, &mut pass, nodes, &CREW).unwrap();
                    }
                }
            }
        }
        let mut logits = Vec::new();
        self.model.logits(&mut pass, &(0..rows).collect::<Vec<_>>(), &mut logits, &CREW);
        let logits = logits.chunks_exact(self.model.config().vocabulary).take(rows).map(<[f32]>::to_vec).collect();
        (logits, pass.finish_accepting(accepted).1)
    }

    /// The logits of the last pass of a conversation: two prompts in chunks, a batch of both, a tree beside a token, and the
    /// token after that.
    fn conversation(&self, format: KvFormat, hands: [Hands<'_>; 5]) -> Vec<Vec<f32>> {
        let pool = self.pool(format);
        let (_, mut tables) = self.pass(vec![Segment::new(pool.table(), text(0, 90))], hands[0]);
        let (_, others) = self.pass(vec![Segment::new(pool.table(), text(7, 13))], hands[1]);
        tables.extend(others);
        let segments = tables.into_iter().map(|table| Segment::new(table, text(31, 5))).collect();
        let (mut all, mut tables) = self.pass(segments, hands[2]);
        let second = tables.pop().unwrap();
        let parents = vec![None, Some(0), Some(0), Some(1), Some(2)];
        let tree = Segment { parents: Some(parents), ..Segment::new(tables.pop().unwrap(), text(3, 5)) };
        let (logits, tables) = self.pass(vec![tree, Segment::new(second, text(9, 1))], hands[3]);
        all.extend(logits);
        let segments = tables.into_iter().map(|table| Segment::new(table, text(17, 1))).collect();
        all.extend(self.pass(segments, hands[4]).0);
        all
    }

    /// The logits of a chunk behind a long context, whose rows have a workgroup for each head; of a tree and a token behind both,
    /// where spans have workgroups of their own; and of the token after that.
    fn long_conversation(&self, format: KvFormat, hands: Hands<'_>) -> Vec<Vec<f32>> {
        let pool = self.model.kv_pool(format, Tokens(LONG + CHUNK + 1024));
        let mut table = pool.table();
        for chunk in text(0, LONG).chunks(256) {
            table = self.pass(vec![Segment::new(table, chunk.to_vec())], Hands::Cores).1.remove(0);
        }
        let (mut all, tables) = self.pass(vec![Segment::new(table, text(23, CHUNK))], hands);
        let table = tables.into_iter().next().unwrap();
        let (_, other) = self.pass(vec![Segment::new(pool.table(), text(5, 9))], Hands::Cores);
        let parents = vec![None, Some(0), Some(0), Some(1), Some(2)];
        let tree = Segment { parents: Some(parents), ..Segment::new(table, text(3, 5)) };
        let segments = vec![tree, Segment::new(other.into_iter().next().unwrap(), text(9, 1))];
        let (logits, tables) = self.pass(segments, hands);
        all.extend(logits);
        let segments = tables.into_iter().map(|table| Segment::new(table, text(17, 1))).collect();
        all.extend(self.pass(segments, hands).0);
        all
    }

    /// Whatever hands a conversation goes through, its logits are those of the cores alone.
    fn check(&self) {
        KvFormat::ALL.into_iter().for_each(|format| self.check_with(format));
    }

    fn check_with(&self, format: KvFormat) {
        let here = self.conversation(format, [Hands::Cores; 5]);
        let gpu = Hands::Gpu(&self.gpu);
        let turns = |each| Hands::Turns(&self.gpu, each);
        let all = [
            [gpu; 5],
            [Hands::Cores, gpu, Hands::Cores, gpu, Hands::Cores],
            [gpu, Hands::Cores, gpu, Hands::Cores, gpu],
            [turns(3), turns(2), turns(4), turns(3), turns(5)],
        ];
        let is_exact = self.gpu.fusing().is_some_and(Fusing::is_exact);
        for (which, hands) in all.into_iter().enumerate() {
            for (row, (a, b)) in here.iter().zip(self.conversation(format, hands)).enumerate() {
                let far = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                let largest = a.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
                let may_be = if is_exact { 0.0 } else { 0.02 * largest };
                assert!(far <= may_be, "{format:?}, hands {which}, row {row}: logits up to {largest} differ by {far}");
            }
        }
    }
}

/// Whatever hands a model goes through, and wherever the GPU finds weights, keys and values, its logits are those of the cores.
fn check(name: &str) {
    let Some(adapter) = adapter() else { return };
    let model = loaded(&fixture(name));
    let copying = Bed::on(Arc::clone(&model), &adapter.clone().with_copies().with_pages_at_once(8));
    copying.check();
    assert!(copying.gpu.copied_bytes().0 > 0);
    let bed = Bed::on(model, &adapter);
    if bed.gpu.copies_room().is_none() {
        bed.check();
        assert_eq!(bed.gpu.copied_bytes().0, 0, "nothing is copied where memory is shared");
        let (all, copied, shared) = (copying.gpu.bytes(), bed.gpu.bytes(), bed.gpu.shared_bytes());
        // Routers, which the cores have as floats of their own, are all that is.
        assert!(shared.0 + copied.0 <= all.0 && copied.0 * 20 < shared.0, "{all}: {copied} and {shared}");
        assert_eq!(copying.gpu.shared_bytes(), Bytes(0));
    }
}

/// The rows from the root to the first leaf of a tree, or all rows.
fn first_path(segment: &Segment) -> Vec<usize> {
    if segment.parents.is_some() { vec![0, 1, 3] } else { (0..segment.tokens.len()).collect() }
}

fn text(from: u32, count: u32) -> Vec<TokenId> {
    (0..count).map(|i| TokenId((from + i * 37) % 250 + 3)).collect()
}

/// A model whose file says that it knows longer contexts.
fn with_context(name: &str, context: u32) -> Arc<Model> {
    const KEY: &[u8] = b".context_length";
    let mut bytes = std::fs::read(fixture(name)).unwrap();
    let key = bytes.windows(KEY.len()).position(|window| window == KEY).unwrap();
    // Behind the key are its type and the number.
    let at = key + KEY.len() + size_of::<u32>();
    bytes[at..at + size_of::<u32>()].copy_from_slice(&context.to_le_bytes());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    loaded(&file)
}

/// What is divided among workgroups and merged has the bits of what is not.
#[test]
fn spans_that_have_workgroups_of_their_own_have_the_bits_of_the_cores() {
    let Some(adapter) = adapter().map(|adapter| adapter.with_pages_at_once(8)) else { return };
    for name in ["golden_llama.gguf", "golden_qwen2.gguf", "golden_gemma3.gguf"] {
        let bed = Bed::on(with_context(name, LONG + CHUNK + 64), &adapter);
        for format in KvFormat::ALL {
            let here = bed.long_conversation(format, Hands::Cores);
            let there = bed.long_conversation(format, Hands::Gpu(&bed.gpu));
            let far = here.iter().flatten().zip(there.iter().flatten()).map(|(a, b)| (a - b).abs());
            let may_be = if bed.gpu.fusing().is_some_and(Fusing::is_exact) { 0.0 } else { 0.1 };
            assert!(far.fold(0.0, f32::max) <= may_be, "{name}, {format:?}");
        }
    }
}

#[test]
fn a_llama_changes_hands() {
    check("golden_llama.gguf");
}

#[test]
fn a_qwen_with_biases_changes_hands() {
    check("golden_qwen2.gguf");
}

#[test]
fn a_qwen_with_head_norms_changes_hands() {
    check("golden_qwen3.gguf");
}

#[test]
fn a_gemma_with_windows_changes_hands() {
    check("golden_gemma3.gguf");
}

#[test]
fn a_phi_that_turns_a_part_of_its_heads_changes_hands() {
    check("golden_phi3.gguf");
}

#[test]
fn experts_of_a_qwen_change_hands() {
    check("golden_qwen3moe.gguf");
}

#[test]
fn experts_beside_one_that_all_rows_go_to_change_hands() {
    check("golden_qwen2moe.gguf");
}

#[test]
fn experts_behind_norms_of_all_heads_change_hands() {
    check("golden_olmoe.gguf");
}

#[test]
fn experts_of_a_mixtral_change_hands() {
    check("golden_mixtral.gguf");
}

#[test]
fn experts_chosen_by_sigmoids_change_hands() {
    check("golden_glm4moe.gguf");
}

/// What is too much is refused, and nothing has changed.
#[test]
fn a_tree_that_begins_with_attention_is_refused() {
    let Some(bed) = Bed::of(&fixture("golden_llama.gguf")) else { return };
    let tree =
        Segment { parents: Some(vec![None, Some(0)]), ..Segment::new(bed.pool(KvFormat::F16).table(), text(0, 2)) };
    let mut pass = Pass::new(&bed.model, Activations::new(&bed.model, 2), vec![tree]).unwrap();
    let run = bed.model.run_span_on(&bed.gpu, &mut pass, &[Node::Attention { layer: 0 }], &CREW);
    assert!(matches!(run, Err(NotRun::Unsupported(_))), "{run:?}");
}

/// The program on the processor that tests run on shares its memory, so that this is tested.
#[test]
fn a_program_on_the_processor_reads_the_cache_itself() {
    let Some(adapter) = adapter().filter(|adapter| adapter.kind == duet_gpu::adapters::Kind::Software) else { return };
    assert_eq!(adapter.cache_access(), CacheAccess::InPlace);
    let bed = Bed::on(loaded(&fixture("golden_llama.gguf")), &adapter);
    assert_eq!(bed.gpu.copies_room(), None);
    if bed.gpu.fusing().is_some_and(Fusing::is_exact) {
        // And writes it: what comes back is the residual stream, with what its clock tells.
        let (before, rows) = (bed.gpu.read_bytes(), 90);
        let pool = bed.pool(KvFormat::Int8);
        let there = bed.pass(vec![Segment::new(pool.table(), text(0, rows))], Hands::Gpu(&bed.gpu)).1;
        let read = (bed.gpu.read_bytes() - before).0;
        let residual = u64::from(rows) * bed.model.blueprint().hidden as u64 * size_of::<f32>() as u64;
        assert!((residual..residual + 1024).contains(&read), "{read} bytes, where the residual stream has {residual}");
        let here = bed.pass(vec![Segment::new(pool.table(), text(0, rows))], Hands::Cores).1;
        assert_eq!(bytes_of(&there[0]), bytes_of(&here[0]));
    }
}

/// A prompt comes back by page from a GPU with memory of its own, which is less than its rows, and a token comes back as a row.
#[test]
fn what_comes_back_is_the_form_that_is_least() {
    let Some(adapter) = adapter() else { return };
    let bed = Bed::on(loaded(&fixture("golden_llama.gguf")), &adapter.with_copies());
    if !bed.gpu.fusing().is_some_and(Fusing::is_exact) {
        return;
    }
    let (b, pool) = (bed.model.blueprint(), bed.pool(KvFormat::Int8));
    let row = size_of::<f32>() * 2 * b.kv_heads * b.head_dim * b.layers.len();
    // Beside the residual stream, and what the clock tells.
    let back = |table, rows: u32| {
        let before = bed.gpu.read_bytes();
        let tables = bed.pass(vec![Segment::new(table, text(0, rows))], Hands::Gpu(&bed.gpu)).1;
        let residual = rows as usize * b.hidden * size_of::<f32>();
        (tables.into_iter().next().unwrap(), (bed.gpu.read_bytes() - before).0 as usize - residual)
    };
    let (table, of_prompt) = back(pool.table(), 128);
    assert!(of_prompt < 128 * row / 2, "{of_prompt} bytes, where rows have {}", 128 * row);
    let (table, of_token) = back(table, 1);
    assert!((row..row + 2048).contains(&of_token), "{of_token} bytes, where a row has {row}");
    // The pages are those of the cores.
    let expected = bed.pass(vec![Segment::new(pool.table(), text(0, 128))], Hands::Cores).1.remove(0);
    let whole = bytes_of(&expected).len() / 2;
    assert_eq!(bytes_of(&table)[..whole], bytes_of(&expected)[..whole]);
}

fn bytes_of(table: &KvTable) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write_to(&mut bytes).unwrap();
    bytes
}

/// What a sequence has is what it had, whatever the GPU did to its rows before it failed; and the page that it may still write to
/// is no one's.
#[test]
fn a_pass_that_fails_in_place_changes_nothing() {
    let Some(bed) = Bed::of(&fixture("golden_llama.gguf")) else { return };
    let (pool, gpu) = (bed.pool(KvFormat::Int8), Hands::Gpu(&bed.gpu));
    let (_, tables) = bed.pass(vec![Segment::new(pool.table(), text(0, 90))], gpu);
    let before = tables.iter().map(bytes_of).next().unwrap();
    let segments = tables.into_iter().map(|table| Segment::new(table, text(9, 20))).collect();
    let mut pass = Pass::new(&bed.model, Activations::new(&bed.model, 20), segments).unwrap();
    let is_exact = bed.gpu.fusing().is_some_and(Fusing::is_exact);
    bed.gpu.provoke(Fault::Lost);
    let run = bed.model.run_span_on(&bed.gpu, &mut pass, &bed.model.nodes(), &CREW);
    assert!(matches!(run, Err(NotRun::Failed(_))), "{run:?}");
    // The cores do it, and all is as if they had from the start.
    bed.model.run_span(&mut pass, 0..bed.model.nodes().len(), &CREW);
    let after = pass.finish_accepting(&[(0..20).collect()]).1;
    let (_, twins) = bed.pass(vec![Segment::new(bed.pool(KvFormat::Int8).table(), text(0, 90))], Hands::Cores);
    let segments = twins.into_iter().map(|table| Segment::new(table, text(9, 20))).collect();
    let (_, twins) = bed.pass(segments, Hands::Cores);
    let (found, expected) = (bytes_of(&after[0]), bytes_of(&twins[0]));
    assert_eq!(found.len(), expected.len());
    let page = found.len() / 2;
    assert!(found[..page] == before[..page], "what was there before is as it was");
    assert!(!is_exact || found == expected, "and the rest is what the cores make of it");
    drop(after);
    pool.table().reserve(Tokens(1024)).expect("the pool has as many pages as before");
}

/// What the scheduler gives up is copied again when its request comes back, and what it does not is not.
#[test]
fn a_copy_that_is_given_up_is_made_again() {
    let Some(adapter) = adapter() else { return };
    let bed = Bed::on(loaded(&fixture("golden_llama.gguf")), &adapter.with_copies());
    let pool = bed.pool(KvFormat::Int8);
    let segment = |request, table, tokens| Segment { request: Some(RequestId(request)), ..Segment::new(table, tokens) };
    let read = vec![segment(1, pool.table(), text(0, 200)), segment(2, pool.table(), text(5, 200))];
    let mut tables = bed.pass(read, Hands::Cores).1;
    // How many bytes the next token of both takes there.
    let mut next = |from| {
        let before = bed.gpu.copied_bytes().0;
        let segments = tables.drain(..).zip(1..).map(|(table, request)| segment(request, table, text(from, 1)));
        tables = bed.pass(segments.collect(), Hands::Gpu(&bed.gpu)).1;
        bed.gpu.copied_bytes().0 - before
    };
    let both = next(1);
    let is_exact = bed.gpu.fusing().is_some_and(Fusing::is_exact);
    let none = next(2);
    assert!(both > 0 && (none == 0 || !is_exact), "{both} and {none} bytes");
    bed.gpu.drop_copy(RequestId(2));
    assert_eq!(next(3) - none, both / 2, "one of two that are as long");
}

/// Of a draft that is a chain, what was wrong is written again in the copy that there is: a request has one, and its bits are
/// those of the cores.
#[test]
fn drafts_that_are_given_up_leave_one_copy() {
    let Some(adapter) = adapter() else { return };
    let bed = Bed::on(loaded(&fixture("golden_llama.gguf")), &adapter.with_copies());
    let mut answers = Vec::new();
    for hands in [Hands::Cores, Hands::Gpu(&bed.gpu)] {
        let mut table =
            bed.pass(vec![Segment::new(bed.pool(KvFormat::Int8).table(), text(0, 60))], Hands::Cores).1.remove(0);
        let mut logits = Vec::new();
        for step in 0..6 {
            let segment = Segment { request: Some(RequestId(1)), ..Segment::new(table, text(step, 5)) };
            let (all, tables) = bed.pass_accepting(vec![segment], hands, &[vec![0, 1]]);
            logits.extend(all);
            table = tables.into_iter().next().unwrap();
        }
        answers.push(logits);
    }
    assert_eq!(bed.gpu.copies(), 1);
    if bed.gpu.fusing().is_some_and(Fusing::is_exact) {
        assert!(answers[0] == answers[1], "the same bits");
    }
}
