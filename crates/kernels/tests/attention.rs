//! Attention: against a plain computation, and to the bit across instruction sets, chunkings and crews.

use duet_kernels::attention::{KvFormat, KvLayout, PAGE, PageMemory, SPAN_PAGES};
use duet_kernels::crew::{Crew, Scoped, Solo};
use duet_kernels::fused::{
    AttentionShape, BufferShape, Buffers, HeadNorms, KvDestination, KvTail, Norm, QkvWeights, RowNorm, SequenceRows,
    attention, qkv,
};
use duet_kernels::isa::Isa;
use duet_kernels::packed::{Form, PackedMatrix, WeightGroup};
use proptest::prelude::*;

/// A layer of attention alone: residual rows → QKV → attention, the state a sequence has between calls.
struct Sequence {
    layout: KvLayout,
    heads: usize,
    window: Option<usize>,
    matrix: PackedMatrix,
    pages: Vec<PageMemory>,
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
        let matrix = PackedMatrix::new(outputs, HIDDEN, Form::Byte, |output, index| WeightGroup {
            scale: 0.001,
            min: 0.0,
            quants: std::array::from_fn(|i| (noise((output * 131 + index * 37 + i) as u64) * 120.0 + 128.0) as u8),
        })
        .expect("scales in range");
        let layout = KvLayout { layers: 2, kv_heads, head_dim, format };
        Self { layout, heads, window, matrix, pages: Vec::new(), len: 0 }
    }

    /// Feeds positions `len..len + rows` and returns their attention results.
    fn feed(&mut self, isa: Isa, crew: &dyn Crew, rows: usize) -> Vec<Vec<f32>> {
        let dim = self.layout.head_dim;
        while self.pages.len() * PAGE < self.len + rows {
            self.pages.push(PageMemory::new(self.layout));
        }
        let shape = BufferShape {
            hidden: HIDDEN,
            qkv: self.matrix.outputs(),
            queries: self.heads * dim,
            ffn: HIDDEN,
            experts: None,
            angles: dim / 2,
        };
        let mut buffers = Buffers::new(shape, rows);
        for row in 0..rows {
            let position = self.len + row;
            for (i, x) in buffers.residual_mut(row).iter_mut().enumerate() {
                *x = noise((position * 977 + i) as u64);
            }
            let (cosines, sines) = buffers.angles_mut(row);
            for i in 0..dim / 2 {
                let angle = position as f32 * 0.5_f32.powi(i as i32);
                (cosines[i], sines[i]) = (angle.cos(), angle.sin());
            }
        }
        let ones = vec![1.0; HIDDEN];
        let weights = QkvWeights {
            norm: RowNorm::Rms(Norm { weight: &ones, epsilon: 1e-5 }),
            matrix: &self.matrix,
            bias: None,
            norms: HeadNorms::None,
            heads: self.heads,
            angles: (0, dim / 2),
        };
        let destinations: Vec<_> = (0..rows).map(|row| KvDestination { tail: 0, position: self.len + row }).collect();
        let mut tails = [KvTail { first: 0, pages: self.pages.iter_mut().collect() }];
        qkv(isa, crew, &weights, &mut buffers, 0..rows, 1, &mut tails, &destinations);
        let shape = AttentionShape { heads: self.heads, scale: 0.3, window: self.window };
        let sequence =
            SequenceRows { pages: self.pages.iter().collect(), first_row: 0, rows, start: self.len, tree: None };
        attention(isa, crew, &shape, &mut buffers, &self.layout, 1, &[sequence]);
        self.len += rows;
        (0..rows).map(|row| buffers.attended(row).to_vec()).collect()
    }
}

/// The plain computation rounds nothing, so the tolerances are those of eight-bit activations (and of the cache).
#[test]
fn results_are_softmax_averages() {
    for (format, tolerance) in [(KvFormat::F16, 2e-2), (KvFormat::Int8, 4e-2)] {
        for window in [None, Some(20)] {
            let mut sequence = Sequence::new(2, 3, 32, format, window);
            let results = sequence.feed(Isa::best(), &Solo, 100);
            let expected = plain(&Sequence::new(2, 3, 32, format, window), 100);
            for (row, (result, expected)) in results.iter().zip(&expected).enumerate() {
                for (a, b) in result.iter().zip(expected) {
                    assert!((f64::from(*a) - b).abs() < tolerance, "{format:?} {window:?} row {row}: {a} {b}");
                }
            }
        }
    }
}

fn plain(sequence: &Sequence, rows: usize) -> Vec<Vec<f64>> {
    let (dim, heads, kv_heads) = (sequence.layout.head_dim, sequence.heads, sequence.layout.kv_heads);
    let project = |position: usize| -> Vec<f64> {
        let x: Vec<f64> = (0..HIDDEN).map(|i| f64::from(noise((position * 977 + i) as u64))).collect();
        let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / HIDDEN as f64 + 1e-5).sqrt();
        let mut out: Vec<f64> = (0..sequence.matrix.outputs())
            .map(|o| (0..HIDDEN).map(|i| x[i] * scale * f64::from(sequence.matrix.weight(o, i))).sum())
            .collect();
        for head in 0..heads + kv_heads {
            for i in 0..dim / 2 {
                let angle = f64::from(position as f32 * 0.5_f32.powi(i as i32));
                let (a, b) = (out[head * dim + i], out[head * dim + i + dim / 2]);
                out[head * dim + i] = a * angle.cos() - b * angle.sin();
                out[head * dim + i + dim / 2] = b * angle.cos() + a * angle.sin();
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
                    let total: f64 = weights.iter().sum();
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

#[test]
fn instruction_sets_agree_to_the_bit() {
    for format in [KvFormat::F16, KvFormat::Int8] {
        let mut results = Vec::new();
        for isa in Isa::available() {
            let mut sequence = Sequence::new(1, 2, 48, format, None);
            let mut all = sequence.feed(isa, &Solo, 70);
            all.extend(sequence.feed(isa, &Solo, 1));
            results.push((isa, all));
        }
        for (isa, result) in &results {
            assert!(*result == results[0].1, "{isa} differs from {}, {format:?}", results[0].0);
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
        let format = if group % 2 == 0 { KvFormat::F16 } else { KvFormat::Int8 };
        let rows = SPAN_PAGES * PAGE + cuts.iter().sum::<usize>();
        let isa = Isa::best();
        let whole = Sequence::new(kv_heads, group, 16, format, window).feed(isa, &Solo, rows);
        let mut sequence = Sequence::new(kv_heads, group, 16, format, window);
        let crew = Scoped { threads };
        let mut parts = sequence.feed(isa, &crew, SPAN_PAGES * PAGE);
        for cut in cuts {
            parts.extend(sequence.feed(isa, &crew, cut));
        }
        prop_assert!(whole == parts);
    }
}
