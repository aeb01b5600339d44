//! Rows of floats, and what is done to single ones.

/// Some rows of equal length.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    columns: usize,
    values: Vec<f32>,
}

impl Rows {
    pub(super) fn zeros(rows: usize, columns: usize) -> Self {
        Self { columns, values: vec![0.0; rows * columns] }
    }

    pub(super) fn new(columns: usize, values: Vec<f32>) -> Self {
        Self { columns, values }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.columns..][..self.columns]
    }

    pub(super) fn each(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.columns)
    }

    pub(super) fn each_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [f32]> {
        self.values.chunks_exact_mut(self.columns)
    }

    pub(super) fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// These rows alone, in this order.
    pub(super) fn pick(&self, rows: &[usize]) -> Self {
        Self::new(self.columns, rows.iter().flat_map(|&row| self.row(row)).copied().collect())
    }

    /// Adds other rows, one to one.
    pub(super) fn add(&mut self, other: &Self) {
        add(&mut self.values, &other.values);
    }

    /// Multiplies all with the same.
    pub(super) fn scale(&mut self, factor: f32) {
        self.values.iter_mut().for_each(|x| *x *= factor);
    }

    /// Adds the same to each row.
    pub(super) fn add_to_each(&mut self, addend: &[f32]) {
        self.each_mut().for_each(|row| add(row, addend));
    }
}

fn add(to: &mut [f32], addend: &[f32]) {
    to.iter_mut().zip(addend).for_each(|(to, addend)| *to += addend);
}

/// The sum of products.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0_f64; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    sums.iter().sum::<f64>() + rest
}

/// By the root of the mean square.
pub(super) fn rms_norm(row: &mut [f32], weight: &[f32], epsilon: f32) {
    let mean_square = dot(row, row) / row.len() as f64;
    let root = (mean_square + f64::from(epsilon)).sqrt();
    for (x, weight) in row.iter_mut().zip(weight) {
        *x = (f64::from(*x) / root * f64::from(*weight)) as f32;
    }
}

/// By the deviation from the mean.
pub(super) fn layer_norm(row: &mut [f32], weight: &[f32], bias: &[f32], epsilon: f32) {
    let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / row.len() as f64;
    let deviation = (variance + f64::from(epsilon)).sqrt();
    for ((x, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
        *x = ((f64::from(*x) - mean) / deviation * f64::from(*weight) + f64::from(*bias)) as f32;
    }
}

/// The logistic function.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `e` to the power of each score, divided by their sum.
pub(super) fn softmax(scores: &mut [f64]) {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_summed_over_whole_lanes_and_the_rest() {
        let a: Vec<f32> = (0..19).map(|i| i as f32).collect();
        assert_eq!(dot(&a, &a), (0..19).map(|i| f64::from(i * i)).sum::<f64>());
    }

    #[test]
    fn a_layer_norm_leaves_no_mean_and_a_deviation_of_one() {
        let mut row = [1.0, 2.0, 3.0, 6.0];
        layer_norm(&mut row, &[1.0; 4], &[0.5; 4], 0.0);
        let mean = row.iter().sum::<f32>() / 4.0;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 4.0;
        assert!((mean - 0.5).abs() < 1e-6 && (variance - 1.0).abs() < 1e-6, "{mean} {variance}");
    }
}
