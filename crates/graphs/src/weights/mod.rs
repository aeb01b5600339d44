//! Constant weights of a product, as small integers and scales.
//!
//! `[outputs, inputs]`, an output's inputs side by side. Two forms: signed bytes with one scale per output, which every
//! accelerator's toolchain takes, and four or eight bits in groups along the inputs, each with a scale and, where they are
//! unsigned, a zero point or a minimum. The second holds what files of models hold, to the bit. Shapes agree and scales are
//! finite, checked on construction. What the integers stand for is [`LinearWeights::row`]; whatever else computes with them
//! has to come to the same.

mod grouped;
mod int8;

pub use grouped::{Bits, Group, Grouped, Origin};
pub use int8::Int8;

use duet_types::Bytes;

/// How weights are made integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Eight bits, one scale per output, no zero point.
    Int8,
    /// Eight bits, one scale per group, no zero point.
    Int8Groups(Group),
    /// Four bits, one scale per group, no zero point.
    Int4(Group),
    /// Four bits, one scale and one zero point per group.
    UInt4(Group),
    /// Four bits, one scale and one minimum per group.
    UInt4Minima(Group),
}

/// Why numbers are not weights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeightsError {
    /// A matrix without rows or columns.
    #[error("weights of {outputs} outputs and {inputs} inputs: both are to be at least 1")]
    Empty {
        /// Rows.
        outputs: usize,
        /// Columns.
        inputs: usize,
    },
    /// Inputs that no whole number of groups covers.
    #[error("{inputs} inputs are no whole number of groups of {group}: take another group, or eight bits")]
    Group {
        /// Columns.
        inputs: usize,
        /// Weights of a group.
        group: usize,
    },
    /// A list that is too long or too short.
    #[error("{what}: {found} where the shape has {wanted}")]
    Length {
        /// What is listed.
        what: &'static str,
        /// How many there have to be.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// Infinities, or no numbers.
    #[error("output {output} has a weight or a scale that is not finite")]
    NotFinite {
        /// The row.
        output: usize,
    },
    /// A zero point beyond the integers.
    #[error("a zero point of {found}: the integers are 0 to {most}")]
    ZeroPoint {
        /// The zero point.
        found: u8,
        /// The largest integer.
        most: u8,
    },
}

/// The integers, and what they stand for.
#[derive(Clone, Debug, PartialEq)]
pub enum Quants {
    /// Eight bits, a scale per output.
    Int8(Int8),
    /// Four or eight bits, a scale per group.
    Grouped(Grouped),
}

/// Weights of a product: `[outputs, inputs]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearWeights {
    inputs: usize,
    outputs: usize,
    quants: Quants,
}

impl LinearWeights {
    /// Rounds rows of floats, one per output, to the nearest integers. Takes them one by one, so the whole matrix need
    /// not be there in floats.
    ///
    /// # Errors
    /// If a row has not `inputs` columns, a weight is not finite, or groups do not fit.
    pub fn from_rows<R: AsRef<[f32]>>(
        inputs: usize,
        precision: Precision,
        rows: impl IntoIterator<Item = R>,
    ) -> Result<Self, WeightsError> {
        let mut quants = match precision {
            Precision::Int8 => Quants::Int8(Int8::default()),
            Precision::Int8Groups(group) => Quants::Grouped(Grouped::new(inputs, group, Bits::Eight, Origin::Zero)?),
            Precision::Int4(group) => Quants::Grouped(Grouped::new(inputs, group, Bits::Four, Origin::Zero)?),
            Precision::UInt4(group) => {
                Quants::Grouped(Grouped::new(inputs, group, Bits::Four, Origin::Points(Vec::new()))?)
            }
            Precision::UInt4Minima(group) => {
                Quants::Grouped(Grouped::new(inputs, group, Bits::Four, Origin::Minima(Vec::new()))?)
            }
        };
        let mut outputs = 0;
        for row in rows {
            let row = row.as_ref();
            check_length("columns of a row", inputs, row.len())?;
            if !row.iter().all(|weight| weight.is_finite()) {
                return Err(WeightsError::NotFinite { output: outputs });
            }
            match &mut quants {
                Quants::Int8(int8) => int8.push_row(row),
                Quants::Grouped(grouped) => grouped.push_row(row),
            }
            outputs += 1;
        }
        Self { inputs, outputs, quants }.checked()
    }

    /// Bytes that are there already, with a scale for each output.
    ///
    /// # Errors
    /// If lengths do not fit or a scale is not finite.
    pub fn int8(inputs: usize, quants: Int8) -> Result<Self, WeightsError> {
        Self { inputs, outputs: quants.scales.len(), quants: Quants::Int8(quants) }.checked()
    }

    /// Integers in groups that are there already, with a scale for each group.
    ///
    /// # Errors
    /// If lengths do not fit, a scale or a minimum is not finite, or a zero point is beyond the integers.
    pub fn grouped(inputs: usize, quants: Grouped) -> Result<Self, WeightsError> {
        let group = quants.group.size();
        if !inputs.is_multiple_of(group) {
            return Err(WeightsError::Group { inputs, group });
        }
        let outputs = quants.scales.len().checked_div(inputs / group).unwrap_or(0);
        Self { inputs, outputs, quants: Quants::Grouped(quants) }.checked()
    }

    fn checked(self) -> Result<Self, WeightsError> {
        let Self { inputs, outputs, .. } = self;
        if inputs == 0 || outputs == 0 {
            return Err(WeightsError::Empty { outputs, inputs });
        }
        match &self.quants {
            Quants::Int8(int8) => int8.check(inputs, outputs)?,
            Quants::Grouped(grouped) => grouped.check(inputs, outputs)?,
        }
        let scales = self.quants.scales();
        match scales.iter().position(|scale| !scale.is_finite()) {
            Some(index) => Err(WeightsError::NotFinite { output: index / (scales.len() / outputs) }),
            None => Ok(self),
        }
    }

    /// Columns: what a product takes.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Rows: what a product returns.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The integers and their scales.
    #[must_use]
    pub fn quants(&self) -> &Quants {
        &self.quants
    }

    /// Memory of integers, scales, zero points and what minima leave over.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let integers = match &self.quants {
            Quants::Int8(int8) => int8.values.len(),
            Quants::Grouped(grouped) => grouped.bytes(),
        };
        Bytes((integers + self.quants.scales().len() * 4) as u64)
    }

    /// Writes the weights of one output as floats.
    ///
    /// # Panics
    /// If there is no such output, or `row` has not as many columns as there are inputs.
    pub fn row(&self, output: usize, row: &mut [f32]) {
        assert!(output < self.outputs, "output {output} of {}", self.outputs);
        assert!(row.len() == self.inputs, "{} columns of {}", row.len(), self.inputs);
        match &self.quants {
            Quants::Int8(int8) => int8.row(output, row),
            Quants::Grouped(grouped) => grouped.row(output, row),
        }
    }
}

impl Quants {
    /// The scales, output by output.
    #[must_use]
    pub fn scales(&self) -> &[f32] {
        match self {
            Self::Int8(int8) => &int8.scales,
            Self::Grouped(grouped) => &grouped.scales,
        }
    }
}

fn check_length(what: &'static str, wanted: usize, found: usize) -> Result<(), WeightsError> {
    if wanted == found { Ok(()) } else { Err(WeightsError::Length { what, wanted, found }) }
}

/// `1` where a scale would be too small to divide by: the integers are zero then, and so is what they stand for.
fn usable(scale: f32) -> f32 {
    if scale < f32::MIN_POSITIVE { 1.0 } else { scale }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn floats(weights: &LinearWeights) -> Vec<Vec<f32>> {
        let row = |output| {
            let mut row = vec![0.0; weights.inputs()];
            weights.row(output, &mut row);
            row
        };
        (0..weights.outputs()).map(row).collect()
    }

    #[test]
    fn bytes_have_one_scale_per_output() {
        let rows = [[127.0, -63.5, 0.0], [0.0, 0.0, 0.0]];
        let weights = LinearWeights::from_rows(3, Precision::Int8, rows).unwrap();
        assert_eq!(
            weights.quants(),
            &Quants::Int8(Int8 { values: vec![127, -64, 0, 0, 0, 0], scales: vec![1.0, 1.0] })
        );
        assert_eq!(weights.bytes(), Bytes(6 + 8));
        assert_eq!(floats(&weights), [[127.0, -64.0, 0.0], [0.0; 3]]);
    }

    #[test]
    fn four_bits_lie_low_nibble_first() {
        let row: Vec<f32> = (0..32).map(|i| if i == 1 { -7.0 } else { (i % 8) as f32 }).collect();
        let weights = LinearWeights::from_rows(32, Precision::Int4(Group::Of32), [&row]).unwrap();
        let Quants::Grouped(grouped) = weights.quants() else { panic!("groups were asked for") };
        assert_eq!(grouped.values[..2], [0x90, 0x32]);
        assert_eq!(floats(&weights), [row]);
    }

    #[test]
    fn unsigned_groups_hold_what_has_no_zero_in_the_middle() {
        let row: Vec<f32> = (0..32).map(|i| (i % 16) as f32 - 3.0).collect();
        let weights = LinearWeights::from_rows(32, Precision::UInt4(Group::Of32), [&row]).unwrap();
        let Quants::Grouped(grouped) = weights.quants() else { panic!("groups were asked for") };
        assert_eq!(grouped.origin, Origin::Points(vec![3]));
        assert_eq!(floats(&weights), [row]);
    }

    #[test]
    fn a_group_may_count_from_any_minimum() {
        let row: Vec<f32> = (0..32).map(|i| (i % 16) as f32 * 0.5 + 3.25).collect();
        let weights = LinearWeights::from_rows(32, Precision::UInt4Minima(Group::Of32), [&row]).unwrap();
        let Quants::Grouped(grouped) = weights.quants() else { panic!("groups were asked for") };
        assert_eq!((&grouped.scales, &grouped.origin), (&vec![0.5], &Origin::Minima(vec![3.25])));
        assert_eq!(floats(&weights), [row]);
        // Four and a half bytes of scale, rest and zero point beside the integers.
        assert_eq!(weights.bytes(), Bytes(16 + 4 + 4 + 1));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let none: [&[f32]; 0] = [];
        assert_eq!(
            LinearWeights::from_rows(3, Precision::Int8, none),
            Err(WeightsError::Empty { outputs: 0, inputs: 3 })
        );
        let short = LinearWeights::from_rows(3, Precision::Int8, [[1.0, 2.0]]);
        assert_eq!(short, Err(WeightsError::Length { what: "columns of a row", wanted: 3, found: 2 }));
        let infinite = LinearWeights::from_rows(1, Precision::Int8, [[1.0], [f32::INFINITY]]);
        assert_eq!(infinite, Err(WeightsError::NotFinite { output: 1 }));
        let group = LinearWeights::from_rows(48, Precision::Int4(Group::Of32), [[0.0; 48]]);
        assert_eq!(group, Err(WeightsError::Group { inputs: 48, group: 32 }));
        let scale = LinearWeights::int8(1, Int8 { values: vec![1, 2], scales: vec![1.0, f32::NAN] });
        assert_eq!(scale, Err(WeightsError::NotFinite { output: 1 }));
        let grouped = |origin| {
            let (group, bits) = (Group::Of32, Bits::Four);
            LinearWeights::grouped(32, Grouped { group, bits, values: vec![0; 16], scales: vec![1.0], origin })
        };
        assert_eq!(grouped(Origin::Points(vec![16])), Err(WeightsError::ZeroPoint { found: 16, most: 15 }));
        assert_eq!(grouped(Origin::Minima(vec![f32::NAN])), Err(WeightsError::NotFinite { output: 0 }));
        let none = grouped(Origin::Minima(Vec::new()));
        assert_eq!(none, Err(WeightsError::Length { what: "minima", wanted: 1, found: 0 }));
    }

    proptest! {
        /// Half a step for what is symmetric; a whole one where the zero point was rounded, too.
        #[test]
        fn no_weight_is_off_by_more_than_a_step(
            rows in prop::collection::vec(prop::collection::vec(-9.0_f32..9.0, 128), 1..4),
            precision in prop::sample::select(vec![
                (Precision::Int8, 0.5),
                (Precision::Int8Groups(Group::Of32), 0.5),
                (Precision::Int4(Group::Of32), 0.5),
                (Precision::Int4(Group::Of128), 0.5),
                (Precision::UInt4(Group::Of32), 1.0),
                (Precision::UInt4(Group::Of128), 1.0),
                (Precision::UInt4Minima(Group::Of32), 0.5),
                (Precision::UInt4Minima(Group::Of128), 0.5),
            ]),
        ) {
            let (precision, steps) = precision;
            let weights = LinearWeights::from_rows(128, precision, &rows).unwrap();
            let scales = weights.quants().scales();
            let per_scale = 128 * rows.len() / scales.len();
            let found = floats(&weights).concat();
            for (index, (weight, found)) in rows.concat().iter().zip(found).enumerate() {
                let scale = scales[index / per_scale];
                prop_assert!((weight - found).abs() <= scale * steps * 1.0001, "{weight} became {found}");
            }
        }

        /// Extreme numbers lose precision, but never become something that is not a number.
        #[test]
        fn any_finite_row_has_finite_weights(
            row in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO, 32),
        ) {
            for precision in [
                Precision::Int8,
                Precision::Int8Groups(Group::Of32),
                Precision::Int4(Group::Of32),
                Precision::UInt4(Group::Of32),
                Precision::UInt4Minima(Group::Of32),
            ] {
                let weights = LinearWeights::from_rows(32, precision, [&row]).unwrap();
                prop_assert!(weights.quants().scales().iter().all(|scale| *scale > 0.0));
            }
        }

        /// A minimum is a zero point and a rest of half a step at most, if zero is among the weights.
        #[test]
        fn minima_are_zero_points_and_small_rests(
            groups in prop::collection::vec((prop::sample::select(vec![0.0_f32, 0.01, 0.5]), -15.0_f32..0.0), 1..9),
            bits in prop::sample::select(vec![Bits::Four, Bits::Eight]),
        ) {
            let (scales, minima): (Vec<f32>, Vec<f32>) =
                groups.into_iter().map(|(scale, at)| (scale, if scale == 0.0 { at } else { scale * at })).unzip();
            let values = vec![0; 32 / bits.per_byte() * scales.len()];
            let origin = Origin::Minima(minima.clone());
            let grouped = Grouped { group: Group::Of32, bits, values, scales: scales.clone(), origin };
            let (points, rests) = (grouped.zero_points().unwrap(), grouped.rests().unwrap());
            for (group, (point, rest)) in points.into_iter().zip(rests).enumerate() {
                let (scale, minimum) = (scales[group], minima[group]);
                prop_assert!((rest - scale * f32::from(point) - minimum).abs() <= 1e-6);
                prop_assert!(scale == 0.0 || rest.abs() <= 0.5001 * scale, "{rest} of {scale}");
            }
        }
    }
}
