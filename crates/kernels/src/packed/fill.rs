//! Packing: writes the weights of outputs into a section, row by row.
//!
//! An output is one lane of its panel, so a row is written in steps of a register; the sixteen rows of a panel go into the
//! same lines, which stay in the cache meanwhile.

use super::group::{set_floats, set_quants};
use super::{BLOCK, HALVES, OutOfRange, PANEL, Section, UNIT, WeightGroup, WeightRow, WeightRows};
use crate::quantize::GROUP;
use crate::simd::LANES;
use half::f16;

impl Section {
    /// Packs its outputs, which are those from `first` on of who gives them.
    pub(super) fn fill(&mut self, first: usize, rows: &mut impl WeightRows) -> Result<(), OutOfRange> {
        for output in 0..self.outputs {
            let filled = match rows.row(first + output) {
                WeightRow::Quants(groups) => self.set_row(output, groups.iter()),
                WeightRow::Floats(floats) => self.set_floats(output, floats),
                WeightRow::Zeros if self.form.is_float() => Ok(()),
                WeightRow::Zeros => self.set_row(output, std::iter::repeat(&WeightGroup::zeros(self.form))),
            };
            filled.map_err(|value| OutOfRange { output: first + output, value })?;
        }
        Ok(())
    }

    /// Writes the floats of an output; says which one is not finite.
    fn set_floats(&mut self, output: usize, floats: &[f32]) -> Result<(), f32> {
        assert!(self.form.is_float(), "floats for {:?}", self.form);
        assert!(floats.len().div_ceil(GROUP) == self.groups, "{} floats for {} groups", floats.len(), self.groups);
        if let Some(&value) = floats.iter().find(|value| !value.is_finite()) {
            return Err(value);
        }
        let (form, (panel, lane)) = (self.form, (output / PANEL, output % PANEL));
        let bytes = form.registers() * 64;
        let registers = self.quants.own()[panel * self.groups * bytes..].chunks_exact_mut(bytes);
        for (registers, floats) in registers.zip(floats.chunks(GROUP)) {
            set_floats(form, registers, lane, floats);
        }
        Ok(())
    }

    /// Writes the groups of an output; says which scale or minimum is out of range.
    fn set_row<'a>(&mut self, output: usize, mut row: impl Iterator<Item = &'a WeightGroup>) -> Result<(), f32> {
        let (form, (panel, lane)) = (self.form, (output / PANEL, output % PANEL));
        assert!(!form.is_float(), "quants for {form:?}");
        let bytes = form.registers() * 64;
        let registers = self.quants.own()[panel * self.groups * bytes..].chunks_exact_mut(bytes);
        let scales = &mut self.scales.own()[panel * form.scale_bytes(self.groups)..];
        for (index, registers) in registers.take(self.groups).enumerate() {
            let group = row.next().unwrap_or_else(|| panic!("a row ends before group {index} of {}", self.groups));
            // What a block's groups share is the first one's.
            if !form.has_small_scales() || index.is_multiple_of(BLOCK) {
                let block = form.block_at(index) + 2 * lane;
                scales[block..block + 2].copy_from_slice(&half(group.scale)?);
                if form.has_min() {
                    scales[block + HALVES..][..2].copy_from_slice(&half(group.min)?);
                }
            }
            if form.has_small_scales() {
                let at = form.scales_at(index) + lane;
                for (i, &small) in group.small[..form.small_scales()].iter().enumerate() {
                    scales[at + i * LANES] = small;
                }
            }
            set_quants(form, registers, lane, &group.quants);
        }
        Ok(())
    }
}

/// A scale in half precision, in the unit that scales have; the scale itself if it cannot be one.
fn half(value: f32) -> Result<[u8; 2], f32> {
    let bits = f16::from_f32(value / UNIT);
    if bits.is_finite() { Ok(bits.to_le_bytes()) } else { Err(value) }
}
