//! Attention: against a plain computation, and to the bit across instruction sets, chunkings and crews.

use duet_kernels::attention::{KeyBias, KvFormat, KvLayout, PAGE, PageAngles, PageMemory, SPAN_PAGES, TurnedBias};
use duet_kernels::crew::{Crew, Scoped, Solo, Unequal};
use duet_kernels::fused::{
    AttentionShape, BufferShape, Buffers, CacheOf, HeadNorms, KvDestination, KvTail, Norm, QkvWeights, RowNorm,
    SequenceRows, TreeRows, attention, qkv,
};
use duet_kernels::isa::Isa;
use duet_kernels::packed::{Form, PackedMatrix, WeightGroup};
use duet_kernels::quantize::Operands;
use proptest::prelude::*;

/// A layer of attention alone: residual rows → QKV → attention, the state a sequence has between calls.
struct Sequence {
    layout: KvLayout,
    heads: usize,
    window: Option<usize>,
    matrix: PackedMatrix,
    pages: Vec<PageMemory>,
    bias: Option<Vec<f32>>,
    /// A score of no position for each query head.
    sinks: Option<Vec<f32>>,
    /// Pairs of a head's dimensions that rope turns.
    pairs: usize,
    /// Of all rows that were fed.
    queries: Vec<Vec<f32>>,
    len: usize,
}

fn noise(seed: u64) -> f32 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((x >> 40) as f32) / (1 << 23) as f32 - 1.0
}

const HIDDEN: usize = 64;

impl Sequence {
    fn new(kv_heads: usize, group: usize, head_dim: usize, format: KvFormat, window: Option<usize>) -> Self {
        let heads = kv_heads * group;
        let outputs = (heads + 2 * kv_heads) * head_dim;
        let matrix = PackedMatrix::new(outputs, HIDDEN, Form::Q8_0, |output, index| WeightGroup {
            scale: 0.001,
            min: 0.0,
            small: [0; 2],
            quants: std::array::from_fn(|i| (noise((output * 131 + index * 37 + i) as u64) * 120.0 + 128.0) as u8),
        })
        .expect("scales in range");
        let layout = KvLayout::uniform(2, kv_heads, head_dim, format);
        // Where keys have eight bits, they also have a bias that is many times as large as what differs from key to key.
        let bias = format.keeps_key_bias_apart().then(|| {
            let keys = heads * head_dim..(heads + kv_heads) * head_dim;
            (0..outputs).map(|i| if keys.contains(&i) { 20.0 * noise(i as u64) } else { 0.0 }).collect()
        });
        let (pairs, pages) = (head_dim / 2, Vec::new());
        Self { layout, heads, window, matrix, bias, sinks: None, pairs, pages, queries: Vec::new(), len: 0 }
    }

    /// The same with sinks, and half of each head turned.
    fn with_sinks(self) -> Self {
        let sinks = (0..self.heads).map(|head| 1.0 + 2.0 * noise(head as u64)).collect();
        Self { sinks: Some(sinks), pairs: self.pairs / 2, ..self }
    }

    fn frequencies(&self) -> Vec<f32> {
        (0..self.pairs).map(|i| 0.5_f32.powi(i as i32)).collect()
    }

    /// What keys are without.
    fn key_bias(&self) -> Option<(KeyBias, PageAngles)> {
        let (dim, frequencies) = (self.layout.head_dim, self.frequencies());
        let keys = &self.bias.as_ref()?[self.heads * dim..][..self.layout.kv_heads * dim];
        Some((KeyBias::new(keys, dim, &frequencies), PageAngles::new(&frequencies, 1.0, 2048)))
    }

    /// Feeds positions `len..len + rows` and returns their attention results.
    fn feed(&mut self, isa: Isa, crew: &dyn Crew, rows: usize) -> Vec<Vec<f32>> {
        let positions: Vec<usize> = (self.len..self.len + rows).collect();
        while self.pages.len() * PAGE < self.len + rows {
            self.pages.push(PageMemory::new(self.layout));
        }
        let mut buffers = self.buffers(&positions);
        let destinations: Vec<_> =
            positions.iter().map(|&position| KvDestination { tail: 0, position, turned_by: position }).collect();
        let mut pages = std::mem::take(&mut self.pages);
        let tail = KvTail { first: 0, pages: pages.iter_mut().collect() };
        self.project(isa, crew, &mut buffers, tail, &destinations);
        self.pages = pages;
        let (projected, stride, _) = buffers.attending(0..rows).expect("rows lie side by side");
        let width = self.heads * self.layout.head_dim;
        self.queries.extend(projected.chunks(stride).map(|row| row[..width].to_vec()));
        let all = self.rows(0, rows, None);
        self.attend(isa, crew, &mut buffers, &[all]);
        self.len += rows;
        (0..rows).map(|row| buffers.attended(row).to_vec()).collect()
    }

    /// The attention results of a draft tree behind the context, of which nothing is kept.
    fn feed_tree(&self, isa: Isa, crew: &dyn Crew, paths: &[Vec<usize>]) -> Vec<Vec<f32>> {
        let positions: Vec<usize> = paths.iter().map(|path| self.len + path.len() - 1).collect();
        let mut buffers = self.buffers(&positions);
        let mut page = PageMemory::new(self.layout);
        let to = |(position, &turned_by)| KvDestination { tail: 0, position, turned_by };
        let destinations: Vec<_> = positions.iter().enumerate().map(to).collect();
        self.project(isa, crew, &mut buffers, KvTail { first: 0, pages: vec![&mut page] }, &destinations);
        let tree = self.rows(0, paths.len(), Some(TreeRows { page: &page, paths }));
        self.attend(isa, crew, &mut buffers, &[tree]);
        (0..paths.len()).map(|row| buffers.attended(row).to_vec()).collect()
    }

    fn rows<'a>(&'a self, first_row: usize, rows: usize, tree: Option<TreeRows<'a>>) -> SequenceRows<'a> {
        SequenceRows { pages: self.pages.iter().collect(), first_row, rows, start: self.len, tree }
    }

    fn attend(&self, isa: Isa, crew: &dyn Crew, buffers: &mut Buffers, rows: &[SequenceRows<'_>]) {
        let key_bias = self.key_bias();
        let key_bias = key_bias.as_ref().map(|(bias, angles)| TurnedBias { bias, angles });
        let shape = AttentionShape {
            heads: self.heads,
            scale: 0.3,
            window: self.window,
            sinks: self.sinks.as_deref(),
            key_bias,
        };
        attention(isa, crew, &shape, buffers, &self.layout, LAYER, rows);
    }

    /// Buffers with a row of the residual stream at each of these positions.
    fn buffers(&self, positions: &[usize]) -> Buffers {
        let dim = self.layout.head_dim;
        let shape = BufferShape {
            hidden: HIDDEN,
            qkv: self.matrix.outputs(),
            queries: self.heads * dim,
            ffn: HIDDEN,
            experts: None,
            angles: self.pairs,
            layer_inputs: 0,
            operands: Operands::Bytes,
        };
        let mut buffers = Buffers::new(shape, positions.len());
        for (row, &position) in positions.iter().enumerate() {
            for (i, x) in buffers.residual_mut(row).iter_mut().enumerate() {
                *x = noise((position * 977 + i) as u64);
            }
            let (cosines, sines) = buffers.angles_mut(row);
            for i in 0..self.pairs {
                let angle = position as f32 * 0.5_f32.powi(i as i32);
                (cosines[i], sines[i]) = (angle.cos(), angle.sin());
            }
        }
        buffers
    }

    fn project(&self, isa: Isa, crew: &dyn Crew, buffers: &mut Buffers, tail: KvTail<'_>, to: &[KvDestination]) {
        let (ones, key_bias) = (vec![1.0; HIDDEN], self.key_bias());
        let weights = QkvWeights {
            norm: RowNorm::Rms(Norm { weight: &ones, epsilon: 1e-5 }),
            matrix: &self.matrix,
            bias: self.bias.as_deref(),
            key_bias: key_bias.as_ref().map(|(bias, angles)| TurnedBias { bias, angles }),
            norms: HeadNorms::None,
            cache: CacheOf::Itself,
            heads: self.heads,
            kv_heads: self.layout.kv_heads,
            head_dim: self.layout.head_dim,
            angles: (0, self.pairs),
        };
        qkv(isa, crew, &weights, buffers, 0..to.len(), LAYER, &mut [tail], to);
    }
}

const LAYER: usize = 1;

/// Each row's path from the root, given the place of its parent among the rows before it and the context's end.
fn paths(parents: &[prop::sample::Index]) -> Vec<Vec<usize>> {
    let mut paths: Vec<Vec<usize>> = Vec::new();
    for (row, parent) in parents.iter().enumerate() {
        let parent = parent.index(row + 1).checked_sub(1);
        let mut path = parent.map_or_else(Vec::new, |parent| paths[parent].clone());
        path.push(row);
        paths.push(path);
    }
    paths
}

/// The plain computation rounds nothing, so the tolerances are those of eight-bit activations (and of the cache).
#[test]
fn results_are_softmax_averages() {
    for (format, tolerance) in [(KvFormat::F16, 2e-2), (KvFormat::Int8, 4e-2), (KvFormat::Int4, 0.2)] {
        for (window, has_sinks) in [(None, false), (Some(20), false), (None, true), (Some(20), true)] {
            let sequence = Sequence::new(2, 3, 32, format, window);
            let mut sequence = if has_sinks { sequence.with_sinks() } else { sequence };
            let results = sequence.feed(Isa::chosen().unwrap(), &Solo, 100);
            let expected = plain(&sequence, 100);
            for (row, (result, expected)) in results.iter().zip(&expected).enumerate() {
                for (a, b) in result.iter().zip(expected) {
                    assert!((f64::from(*a) - b).abs() < tolerance, "{format:?} {window:?} row {row}: {a} {b}");
                }
            }
        }
    }
}

/// Beside what lies in the pages, whatever was rounded on the way there, only attention's own arithmetic is left: single
/// precision, and the 16 bits that queries and weights have beside keys and values of eight. Relative to the largest value.
#[test]
fn results_are_those_of_what_the_pages_hold() {
    for (format, tolerance) in [(KvFormat::F16, 2e-6), (KvFormat::Int8, 1e-4), (KvFormat::Int4, 2e-4)] {
        for (kv_heads, group, head_dim, window) in
            [(2, 3, 32, None), (1, 7, 64, None), (2, 1, 48, Some(20)), (1, 2, 512, None)]
        {
            let mut sequence = Sequence::new(kv_heads, group, head_dim, format, window).with_sinks();
            let results = [1, 99, 60].map(|rows| sequence.feed(Isa::chosen().unwrap(), &Solo, rows)).concat();
            for (row, result) in results.iter().enumerate() {
                let (expected, largest) = held(&sequence, row);
                for (found, expected) in result.iter().zip(expected) {
                    let error = (f64::from(*found) - expected).abs() / largest;
                    assert!(error < tolerance, "{format:?}, heads of {head_dim}, row {row}: {error:e}");
                }
            }
        }
    }
}

/// What a row finds by the keys and values in the pages, and the largest of these values.
fn held(sequence: &Sequence, row: usize) -> (Vec<f64>, f64) {
    let (dim, group) = (sequence.layout.head_dim, sequence.heads / sequence.layout.kv_heads);
    let apart = sequence.key_bias();
    let (mut found, mut largest) = (Vec::new(), 0.0_f64);
    for head in 0..sequence.heads {
        let from = sequence.window.map_or(0, |window| (row + 1).saturating_sub(window));
        let query = &sequence.queries[row][head * dim..][..dim];
        let sink = |sinks: &Vec<f32>| f64::from(sinks[head]).exp();
        let (mut total, mut sums) = (sequence.sinks.as_ref().map_or(0.0, sink), vec![0.0; dim]);
        let (mut keys, mut values) = (vec![0.0; dim], vec![0.0; dim]);
        for position in from..=row {
            let place = (LAYER, head / group, position % PAGE);
            sequence.layout.read_position(sequence.pages[position / PAGE].bytes(), place, &mut keys, &mut values);
            if let Some((bias, angles)) = &apart {
                TurnedBias { bias, angles }.give_back(&mut keys, head / group, position);
            }
            let score: f64 = query.iter().zip(&keys).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
            let weight = (0.3 * score).exp();
            total += weight;
            sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += weight * f64::from(*value));
            largest = values.iter().fold(largest, |largest, value| largest.max(f64::from(value.abs())));
        }
        found.extend(sums.iter().map(|sum| sum / total));
    }
    (found, largest)
}

fn plain(sequence: &Sequence, rows: usize) -> Vec<Vec<f64>> {
    let (dim, heads, kv_heads) = (sequence.layout.head_dim, sequence.heads, sequence.layout.kv_heads);
    let project = |position: usize| -> Vec<f64> {
        let x: Vec<f64> = (0..HIDDEN).map(|i| f64::from(noise((position * 977 + i) as u64))).collect();
        let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / HIDDEN as f64 + 1e-5).sqrt();
        let mut out: Vec<f64> = (0..sequence.matrix.outputs())
            .map(|o| (0..HIDDEN).map(|i| x[i] * scale * f64::from(sequence.matrix.weight(o, i))).sum())
            .zip(sequence.bias.as_ref().map_or(&vec![0.0; sequence.matrix.outputs()], |bias| bias))
            .map(|(projected, bias): (f64, _)| projected + f64::from(*bias))
            .collect();
        for head in 0..heads + kv_heads {
            for i in 0..sequence.pairs {
                let angle = f64::from(position as f32 * 0.5_f32.powi(i as i32));
                let (a, b) = (out[head * dim + i], out[head * dim + i + sequence.pairs]);
                out[head * dim + i] = a * angle.cos() - b * angle.sin();
                out[head * dim + i + sequence.pairs] = b * angle.cos() + a * angle.sin();
            }
        }
        out
    };
    let all: Vec<Vec<f64>> = (0..rows).map(project).collect();
    (0..rows)
        .map(|row| {
            (0..heads)
                .flat_map(|head| {
                    let kv = head / (heads / kv_heads);
                    let from = sequence.window.map_or(0, |window| (row + 1).saturating_sub(window));
                    let weights: Vec<f64> = (from..=row)
                        .map(|at| {
                            let score: f64 =
                                (0..dim).map(|d| all[row][head * dim + d] * all[at][(heads + kv) * dim + d]).sum();
                            (score * 0.3).exp()
                        })
                        .collect();
                    let sink = sequence.sinks.as_ref().map_or(0.0, |sinks| f64::from(sinks[head]).exp());
                    let total = weights.iter().sum::<f64>() + sink;
                    let all = &all;
                    (0..dim)
                        .map(|d| {
                            let values = (from..=row).map(|at| all[at][(heads + kv_heads + kv) * dim + d]);
                            weights.iter().zip(values).map(|(w, v)| w * v).sum::<f64>() / total
                        })
                        .collect::<Vec<f64>>()
                })
                .collect()
        })
        .collect()
}

/// Workers would write to the same results.
#[test]
#[should_panic(expected = "a row of two sequences")]
fn sequences_that_share_a_row_are_refused() {
    let mut sequence = Sequence::new(1, 2, 16, KvFormat::F16, None);
    sequence.feed(Isa::Portable, &Solo, 8);
    let mut buffers = sequence.buffers(&[8, 9, 10]);
    let start = |rows| SequenceRows { start: 4, ..rows };
    let rows = [start(sequence.rows(1, 2, None)), start(sequence.rows(0, 2, None))];
    sequence.attend(Isa::Portable, &Solo, &mut buffers, &rows);
}

/// Those that lie beside each other, or are empty, are not.
#[test]
fn sequences_in_any_order_are_taken() {
    let mut sequence = Sequence::new(1, 2, 16, KvFormat::F16, None);
    sequence.feed(Isa::Portable, &Solo, 8);
    let mut buffers = sequence.buffers(&[8, 9, 10]);
    let start = |rows| SequenceRows { start: 4, ..rows };
    let rows = [(2, 1), (1, 0), (0, 2)].map(|(first, rows)| start(sequence.rows(first, rows, None)));
    sequence.attend(Isa::Portable, &Solo, &mut buffers, &rows);
}

/// Rows of results would overlap where the products are wider than the buffers.
#[test]
#[should_panic(expected = "rows of results would overlap")]
fn a_projection_that_is_wider_than_the_buffers_is_refused() {
    let (wide, mut narrow) = [2, 1].map(|heads| Sequence::new(heads, 2, 16, KvFormat::F16, None)).into();
    narrow.matrix = wide.matrix;
    let mut buffers = Sequence::new(1, 2, 16, KvFormat::F16, None).buffers(&[0, 1]);
    let mut page = PageMemory::new(narrow.layout);
    let to = [0, 1].map(|position| KvDestination { tail: 0, position, turned_by: position });
    narrow.project(Isa::Portable, &Solo, &mut buffers, KvTail { first: 0, pages: vec![&mut page] }, &to);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Contexts of one and of several spans, windows, heads that share keys, draft trees across borders of pages, crews.
    #[test]
    fn instruction_sets_agree_to_the_bit(
        kv_heads in 1_usize..3,
        group in 1_usize..9,
        head_dim in prop::sample::select(vec![16_usize, 48, 64]),
        format in prop::sample::select(KvFormat::ALL.to_vec()),
        window in prop::option::of(1_usize..200),
        context in prop_oneof![3 => 1_usize..140, 1 => SPAN_PAGES * PAGE - 3..SPAN_PAGES * PAGE + 70],
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
        threads in 1_usize..4,
        has_sinks: bool,
    ) {
        let (crew, paths) = (Scoped { threads }, paths(&parents));
        let results = |isa: Isa| {
            let sequence = Sequence::new(kv_heads, group, head_dim, format, window);
            let mut sequence = if has_sinks { sequence.with_sinks() } else { sequence };
            let mut all = sequence.feed(isa, &crew, context);
            all.extend(sequence.feed_tree(isa, &crew, &paths));
            all.extend(sequence.feed(isa, &crew, 1));
            all
        };
        let portable = results(Isa::Portable);
        for isa in Isa::available() {
            prop_assert!(results(isa) == portable, "{}", isa);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// However a sequence is cut into calls, and however many workers share them (spans included), rows are the same.
    #[test]
    fn a_row_is_the_same_in_any_chunking(
        cuts in prop::collection::vec(1_usize..90, 1..6),
        threads in 1_usize..4,
        window in prop::option::of(1_usize..150),
        kv_heads in 1_usize..3,
        group in 1_usize..8,
    ) {
        let format = KvFormat::ALL[group % 3];
        let rows = SPAN_PAGES * PAGE + cuts.iter().sum::<usize>();
        let isa = Isa::chosen().unwrap();
        let sequence = || {
            let sequence = Sequence::new(kv_heads, group, 16, format, window);
            if threads == 2 { sequence.with_sinks() } else { sequence }
        };
        let whole = sequence().feed(isa, &Solo, rows);
        let mut sequence = sequence();
        let mut parts = sequence.feed(isa, &Unequal { cuts: &[0, 5, 6, 10] }, SPAN_PAGES * PAGE);
        for cut in cuts {
            parts.extend(sequence.feed(isa, &Scoped { threads }, cut));
        }
        prop_assert!(whole == parts);
    }
}
