//! Products of small whole numbers, which are exact in every format: what tests multiply.

/// `x · wᵀ`, for rows of `inputs` values and a row of weights for each output; row by row.
#[must_use]
pub fn reference(x: &[f32], weights: &[f32], inputs: usize) -> Vec<f32> {
    let dot = |row: &[f32], weights: &[f32]| row.iter().zip(weights).map(|(x, w)| x * w).sum();
    x.chunks(inputs).flat_map(|row| weights.chunks(inputs).map(move |weights| dot(row, weights))).collect()
}

/// Whole numbers from -3 to 3 that do not repeat in step with a row.
#[must_use]
pub fn whole_numbers(len: usize, step: usize) -> Vec<f32> {
    (0..len).map(|index| ((index * step) % 7) as f32 - 3.0).collect()
}
