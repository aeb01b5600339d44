//! Matrices in single precision, and their products.
//!
//! Each value of a product is one sum in a fixed order, so that results do not depend on the number of threads.

use duet_kernels::isa::Isa;
use duet_kernels::rows::dots;
use std::ops::Range;

/// Rows of floats, one behind the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

/// Who computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hands {
    pub(crate) isa: Isa,
    pub(crate) threads: usize,
}

impl Matrix {
    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        Self { columns, values: vec![0.0; rows * columns] }
    }

    /// Of whole rows.
    pub(crate) fn of(columns: usize, values: Vec<f32>) -> Self {
        assert!(columns > 0 && values.len().is_multiple_of(columns));
        Self { columns, values }
    }

    pub(crate) fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.columns..][..self.columns]
    }

    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    pub(crate) fn transposed(&self) -> Self {
        let (rows, columns) = (self.rows(), self.columns);
        let mut turned = Self::zeros(columns, rows);
        for row in 0..rows {
            for column in 0..columns {
                turned.values[column * rows + row] = self.values[row * columns + column];
            }
        }
        turned
    }

    /// Rows that follow each other.
    pub(crate) fn rows_of(&self, rows: Range<usize>) -> Self {
        let values = self.values[rows.start * self.columns..rows.end * self.columns].to_vec();
        Self { columns: self.columns, values }
    }

    /// Some rows, in this order.
    pub(crate) fn gather(&self, rows: &[usize]) -> Self {
        Self { columns: self.columns, values: rows.iter().flat_map(|&row| self.row(row)).copied().collect() }
    }

    /// `self += other`.
    pub(crate) fn add(&mut self, other: &Self) {
        assert!(self.columns == other.columns && self.values.len() == other.values.len());
        self.values.iter_mut().zip(&other.values).for_each(|(a, b)| *a += b);
    }

    /// `self × otherᵀ`: each row with each row of `other`.
    pub(crate) fn times_rows_of(&self, other: &Self, hands: Hands) -> Self {
        assert!(self.columns == other.columns);
        let mut out = Self::zeros(self.rows(), other.rows());
        if out.values.is_empty() {
            return out;
        }
        let share = self.rows().div_ceil(hands.threads.max(1));
        let block = (BLOCK_FLOATS / self.columns).max(8);
        std::thread::scope(|scope| {
            for (index, part) in out.values.chunks_mut(share * other.rows()).enumerate() {
                scope.spawn(move || {
                    for first in (0..other.rows()).step_by(block) {
                        let last = (first + block).min(other.rows());
                        let weights = &other.values[first * other.columns..last * other.columns];
                        for (row, out) in part.chunks_exact_mut(other.rows()).enumerate() {
                            dots(hands.isa, self.row(index * share + row), weights, &mut out[first..last]);
                        }
                    }
                });
            }
        });
        out
    }
}

/// Rows that are multiplied with many others before the next ones come: what a core's own cache holds.
const BLOCK_FLOATS: usize = 32 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_the_sums_of_rows_with_rows() {
        let matrix = |rows: usize, seed: usize| {
            Matrix::of(37, (0..rows * 37).map(|i| ((i * 7 + seed) % 11) as f32 - 5.0).collect())
        };
        let (a, b) = (matrix(21, 1), matrix(13, 4));
        let one = a.times_rows_of(&b, Hands { isa: Isa::Portable, threads: 1 });
        assert_eq!(one, a.times_rows_of(&b, Hands { isa: Isa::best(), threads: 3 }));
        for row in 0..21 {
            for column in 0..13 {
                let sum: f32 = a.row(row).iter().zip(b.row(column)).map(|(a, b)| a * b).sum();
                assert_eq!(one.row(row)[column], sum);
            }
        }
        assert_eq!(a.transposed().transposed(), a);
    }
}
