//! Signed bytes, one scale per output, no zero point.

use super::{WeightsError, check_length, usable};

/// A weight is `scale × value`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Int8 {
    /// `[outputs, inputs]`.
    pub values: Vec<i8>,
    /// One per output.
    pub scales: Vec<f32>,
}

impl Int8 {
    pub(super) fn push_row(&mut self, row: &[f32]) {
        let largest = row.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
        let scale = usable(largest / 127.0);
        self.scales.push(scale);
        self.values.extend(row.iter().map(|weight| (weight / scale).round().clamp(-127.0, 127.0) as i8));
    }

    pub(super) fn check(&self, inputs: usize, outputs: usize) -> Result<(), WeightsError> {
        check_length("weights", outputs.saturating_mul(inputs), self.values.len())?;
        check_length("scales", outputs, self.scales.len())
    }

    pub(super) fn row(&self, output: usize, row: &mut [f32]) {
        let values = &self.values[output * row.len()..][..row.len()];
        for (weight, value) in row.iter_mut().zip(values) {
            *weight = self.scales[output] * f32::from(*value);
        }
    }
}
