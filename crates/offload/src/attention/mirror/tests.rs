use super::*;
use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, AttentionWise, ChunkRows, ChunksTaken, Node, NotRun, Pass, Segment};
use duet_model::kv::{KvFormat, KvPool, KvTable};
use duet_model::{LoadOptions, Model};
use duet_types::TokenId;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Mutex;

/// Compares what is kept with what reading everything gives, and leaves attention to the crew.
#[derive(Debug, Default)]
struct Compared {
    mirrors: Mutex<Mirrors>,
    /// Positions read, and those that reading everything reads.
    read: Mutex<(u64, u64)>,
}

impl AttentionWise for Compared {
    fn chunks(&self) -> ChunksTaken {
        ChunksTaken { rows_min: Tokens(1), rows_max: Tokens(64), context_max: CONTEXT }
    }

    fn attend(&self, layer: usize, chunk: &ChunkRows<'_>, _: &mut [f32]) -> Result<(), NotRun> {
        let context = Tokens(chunk.cache.positions().0.next_power_of_two().max(16));
        let mut mirrors = self.mirrors.lock().unwrap();
        let (found, read) = mirrors.sides(context, layer, &chunk.cache);
        let (expected, all) = Mirrors::default().sides(context, layer, &chunk.cache);
        let bits = |sides: [Arc<Buffer>; 2]| sides.map(|side| side.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        assert!(mirrors.sequences.len() <= SEQUENCES_MAX);
        assert_eq!(bits(found), bits(expected), "layer {layer}, {} positions", chunk.cache.positions());
        let mut sums = self.read.lock().unwrap();
        *sums = (sums.0 + u64::from(read.0), sums.1 + u64::from(all.0));
        Err(NotRun::Unsupported("the crew does".to_owned()))
    }
}

/// A tiny model, its pages, and sequences of it.
struct Bed {
    model: Model,
    pool: KvPool,
    device: Compared,
}

/// How a pass ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Whole,
    /// So many rows are accepted.
    Accepted(usize),
    /// It is given up after so many nodes.
    Abandoned(usize),
}

impl Bed {
    fn new() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        let model = Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap();
        let pool = model.kv_pool(KvFormat::F16, Tokens(64 * 32));
        Self { model, pool, device: Compared::default() }
    }

    /// Runs rows of one sequence, attention compared where there is a device.
    fn pass(&self, kv: KvTable, segment: impl FnOnce(KvTable) -> Segment, on: Option<&Compared>, end: End) -> KvTable {
        let segment = segment(kv);
        let (rows, nodes) = (segment.tokens.len(), self.model.nodes());
        let mut pass = Pass::new(&self.model, Activations::new(&self.model, 64), vec![segment]).unwrap();
        let done = if let End::Abandoned(after) = end { after % nodes.len() } else { nodes.len() };
        for node in nodes.into_iter().take(done) {
            if let (Node::Attention { layer }, Some(device)) = (node, on) {
                assert!(matches!(self.model.attend_on(device, &mut pass, layer), Err(NotRun::Unsupported(_))));
            }
            self.model.run_node(&mut pass, node, 0..rows, &Solo);
        }
        let (_, tables) = match end {
            End::Whole => pass.finish(),
            End::Accepted(count) => pass.finish_accepting(&[(0..count).collect()]),
            End::Abandoned(_) => pass.abandon(),
        };
        tables.into_iter().next().unwrap()
    }

    /// Rows that follow each other, or a draft with two branches.
    fn rows(&self, kv: KvTable, count: usize, seed: u32, on: Option<&Compared>, end: End) -> KvTable {
        let count = count.min((CONTEXT - kv.len()).as_usize());
        if count == 0 {
            return kv;
        }
        let end = if let End::Accepted(rows) = end { End::Accepted(rows % (count + 1)) } else { end };
        let tokens = (0..count as u32).map(|row| TokenId(3 + (seed + row * 7) % 50)).collect();
        self.pass(kv, |kv| Segment::new(kv, tokens), on, end)
    }

    /// A draft whose first row has two successors, of which one is right.
    fn draft(&self, kv: KvTable, seed: u32) -> KvTable {
        if (CONTEXT - kv.len()).as_usize() < 3 {
            return kv;
        }
        let tokens: Vec<_> = (0..3).map(|row| TokenId(3 + (seed + row) % 50)).collect();
        let mut pass = Pass::new(
            &self.model,
            Activations::new(&self.model, 64),
            vec![Segment { parents: Some(vec![None, Some(0), Some(0)]), ..Segment::new(kv, tokens) }],
        )
        .unwrap();
        for node in self.model.nodes() {
            if let Node::Attention { layer } = node {
                // It does not see all positions before it, and is not asked for.
                assert!(self.model.attend_on(&self.device, &mut pass, layer).is_err());
            }
            self.model.run_node(&mut pass, node, 0..3, &Solo);
        }
        pass.finish_accepting(&[vec![0, 2]]).1.into_iter().next().unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever becomes of sequences and passes, of which a device reads some.
    #[test]
    fn what_is_kept_is_what_reading_everything_gives(
        steps in prop::collection::vec((0_u8..9, 0_usize..3, 1_usize..64, 0_u32..1000), 1..24),
    ) {
        let bed = Bed::new();
        let mut tables: Vec<KvTable> = (0..3).map(|_| bed.pool.table()).collect();
        for (what, which, count, seed) in steps {
            let kv = std::mem::replace(&mut tables[which], bed.pool.table());
            let device = Some(&bed.device);
            tables[which] = match what {
                0..=2 => bed.rows(kv, count, seed, device, End::Whole),
                3 => bed.rows(kv, count, seed, None, End::Whole),
                4 => bed.rows(kv, count, seed, device, End::Abandoned(count)),
                5 => bed.rows(kv, count, seed, device, End::Accepted(seed as usize)),
                6 => bed.draft(kv, seed),
                7 => {
                    let mut kv = kv;
                    tables[(which + 1) % 3] = kv.fork(Tokens(seed % 200)).unwrap();
                    kv.truncate(Tokens(seed % 97));
                    kv
                }
                _ => {
                    let mut file = Vec::new();
                    kv.write_to(&mut file).unwrap();
                    bed.pool.read_table(kv.len().min(Tokens(seed)), &mut file.as_slice()).unwrap()
                }
            };
        }
        let (read, all) = *bed.device.read.lock().unwrap();
        prop_assert!(read <= all);
    }
}

#[test]
fn a_chunk_reads_its_own_rows_and_another_turn_what_is_new() {
    let bed = Bed::new();
    let layers = bed.model.config().layers as u64;
    let read = |expected: u64| {
        assert_eq!(std::mem::take(&mut *bed.device.read.lock().unwrap()).0, expected * layers);
    };
    let chunk = |kv, end| bed.rows(kv, 40, 5, Some(&bed.device), end);
    let mut kv = bed.pool.table();
    for _ in 0..3 {
        kv = chunk(kv, End::Whole);
        read(40);
    }
    // A chunk that is given up, and read again.
    kv = chunk(kv, End::Abandoned(bed.model.nodes().len() - 1));
    bed.device.read.lock().unwrap().0 = 0;
    kv = chunk(kv, End::Whole);
    read(40);
    // The next turn, which has 100 of its positions.
    let fork = chunk(kv.fork(Tokens(100)).unwrap(), End::Whole);
    read(40);
    // The first one has lost its copy to it.
    let kv = chunk(kv, End::Whole);
    read(200);
    // Both are there now; a third one takes the place of the one that was used longest ago.
    drop(chunk(fork, End::Whole));
    read(40);
    drop(chunk(bed.pool.table(), End::Whole));
    read(40);
    drop(chunk(kv, End::Accepted(0)));
    read(240);
    bed.device.mirrors.lock().unwrap().sequences.clear();
    assert_eq!(bed.device.mirrors.lock().unwrap().bytes(), Bytes(0));
}

/// Positions of the tests' longest sequence.
const CONTEXT: Tokens = Tokens(256);
