//! Small integers in groups along the inputs: a scale for each group, and where its integers count from.
//!
//! Files of models have a minimum for each group, which no integer zero point says exactly; accelerators take integer
//! zero points. So a minimum is said as the nearest zero point and a rest, half a step at most, which a product adds for
//! the sum of the group's inputs: `Σ (scale × q + min) x = Σ scale × (q − point) x + rest × Σ x`.

use super::{WeightsError, check_length, usable};

/// How many weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// 32: as GGUF has them.
    Of32,
    /// 128: as accelerators' toolchains like them.
    Of128,
}

/// The integers' width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// Two integers a byte, the first one in the low half.
    Four,
    /// An integer a byte.
    Eight,
}

/// Where a group's integers count from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// From zero, in two's complement: a weight is `scale × value`.
    Zero,
    /// Unsigned, from a zero point: `scale × (value − point)`, a point for each group, output by output.
    Points(Vec<u8>),
    /// Unsigned, from a minimum: `scale × value + minimum`, a minimum for each group, output by output.
    Minima(Vec<f32>),
}

/// Integers in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// How many weights share a scale.
    pub group: Group,
    /// The integers' width.
    pub bits: Bits,
    /// `[outputs, inputs]`.
    pub values: Vec<u8>,
    /// `[outputs, groups]`.
    pub scales: Vec<f32>,
    /// Where the integers count from.
    pub origin: Origin,
}

impl Group {
    /// Weights of a group.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Of32 => 32,
            Self::Of128 => 128,
        }
    }
}

impl Bits {
    /// Integers of a byte.
    #[must_use]
    pub fn per_byte(self) -> usize {
        match self {
            Self::Four => 2,
            Self::Eight => 1,
        }
    }

    /// The largest unsigned integer.
    pub(crate) fn most(self) -> u8 {
        match self {
            Self::Four => 15,
            Self::Eight => u8::MAX,
        }
    }

    /// The largest signed one.
    fn most_signed(self) -> f32 {
        f32::from(self.most() / 2)
    }

    /// Integers as bytes; an odd one out has its byte alone.
    #[must_use]
    pub fn pack(self, values: impl Iterator<Item = u8>) -> Vec<u8> {
        let values: Vec<u8> = values.collect();
        match self {
            Self::Four => {
                let byte = |pair: &[u8]| (pair[0] & 15) | pair.get(1).map_or(0, |high| high << 4);
                values.chunks(2).map(byte).collect()
            }
            Self::Eight => values,
        }
    }

    /// The unsigned integer at `index`.
    fn unsigned(self, values: &[u8], index: usize) -> u8 {
        match self {
            Self::Four => (values[index / 2] >> (index % 2 * 4)) & 15,
            Self::Eight => values[index],
        }
    }

    /// The same bits in two's complement: the shifts extend the sign.
    fn signed(self, value: u8) -> i8 {
        match self {
            Self::Four => ((value << 4) as i8) >> 4,
            Self::Eight => value as i8,
        }
    }
}

impl Grouped {
    /// No weights yet.
    pub(super) fn new(inputs: usize, group: Group, bits: Bits, origin: Origin) -> Result<Self, WeightsError> {
        if !inputs.is_multiple_of(group.size()) {
            return Err(WeightsError::Group { inputs, group: group.size() });
        }
        Ok(Self { group, bits, values: Vec::new(), scales: Vec::new(), origin })
    }

    pub(super) fn push_row(&mut self, row: &[f32]) {
        for group in row.chunks_exact(self.group.size()) {
            let (least, most) = group
                .iter()
                .fold((f32::MAX, f32::MIN), |(least, most), weight| (least.min(*weight), most.max(*weight)));
            let steps = f32::from(self.bits.most());
            let scale = match &mut self.origin {
                Origin::Zero => usable(least.abs().max(most.abs()) / self.bits.most_signed()),
                Origin::Points(points) => {
                    // Zero is among them: a weight that is exactly zero stays so.
                    let scale = step(least.min(0.0), most.max(0.0), steps);
                    points.push((-least.min(0.0) / scale).round().clamp(0.0, steps) as u8);
                    scale
                }
                Origin::Minima(minima) => {
                    minima.push(least);
                    step(least, most, steps)
                }
            };
            let values: Vec<u8> = group.iter().map(|weight| self.nearest(*weight, scale)).collect();
            self.values.extend(self.bits.pack(values.into_iter()));
            self.scales.push(scale);
        }
    }

    /// The integer of the newest group that is nearest to a weight.
    fn nearest(&self, weight: f32, scale: f32) -> u8 {
        let (most, signed) = (f32::from(self.bits.most()), self.bits.most_signed());
        match &self.origin {
            Origin::Zero => (weight / scale).round().clamp(-signed, signed) as i8 as u8,
            Origin::Points(points) => {
                let point = points.last().map_or(0.0, |point| f32::from(*point));
                ((weight / scale).round() + point).clamp(0.0, most) as u8
            }
            Origin::Minima(minima) => {
                let least = minima.last().copied().unwrap_or_default();
                (weight / scale - least / scale).round().clamp(0.0, most) as u8
            }
        }
    }

    pub(super) fn check(&self, inputs: usize, outputs: usize) -> Result<(), WeightsError> {
        let groups = outputs.saturating_mul(inputs / self.group.size());
        let bytes = outputs.saturating_mul(inputs / self.bits.per_byte());
        check_length("bytes of integers", bytes, self.values.len())?;
        check_length("scales", groups, self.scales.len())?;
        match &self.origin {
            Origin::Zero => Ok(()),
            Origin::Points(points) => {
                check_length("zero points", groups, points.len())?;
                match points.iter().find(|point| **point > self.bits.most()) {
                    Some(&found) => Err(WeightsError::ZeroPoint { found, most: self.bits.most() }),
                    None => Ok(()),
                }
            }
            Origin::Minima(minima) => {
                check_length("minima", groups, minima.len())?;
                match minima.iter().position(|minimum| !minimum.is_finite()) {
                    Some(group) => Err(WeightsError::NotFinite { output: group * outputs / groups }),
                    None => Ok(()),
                }
            }
        }
    }

    /// The integers that zero is, or is nearest to: a point for each group. Nothing if integers are signed.
    pub(crate) fn zero_points(&self) -> Option<Vec<u8>> {
        match &self.origin {
            Origin::Zero => None,
            Origin::Points(points) => Some(points.clone()),
            Origin::Minima(minima) => {
                let most = f32::from(self.bits.most());
                // A group of equal weights has a scale of zero, and any point does.
                let point = |(scale, minimum): (&f32, &f32)| match *scale {
                    0.0 => 0,
                    scale => (-minimum / scale).round().clamp(0.0, most) as u8,
                };
                Some(self.scales.iter().zip(minima).map(point).collect())
            }
        }
    }

    /// What zero points leave over of minima: `minimum + scale × point`, `[outputs, groups]`. Nothing if there are none.
    pub(crate) fn rests(&self) -> Option<Vec<f32>> {
        let (Origin::Minima(minima), Some(points)) = (&self.origin, self.zero_points()) else { return None };
        let rest = |((scale, minimum), point): ((&f32, &f32), u8)| {
            (f64::from(*minimum) + f64::from(*scale) * f64::from(point)) as f32
        };
        Some(self.scales.iter().zip(minima).zip(points).map(rest).collect())
    }

    /// Bytes of integers, zero points and rests.
    pub(super) fn bytes(&self) -> usize {
        let points = |count: usize| count.div_ceil(self.bits.per_byte());
        self.values.len()
            + match &self.origin {
                Origin::Zero => 0,
                Origin::Points(all) => points(all.len()),
                Origin::Minima(minima) => points(minima.len()) + 4 * minima.len(),
            }
    }

    pub(super) fn row(&self, output: usize, row: &mut [f32]) {
        let first_group = output * row.len() / self.group.size();
        let values = &self.values[output * row.len() / self.bits.per_byte()..];
        for (index, weight) in row.iter_mut().enumerate() {
            let group = first_group + index / self.group.size();
            let (value, scale) = (self.bits.unsigned(values, index), self.scales[group]);
            *weight = match &self.origin {
                Origin::Zero => scale * f32::from(self.bits.signed(value)),
                Origin::Points(points) => scale * (f32::from(value) - f32::from(points[group])),
                Origin::Minima(minima) => scale * f32::from(value) + minima[group],
            };
        }
    }
}

/// How far apart two weights are, divided into `steps`. They may be as far apart as single precision does not say.
fn step(least: f32, most: f32, steps: f32) -> f32 {
    usable(((f64::from(most) - f64::from(least)) / f64::from(steps)) as f32)
}
