//! Four bits in groups along the inputs, a scale and perhaps a zero point for each group.

use super::{WeightsError, check_length, usable};

/// How many weights share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// 32: as GGUF has them.
    Of32,
    /// 128: as accelerators' toolchains like them.
    Of128,
}

/// What the four bits are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sign {
    /// −8 to 7; a weight is `scale × value`.
    Signed,
    /// 0 to 15; a weight is `scale × (value − zero point)`, with one zero point per group, output by output.
    Unsigned(Vec<u8>),
}

/// Two weights a byte, the first one in the low half.
#[derive(Clone, Debug, PartialEq)]
pub struct Int4 {
    /// How many weights share a scale.
    pub group: Group,
    /// `[outputs, inputs / 2]`.
    pub values: Vec<u8>,
    /// `[outputs, groups]`.
    pub scales: Vec<f32>,
    /// What the four bits are.
    pub sign: Sign,
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

impl Int4 {
    /// No weights yet.
    pub(super) fn new(inputs: usize, group: Group, sign: Sign) -> Result<Self, WeightsError> {
        if !inputs.is_multiple_of(group.size()) {
            return Err(WeightsError::Group { inputs, group: group.size() });
        }
        Ok(Self { group, values: Vec::new(), scales: Vec::new(), sign })
    }

    /// The zero points of unsigned weights: `[outputs, groups]`.
    #[must_use]
    pub fn zero_points(&self) -> Option<&[u8]> {
        match &self.sign {
            Sign::Signed => None,
            Sign::Unsigned(points) => Some(points),
        }
    }

    pub(super) fn push_row(&mut self, row: &[f32]) {
        for group in row.chunks_exact(self.group.size()) {
            match &mut self.sign {
                Sign::Signed => {
                    let largest = group.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
                    let scale = usable(largest / 7.0);
                    let value = |weight: &f32| (weight / scale).round().clamp(-7.0, 7.0) as i8 as u8;
                    self.scales.push(scale);
                    self.values.extend(pack(group.iter().map(value)));
                }
                Sign::Unsigned(points) => {
                    // Zero is among them: a weight that is exactly zero stays so.
                    let (least, most) = group
                        .iter()
                        .fold((0.0_f32, 0.0_f32), |(least, most), weight| (least.min(*weight), most.max(*weight)));
                    let scale = usable(most / 15.0 - least / 15.0);
                    let point = (-least / scale).round().clamp(0.0, 15.0);
                    let value = |weight: &f32| ((weight / scale).round() + point).clamp(0.0, 15.0) as u8;
                    points.push(point as u8);
                    self.scales.push(scale);
                    self.values.extend(pack(group.iter().map(value)));
                }
            }
        }
    }

    pub(super) fn check(&self, inputs: usize, outputs: usize) -> Result<(), WeightsError> {
        let groups = outputs.saturating_mul(inputs / self.group.size());
        check_length("bytes of two weights", outputs.saturating_mul(inputs / 2), self.values.len())?;
        check_length("scales", groups, self.scales.len())?;
        let Some(points) = self.zero_points() else { return Ok(()) };
        check_length("zero points", groups, points.len())?;
        match points.iter().find(|point| **point > 15) {
            Some(&found) => Err(WeightsError::ZeroPoint { found }),
            None => Ok(()),
        }
    }

    pub(super) fn row(&self, output: usize, row: &mut [f32]) {
        let first_group = output * row.len() / self.group.size();
        let bytes = &self.values[output * row.len() / 2..];
        for (index, weight) in row.iter_mut().enumerate() {
            let nibble = (bytes[index / 2] >> (index % 2 * 4)) & 15;
            let group = first_group + index / self.group.size();
            let value = match &self.sign {
                // The shifts extend the sign.
                Sign::Signed => ((nibble << 4) as i8) >> 4,
                Sign::Unsigned(points) => nibble as i8 - points[group] as i8,
            };
            *weight = self.scales[group] * f32::from(value);
        }
    }
}

/// Two values a byte, the first one in the low half; an odd one out has its byte alone.
pub(crate) fn pack(values: impl Iterator<Item = u8>) -> Vec<u8> {
    let values: Vec<u8> = values.collect();
    values.chunks(2).map(|pair| (pair[0] & 15) | pair.get(1).map_or(0, |high| high << 4)).collect()
}
