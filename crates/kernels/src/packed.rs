//! Weights as the matrix products read them: packed once at load.
//!
//! A matrix of `outputs × inputs` is cut into panels of 16 outputs and groups of 32 inputs. A panel lies contiguous:
//! for each group, for each four inputs, the four weights of each of the 16 outputs: one 64-byte register. Weights of
//! four bits stay four bits (two steps share a register). Scales and minima are half precision, as in the files,
//! in units of a power of two.
//!
//! `w = scale × (q - zero)` or `w = scale × q + min`: for the file formats with groups of 32 (Q4_0, Q4_1, Q5_0, Q5_1,
//! Q8_0) these are exactly the file's values. Q4_K and Q5_K keep their quants and round
//! their scales to half precision; other formats are requantised to eight bits per group of 32.

use crate::memory::Aligned;
use crate::quantize::GROUP;
use crate::simd::LANES;
use half::f16;

/// Outputs in a panel.
pub const PANEL: usize = LANES;

/// How a quant becomes a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Eight bits, `scale × (q - 128)`.
    Byte,
    /// Eight bits, `scale × q + min`.
    ByteMin,
    /// Four bits, `scale × (q - 8)`.
    Nibble,
    /// Four bits, `scale × q + min`.
    NibbleMin,
}

impl Form {
    /// Whether the quants have four bits.
    #[must_use]
    pub fn is_nibble(self) -> bool {
        matches!(self, Self::Nibble | Self::NibbleMin)
    }

    /// Whether groups have a minimum.
    #[must_use]
    pub fn has_min(self) -> bool {
        matches!(self, Self::ByteMin | Self::NibbleMin)
    }

    /// 64-byte registers that hold a group of a panel.
    #[must_use]
    pub fn registers(self) -> usize {
        if self.is_nibble() { GROUP / 8 } else { GROUP / 4 }
    }
}

/// Thirty-two weights of one output.
#[derive(Clone, Copy, Debug)]
pub struct WeightGroup {
    /// See [`Form`].
    pub scale: f32,
    /// See [`Form`]; ignored by forms without one.
    pub min: f32,
    /// See [`Form`].
    pub quants: [u8; GROUP],
}

impl WeightGroup {
    /// Eight-bit quants of `weights` (at most 32; the rest are zero) in [`Form::Byte`].
    #[must_use]
    pub fn quantize(weights: &[f32]) -> Self {
        let largest = weights.iter().fold(0.0_f32, |largest, w| largest.max(w.abs()));
        let scale = largest / 127.0;
        let inverse = if scale > 0.0 { scale.recip() } else { 0.0 };
        let mut quants = [128; GROUP];
        for (q, w) in quants.iter_mut().zip(weights) {
            *q = ((w * inverse).round_ties_even().clamp(-127.0, 127.0) as i32 + 128) as u8;
        }
        Self { scale, min: 0.0, quants }
    }
}

/// A packed matrix.
#[derive(Debug)]
pub struct PackedMatrix {
    outputs: usize,
    inputs: usize,
    form: Form,
    quants: Aligned<u8>,
    scales: Aligned<u16>,
    mins: Aligned<u16>,
}

impl PackedMatrix {
    /// Packs a matrix given group by group: `group(output, index)` is group `index` of an output's weights.
    ///
    /// # Errors
    /// [`OutOfRange`] if a scale or minimum is not a number or too large.
    pub fn new(
        outputs: usize,
        inputs: usize,
        form: Form,
        mut group: impl FnMut(usize, usize) -> WeightGroup,
    ) -> Result<Self, OutOfRange> {
        let mut packed = Self::many(1, outputs, inputs, form, |_, output, index| group(output, index))?;
        Ok(packed.pop().unwrap_or_else(|| unreachable!("one matrix was asked for")))
    }

    /// Packs `count` matrices of one shape that lie beside each other in memory: `group(matrix, output, index)`.
    ///
    /// # Errors
    /// As [`Self::new`]; outputs are counted through all matrices.
    pub fn many(
        count: usize,
        outputs: usize,
        inputs: usize,
        form: Form,
        mut group: impl FnMut(usize, usize, usize) -> WeightGroup,
    ) -> Result<Vec<Self>, OutOfRange> {
        let groups = inputs.div_ceil(GROUP);
        let per_group = outputs.div_ceil(PANEL) * groups * PANEL;
        let quants = Aligned::slab(count, per_group / PANEL * form.registers() * 64).into_iter();
        let scales = Aligned::slab(count, per_group).into_iter();
        let mins = Aligned::slab(count, if form.has_min() { per_group } else { 0 }).into_iter();
        let zeroed = quants.zip(scales).zip(mins);
        let mut packed: Vec<Self> =
            zeroed.map(|((quants, scales), mins)| Self { outputs, inputs, form, quants, scales, mins }).collect();
        for (matrix, packed) in packed.iter_mut().enumerate() {
            for output in 0..outputs {
                for index in 0..groups {
                    let set = packed.set(output, index, &group(matrix, output, index));
                    set.map_err(|error| OutOfRange { output: matrix * outputs + output, ..error })?;
                }
            }
        }
        Ok(packed)
    }

    /// The matrix of some outputs alone, in this order.
    ///
    /// # Panics
    /// If there is no such output.
    #[must_use]
    pub fn gather(&self, outputs: &[usize]) -> Self {
        let (groups, registers) = (self.groups(), self.form.registers());
        let per_group = outputs.len().div_ceil(PANEL) * groups * PANEL;
        let mut gathered = Self {
            outputs: outputs.len(),
            quants: Aligned::zeroed(per_group / PANEL * registers * 64),
            scales: Aligned::zeroed(per_group),
            mins: Aligned::zeroed(if self.form.has_min() { per_group } else { 0 }),
            ..*self
        };
        for (to, &from) in outputs.iter().enumerate() {
            assert!(from < self.outputs, "there is no output {from}");
            for index in 0..groups {
                let block = |output: usize| output / PANEL * groups + index;
                let (source, target) = (block(from), block(to));
                let (from_lane, to_lane) = (from % PANEL, to % PANEL);
                gathered.scales[target * PANEL + to_lane] = self.scales[source * PANEL + from_lane];
                if self.form.has_min() {
                    gathered.mins[target * PANEL + to_lane] = self.mins[source * PANEL + from_lane];
                }
                for register in 0..registers {
                    let four = &self.quants[(source * registers + register) * 64 + from_lane * 4..][..4];
                    gathered.quants[(target * registers + register) * 64 + to_lane * 4..][..4].copy_from_slice(four);
                }
            }
        }
        gathered
    }

    /// The quants as they lie in memory, for probes.
    #[must_use]
    pub fn quants(&self) -> &[u8] {
        &self.quants
    }

    fn set(&mut self, output: usize, index: usize, group: &WeightGroup) -> Result<(), OutOfRange> {
        let half = |value: f32| {
            let bits = f16::from_f32(value / UNIT);
            if bits.is_finite() { Ok(bits.to_bits()) } else { Err(OutOfRange { output, value }) }
        };
        let (panel, lane) = (output / PANEL, output % PANEL);
        let block = panel * self.groups() + index;
        let at = block * PANEL + lane;
        self.scales[at] = half(group.scale)?;
        if self.form.has_min() {
            self.mins[at] = half(group.min)?;
        }
        let first = block * self.form.registers() * 64 + lane * 4;
        for (step, four) in group.quants.chunks_exact(4).enumerate() {
            if self.form.is_nibble() {
                let (register, shift) = (step % 4, step / 4 * 4);
                for (byte, q) in self.quants[first + register * 64..][..4].iter_mut().zip(four) {
                    *byte |= (q & 15) << shift;
                }
            } else {
                self.quants[first + step * 64..][..4].copy_from_slice(four);
            }
        }
        Ok(())
    }

    /// Rows of the matrix: values of a result.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the matrix: values of an operand.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Panels of 16 outputs, the last one padded with zeros.
    #[must_use]
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Groups of 32 inputs, the last one padded with zeros.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.inputs.div_ceil(GROUP)
    }

    /// How quants become weights.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Bytes that a product with one row reads.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.quants.bytes() + self.scales.bytes() + self.mins.bytes()
    }

    /// Multiply-accumulates of a product with one row.
    #[must_use]
    pub fn macs(&self) -> usize {
        self.outputs * self.inputs
    }

    /// Where panel `index` begins; valid for all its groups.
    pub(crate) fn panel(&self, index: usize) -> Panel {
        let groups = self.groups();
        let per_panel = groups * self.form.registers() * 64;
        let quants = &self.quants[index * per_panel..(index + 1) * per_panel];
        let span = index * groups * PANEL..(index + 1) * groups * PANEL;
        Panel {
            quants: quants.as_ptr(),
            scales: self.scales[span.clone()].as_ptr(),
            mins: if self.form.has_min() { self.mins[span].as_ptr() } else { std::ptr::null() },
        }
    }

    /// Weight `input` of `output`, for tests and for reading single rows.
    #[must_use]
    pub fn weight(&self, output: usize, input: usize) -> f32 {
        let (panel, lane) = (output / PANEL, output % PANEL);
        let (index, step, byte) = (input / GROUP, input % GROUP / 4, input % 4);
        let block = panel * self.groups() + index;
        let first = block * self.form.registers() * 64 + lane * 4 + byte;
        let q = if self.form.is_nibble() {
            self.quants[first + step % 4 * 64] >> (step / 4 * 4) & 15
        } else {
            self.quants[first + step * 64]
        };
        let at = block * PANEL + lane;
        let scale = f16::from_bits(self.scales[at]).to_f32();
        let value = match self.form {
            Form::Byte => scale * (f32::from(q) - 128.0),
            Form::Nibble => scale * (f32::from(q) - 8.0),
            Form::ByteMin | Form::NibbleMin => scale.mul_add(f32::from(q), f16::from_bits(self.mins[at]).to_f32()),
        };
        value * UNIT
    }
}

/// Pointers to one panel.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    pub(crate) quants: *const u8,
    pub(crate) scales: *const u16,
    pub(crate) mins: *const u16,
}

/// Scales are stored in this unit. A power of two, so that the files' half-precision scales stay exact, and small, so
/// that those of unquantised weights (about 1e-4) keep half precision's full 11 bits.
pub(crate) const UNIT: f32 = 1.0 / 1024.0;

/// A scale or minimum that cannot be packed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("output {output} has a scale of {value}, outside of what can be packed (±63)")]
pub struct OutOfRange {
    /// The output it belongs to.
    pub output: usize,
    /// The scale.
    pub value: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(output: usize, index: usize, form: Form) -> WeightGroup {
        let mask = if form.is_nibble() { 15 } else { 255 };
        WeightGroup {
            scale: 0.5 + output as f32,
            min: -(index as f32),
            quants: std::array::from_fn(|i| ((output * 31 + index * 7 + i * 5) & mask) as u8),
        }
    }

    #[test]
    fn weights_come_back() {
        for form in [Form::Byte, Form::ByteMin, Form::Nibble, Form::NibbleMin] {
            let packed = PackedMatrix::new(19, 70, form, |output, index| group(output, index, form)).unwrap();
            for output in 0..19 {
                for input in 0..70 {
                    let group = group(output, input / GROUP, form);
                    let q = f32::from(group.quants[input % GROUP]);
                    let expected = match form {
                        Form::Byte => group.scale * (q - 128.0),
                        Form::Nibble => group.scale * (q - 8.0),
                        Form::ByteMin | Form::NibbleMin => group.scale * q + group.min,
                    };
                    assert_eq!(packed.weight(output, input), expected, "{form:?} {output} {input}");
                }
            }
        }
    }

    #[test]
    fn gathered_outputs_have_their_weights() {
        for form in [Form::Byte, Form::ByteMin, Form::Nibble, Form::NibbleMin] {
            let packed = PackedMatrix::new(40, 70, form, |output, index| group(output, index, form)).unwrap();
            let outputs: Vec<usize> = (0..19).map(|output| (output * 7 + 3) % 40).collect();
            let gathered = packed.gather(&outputs);
            assert_eq!((gathered.outputs(), gathered.inputs()), (19, 70));
            for (to, &from) in outputs.iter().enumerate() {
                assert!(
                    (0..70).all(|input| gathered.weight(to, input) == packed.weight(from, input)),
                    "{form:?} {from}"
                );
            }
        }
    }

    #[test]
    fn tiny_scales_keep_their_precision() {
        let packed =
            PackedMatrix::new(1, 32, Form::Byte, |_, _| WeightGroup { scale: 3e-7, min: 0.0, quants: [255; 32] })
                .unwrap();
        let relative = packed.weight(0, 3) / (3e-7 * 127.0) - 1.0;
        assert!(relative.abs() < 1e-3, "{relative}");
    }

    #[test]
    fn absurd_scales_are_refused() {
        for scale in [f32::NAN, f32::INFINITY, -1e9] {
            let packed = PackedMatrix::new(2, 32, Form::Byte, |_, _| WeightGroup { scale, min: 0.0, quants: [1; 32] });
            assert!(packed.is_err());
        }
    }
}
