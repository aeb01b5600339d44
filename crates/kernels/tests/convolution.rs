//! Short convolutions: against a plain computation, and to the bit across instruction sets, crews and cuts.

use duet_kernels::crew::{Crew, Scoped, Solo};
use duet_kernels::fused::{BufferShape, Buffers, ConvolvedRows, Norm, RowNorm, project, short_convolution};
use duet_kernels::isa::Isa;
use duet_kernels::packed::{Form, PackedMatrix};
use duet_kernels::quantize::Operands;
use proptest::prelude::*;

const HIDDEN: usize = 48;
const TAPS: usize = 3;

fn noise(seed: usize) -> f32 {
    let mut x = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}

fn matrix() -> PackedMatrix {
    let floats =
        |output: usize, group: usize| std::array::from_fn::<f32, 32, _>(|i| noise(output * 97 + group * 32 + i));
    PackedMatrix::new(3 * HIDDEN, HIDDEN, Form::F32, |output, group| {
        let mut floats = floats(output, group);
        // Behind the last input there is nothing.
        floats.iter_mut().enumerate().for_each(|(i, x)| *x = if group * 32 + i < HIDDEN { *x } else { 0.0 });
        floats
    })
    .unwrap()
}

fn taps() -> Vec<f32> {
    (0..TAPS * HIDDEN).map(|i| noise(i + 9000)).collect()
}

/// The state between calls, and what rows found.
struct Sequence {
    before: Vec<f32>,
}

impl Sequence {
    fn new() -> Self {
        Self { before: vec![0.0; (TAPS - 1) * HIDDEN] }
    }

    fn buffers(isa: Isa, crew: &dyn Crew, rows: &[usize]) -> Buffers {
        let shape = BufferShape {
            hidden: HIDDEN,
            qkv: 3 * HIDDEN,
            queries: HIDDEN,
            ffn: HIDDEN,
            experts: None,
            angles: 1,
            layer_inputs: 0,
            operands: Operands::BytesAndFloats,
        };
        let mut buffers = Buffers::new(shape, rows.len());
        for (index, row) in rows.iter().enumerate() {
            buffers.residual_mut(index).iter_mut().enumerate().for_each(|(i, x)| *x = noise(row * 1009 + i));
        }
        let ones = vec![1.0; HIDDEN];
        let norm = RowNorm::Rms(Norm { weight: &ones, epsilon: 1e-5 });
        project(isa, crew, (norm, &matrix()), &mut buffers, 0..rows.len());
        buffers
    }

    fn found(buffers: &Buffers, rows: usize) -> Vec<Vec<f32>> {
        (0..rows).map(|row| buffers.attended(row).to_vec()).collect()
    }

    /// Rows that follow each other.
    fn feed(&mut self, isa: Isa, crew: &dyn Crew, rows: &[usize]) -> Vec<Vec<f32>> {
        let mut buffers = Self::buffers(isa, crew, rows);
        let all = ConvolvedRows { first_row: 0, rows: 0..rows.len(), before: &self.before, paths: None };
        short_convolution(isa, crew, &taps(), &mut buffers, &[all]);
        for row in 0..rows.len() {
            let mut column = vec![0.0; HIDDEN];
            buffers.column(row, &mut column);
            self.before.drain(..HIDDEN);
            self.before.extend(column);
        }
        Self::found(&buffers, rows.len())
    }

    fn feed_tree(&self, isa: Isa, crew: &dyn Crew, rows: &[usize], paths: &[Vec<usize>]) -> Vec<Vec<f32>> {
        let mut buffers = Self::buffers(isa, crew, rows);
        let all = ConvolvedRows { first_row: 0, rows: 0..rows.len(), before: &self.before, paths: Some(paths) };
        short_convolution(isa, crew, &taps(), &mut buffers, &[all]);
        Self::found(&buffers, rows.len())
    }
}

#[test]
fn results_are_convolutions() {
    let rows: Vec<usize> = (0..7).collect();
    let found = Sequence::new().feed(Isa::chosen().unwrap(), &Solo, &rows);
    let (matrix, taps) = (matrix(), taps());
    let projected = |row: usize| -> Vec<f64> {
        let x: Vec<f64> = (0..HIDDEN).map(|i| f64::from(noise(row * 1009 + i))).collect();
        let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / HIDDEN as f64 + 1e-5).sqrt();
        let output = |o: usize| (0..HIDDEN).map(|i| x[i] * scale * f64::from(matrix.weight(o, i))).sum();
        (0..3 * HIDDEN).map(output).collect()
    };
    let all: Vec<Vec<f64>> = rows.iter().map(|&row| projected(row)).collect();
    for (row, found) in found.iter().enumerate() {
        for (channel, found) in found.iter().enumerate() {
            let column = |back: usize| {
                row.checked_sub(back).map_or(0.0, |row| all[row][channel] * all[row][2 * HIDDEN + channel])
            };
            let sum: f64 = (0..TAPS).map(|tap| f64::from(taps[tap * HIDDEN + channel]) * column(TAPS - 1 - tap)).sum();
            let expected = all[row][HIDDEN + channel] * sum;
            assert!((f64::from(*found) - expected).abs() < 1e-3, "row {row}, channel {channel}: {found} {expected}");
        }
    }
}

proptest! {
    #[test]
    fn cuts_crews_and_instruction_sets_change_nothing(
        cuts in prop::collection::vec(1_usize..6, 1..5),
        threads in 1_usize..4,
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
    ) {
        let rows: Vec<usize> = (0..cuts.iter().sum()).collect();
        let mut sequence = Sequence::new();
        let whole = sequence.feed(Isa::Portable, &Solo, &rows);
        for isa in Isa::available() {
            let (mut parts, mut found, mut at) = (Sequence::new(), Vec::new(), 0);
            for cut in &cuts {
                found.extend(parts.feed(isa, &Scoped { threads }, &rows[at..at + cut]));
                at += cut;
            }
            prop_assert!(found == whole && parts.before == sequence.before, "{}", isa);
            // A tree is its paths.
            let mut paths: Vec<Vec<usize>> = Vec::new();
            for (row, parent) in parents.iter().enumerate() {
                let mut path = parent.index(row + 1).checked_sub(1).map_or_else(Vec::new, |parent| paths[parent].clone());
                path.push(row);
                paths.push(path);
            }
            let drafts: Vec<usize> = (0..paths.len()).map(|row| row + 100).collect();
            let tree = parts.feed_tree(isa, &Scoped { threads }, &drafts, &paths);
            for (path, found) in paths.iter().zip(&tree) {
                let drafts: Vec<usize> = path.iter().map(|row| row + 100).collect();
                let mut alone = Sequence { before: parts.before.clone() };
                prop_assert!(alone.feed(isa, &Solo, &drafts).last() == Some(found));
            }
        }
    }
}
