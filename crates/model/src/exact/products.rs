//! Products of rows with a matrix whose weights are read from the file meanwhile.

use super::ExactReader;
use super::rows::{Rows, dot_widened};
use super::tensors::Matrix;

/// Weight rows that are read before the rows of the operand go by: they stay in the processor's cache.
const BLOCK: usize = 16;

/// Multiply-accumulates that are worth a thread.
const THREAD_MACS: usize = 1 << 20;

impl ExactReader {
    /// `rows × matrixᵀ`, both rounded as the reader rounds.
    pub(super) fn product(&self, matrix: &Matrix<'_>, rows: &Rows) -> Rows {
        let mut operand = rows.clone();
        let rounding = matrix.rounding(self.rounding);
        operand.each_mut().for_each(|row| rounding.activations(row));
        let outputs = matrix.outputs();
        let macs = outputs * matrix.inputs() * rows.len();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (macs / THREAD_MACS).clamp(1, cores);
        let share = outputs.div_ceil(threads).max(1);
        // Transposed: a thread's outputs lie beside each other.
        let mut columns = vec![0.0; outputs * rows.len()];
        let parts = columns.chunks_mut((share * rows.len()).max(1)).enumerate();
        std::thread::scope(|scope| {
            for (part, columns) in parts {
                let operand = &operand;
                let mut work = move || self.outputs(matrix, operand, part * share, columns);
                if threads == 1 { work() } else { drop(scope.spawn(work)) }
            }
        });
        let mut product = Rows::zeros(rows.len(), outputs);
        for (row, values) in product.each_mut().enumerate() {
            values.iter_mut().enumerate().for_each(|(output, value)| *value = columns[output * rows.len() + row]);
        }
        product
    }

    /// Some outputs from `first` on, each for all rows: as many as `columns` has room for.
    fn outputs(&self, matrix: &Matrix<'_>, operand: &Rows, first: usize, columns: &mut [f32]) {
        let (inputs, rows) = (matrix.inputs(), operand.len());
        let rounding = matrix.rounding(self.rounding);
        let mut weights = Rows::zeros(1, inputs);
        // Widened once for all that they are multiplied with: that takes as long as a product.
        let (mut block_weights, mut operand_row) = (vec![0.0; BLOCK * inputs], vec![0.0; inputs]);
        for (block, columns) in columns.chunks_mut(BLOCK * rows).enumerate() {
            let from = matrix.rows.start + first + block * BLOCK;
            let outputs = columns.len() / rows;
            for (output, wide) in block_weights.chunks_exact_mut(inputs.max(1)).enumerate().take(outputs) {
                rounding.read(matrix.tensor, from + output, weights.row_mut(0));
                widen(weights.row(0), wide);
            }
            for (row, x) in operand.each().enumerate() {
                widen(x, &mut operand_row);
                let weights = block_weights.chunks_exact(inputs.max(1));
                for (values, weights) in columns.chunks_exact_mut(rows).zip(weights) {
                    values[row] = dot_widened(weights, &operand_row) as f32;
                }
            }
        }
    }
}

fn widen(from: &[f32], to: &mut [f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = f64::from(*from));
}
