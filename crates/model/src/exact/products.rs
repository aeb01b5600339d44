//! Products of rows with a matrix whose weights are read from the file meanwhile.

use super::ExactReader;
use super::rows::Rows;
use super::tensors::Matrix;
use super::threads::each_on_threads;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};

/// Outputs whose weights are read at a time.
const OUTPUTS: usize = 128;

/// Rows of the operand that go by weights that were read, before the next ones are widened.
const ROWS: usize = 256;

/// Multiply-accumulates that are worth a thread.
pub(super) const THREAD_MACS: usize = 1 << 20;

impl ExactReader {
    /// `rows × matrixᵀ`, both rounded as the reader rounds.
    pub(super) fn product(&self, matrix: &Matrix<'_>, rows: &Rows) -> Rows {
        let mut operand = rows.clone();
        let rounding = matrix.rounding(self.rounding);
        operand.each_mut().for_each(|row| rounding.activations(row));
        let outputs = matrix.outputs();
        let threads = outputs * matrix.inputs() * rows.len() / THREAD_MACS;
        // Transposed: a block's outputs lie beside each other.
        let mut columns = vec![0.0; outputs * rows.len()];
        let blocks = columns.chunks_mut((OUTPUTS * rows.len()).max(1)).enumerate();
        each_on_threads(threads, blocks, |(block, columns)| self.outputs(matrix, &operand, block * OUTPUTS, columns));
        let mut product = Rows::zeros(rows.len(), outputs);
        for (row, values) in product.each_mut().enumerate() {
            values.iter_mut().enumerate().for_each(|(output, value)| *value = columns[output * rows.len() + row]);
        }
        product
    }

    /// Some outputs from `first` on, each for all rows: as many as `columns` has room for.
    fn outputs(&self, matrix: &Matrix<'_>, operand: &Rows, first: usize, columns: &mut [f32]) {
        let (inputs, rows) = (matrix.inputs(), operand.len());
        let outputs = columns.len() / rows;
        let rounding = matrix.rounding(self.rounding);
        let mut weights = Rows::zeros(outputs, inputs);
        let from = matrix.rows.start + first;
        weights.each_mut().enumerate().for_each(|(output, row)| rounding.read(matrix.tensor, from + output, row));
        let weights = wide(&weights, 0, outputs);
        let mut sums = Array2::zeros((outputs, ROWS.min(rows)));
        for row in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - row);
            let mut sums = sums.slice_mut(s![.., ..count]);
            multiply(weights.view(), wide(operand, row, count).t(), sums.view_mut());
            for (values, sums) in columns.chunks_exact_mut(rows).zip(sums.rows()) {
                values[row..][..count].iter_mut().zip(sums).for_each(|(value, sum)| *value = *sum as f32);
            }
        }
    }
}

/// `count` rows from `first` on, in double precision.
pub(super) fn wide(rows: &Rows, first: usize, count: usize) -> Array2<f64> {
    Array2::from_shape_fn((count, rows.columns()), |(row, column)| f64::from(rows.row(first + row)[column]))
}

/// `out = a × b`.
pub(super) fn multiply(a: ArrayView2<'_, f64>, b: ArrayView2<'_, f64>, mut out: ArrayViewMut2<'_, f64>) {
    general_mat_mul(1.0, &a, &b, 0.0, &mut out);
}
