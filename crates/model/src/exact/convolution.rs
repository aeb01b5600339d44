//! A short convolution in attention's place: each channel over its own last few positions.

use super::ExactReader;
use super::rows::Rows;
use super::tensors::Tensors;
use crate::load::LoadError;

impl ExactReader {
    /// Adds what the convolution makes of the residual stream to it.
    pub(super) fn convolve(
        &self,
        tensors: &Tensors<'_>,
        layer: usize,
        taps: usize,
        residual: &mut Rows,
    ) -> Result<(), LoadError> {
        let hidden = self.blueprint.hidden;
        let normed = self.norm(tensors, &format!("blk.{layer}.attn_norm"), residual)?;
        let name = |part: &str| format!("blk.{layer}.shortconv.{part}.weight");
        let projected = self.product(&tensors.matrix(&name("in_proj"), hidden, 3 * hidden)?, &normed);
        // Of each channel, the tap of the oldest position first.
        let weights = tensors.floats(&name("conv"), taps, hidden)?;
        let column = |row: usize, channel: usize| {
            let row = projected.row(row);
            f64::from(row[channel] * row[2 * hidden + channel])
        };
        let mut found = Rows::zeros(projected.len(), hidden);
        for (position, out) in found.each_mut().enumerate() {
            for (channel, out) in out.iter_mut().enumerate() {
                let back = |tap: usize| position.checked_sub(taps - 1 - tap);
                let weight = |tap: usize| f64::from(weights[channel * taps + tap]);
                let terms = (0..taps).filter_map(|tap| back(tap).map(|row| weight(tap) * column(row, channel)));
                *out = (f64::from(projected.row(position)[hidden + channel]) * terms.sum::<f64>()) as f32;
            }
        }
        self.add(residual, self.product(&tensors.matrix(&name("out_proj"), hidden, hidden)?, &found));
        Ok(())
    }
}
