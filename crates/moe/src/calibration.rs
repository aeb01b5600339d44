//! Offline calibration: how many rows each layer's experts were given, over some texts. (NPUMoE §3.3, §5.8)
//!
//! In each layer of a [`Calibration`] that has experts, every token has gone to as many different ones as it should: counts add
//! up to tokens × chosen, and none is larger than the number of tokens. Some models' first layers have none, and no counts. It
//! is checked when a calibration is made or read.
//!
//! The imbalance ratio is the busiest expert's load over the mean one: the paper's formula is lost in our text, but "1
//! for perfectly balanced routing" and "the busiest expert's capacity is the ratio times the base" leave no other.
//! Overlap@K is said to be a median over layers in §5.1 and a mean in §5.8: here is each layer's, the reader chooses.

use crate::ExpertId;
use std::fmt;

/// Rows that went to an expert, over any number of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Load(pub u64);

/// Loads of a layer's experts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerCounts(Vec<Load>);

/// Counts of all layers over the same tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "Unchecked"))]
pub struct Calibration {
    /// Experts that a token goes to, the shared one not counted.
    chosen: u32,
    tokens: Load,
    layers: Vec<LayerCounts>,
}

/// Why counts are no calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalibrationError {
    /// Nothing was counted.
    Empty,
    /// A layer has neither as many experts as the others nor none, or fewer than tokens go to.
    Experts {
        /// From 0.
        layer: usize,
    },
    /// A layer's counts do not add up to its tokens, or an expert has more of them than there are.
    Counts {
        /// From 0.
        layer: usize,
    },
    /// Two calibrations are of different models.
    Shapes,
}

impl LayerCounts {
    /// Nothing yet.
    #[must_use]
    pub fn none(experts: usize) -> Self {
        Self(vec![Load(0); experts])
    }

    /// Counts that are known, in the experts' order.
    #[must_use]
    pub fn of(loads: Vec<Load>) -> Self {
        Self(loads)
    }

    /// Whether there are experts in the layer.
    #[must_use]
    pub fn has_experts(&self) -> bool {
        !self.0.is_empty()
    }

    /// Counts a row.
    ///
    /// # Panics
    /// If there is no such expert.
    pub fn count(&mut self, expert: ExpertId) {
        self.0[expert.index()].0 += 1;
    }

    /// In the experts' order.
    #[must_use]
    pub fn loads(&self) -> &[Load] {
        &self.0
    }

    /// Rows of all experts together.
    #[must_use]
    pub fn total(&self) -> Load {
        Load(self.0.iter().fold(0, |sum, load| sum.saturating_add(load.0)))
    }

    /// Each expert's part of all rows; equal parts if there are none.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        let total = self.total().0 as f64;
        let share = |load: &Load| if total > 0.0 { load.0 as f64 / total } else { 1.0 / self.0.len() as f64 };
        self.0.iter().map(share).collect()
    }

    /// Experts by load, busiest first; equal ones in their own order.
    #[must_use]
    pub fn popularity(&self) -> Vec<ExpertId> {
        let mut experts: Vec<ExpertId> = (0..self.0.len() as u32).map(ExpertId).collect();
        experts.sort_by_key(|expert| std::cmp::Reverse(self.0[expert.index()]));
        experts
    }

    /// The busiest expert's load over the mean one: 1 is balanced, the number of experts is the most there can be.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        self.shares().into_iter().fold(0.0, f64::max) * self.0.len() as f64
    }

    /// Part of all rows that the `count` busiest experts have.
    #[must_use]
    pub fn busiest_share(&self, count: usize) -> f64 {
        let shares = self.shares();
        self.popularity().iter().take(count).map(|expert| shares[expert.index()]).sum()
    }

    /// Overlap@K: how many of the `k` busiest experts are also among the `k` busiest of `other`, as a part of them.
    #[must_use]
    pub fn overlap(&self, other: &Self, k: usize) -> f64 {
        let (mine, others) = (self.popularity(), other.popularity());
        let k = k.min(mine.len()).min(others.len());
        let both = mine[..k].iter().filter(|expert| others[..k].contains(expert)).count();
        if k == 0 { 1.0 } else { both as f64 / k as f64 }
    }
}

impl Calibration {
    /// Counts of `tokens` tokens, each of which went to `chosen` experts.
    ///
    /// # Errors
    /// If they cannot be.
    pub fn new(chosen: u32, tokens: Load, layers: Vec<LayerCounts>) -> Result<Self, CalibrationError> {
        let experts = layers.iter().map(|counts| counts.0.len()).find(|experts| *experts > 0).unwrap_or(0);
        if tokens.0 == 0 || chosen == 0 || experts == 0 {
            return Err(CalibrationError::Empty);
        }
        let all = u128::from(tokens.0) * u128::from(chosen);
        for (layer, counts) in layers.iter().enumerate().filter(|(_, counts)| counts.has_experts()) {
            if counts.0.len() != experts || experts < chosen as usize {
                return Err(CalibrationError::Experts { layer });
            }
            let sum: u128 = counts.0.iter().map(|load| u128::from(load.0)).sum();
            if sum != all || counts.0.iter().any(|load| *load > tokens) {
                return Err(CalibrationError::Counts { layer });
            }
        }
        Ok(Self { chosen, tokens, layers })
    }

    /// Experts that a token goes to.
    #[must_use]
    pub fn chosen(&self) -> u32 {
        self.chosen
    }

    /// Tokens that were counted.
    #[must_use]
    pub fn tokens(&self) -> Load {
        self.tokens
    }

    /// Experts of a layer that has any.
    #[must_use]
    pub fn experts(&self) -> usize {
        self.layers.iter().map(|layer| layer.0.len()).max().unwrap_or(0)
    }

    /// From the first layer to the last.
    #[must_use]
    pub fn layers(&self) -> &[LayerCounts] {
        &self.layers
    }

    /// Overlap@K of each layer that has experts with another calibration's.
    ///
    /// # Errors
    /// If that has other layers or experts.
    pub fn overlap(&self, other: &Self, k: usize) -> Result<Vec<f64>, CalibrationError> {
        if self.layers.len() != other.layers.len() || self.experts() != other.experts() {
            return Err(CalibrationError::Shapes);
        }
        let layers = self.layers.iter().zip(&other.layers).filter(|(mine, _)| mine.has_experts());
        Ok(layers.map(|(mine, others)| mine.overlap(others, k)).collect())
    }
}

impl fmt::Display for CalibrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "nothing was counted"),
            Self::Experts { layer } => write!(f, "layer {layer} does not have the experts of the other layers"),
            Self::Counts { layer } => write!(f, "the counts of layer {layer} are not those of so many tokens"),
            Self::Shapes => write!(f, "it is of a model with other layers or experts"),
        }
    }
}

impl std::error::Error for CalibrationError {}

/// A calibration as it is read, before it is believed.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
struct Unchecked {
    chosen: u32,
    tokens: Load,
    layers: Vec<LayerCounts>,
}

#[cfg(feature = "serde")]
impl TryFrom<Unchecked> for Calibration {
    type Error = CalibrationError;

    fn try_from(unchecked: Unchecked) -> Result<Self, CalibrationError> {
        Self::new(unchecked.chosen, unchecked.tokens, unchecked.layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::counts;
    use proptest::prelude::*;

    fn layer(loads: &[u64]) -> LayerCounts {
        LayerCounts::of(loads.iter().copied().map(Load).collect())
    }

    #[test]
    fn a_skewed_layer_is_measured() {
        let skewed = layer(&[1, 8, 2, 1]);
        assert!((skewed.imbalance() - 8.0 / 3.0).abs() < 1e-12);
        assert_eq!(skewed.popularity(), [ExpertId(1), ExpertId(2), ExpertId(0), ExpertId(3)]);
        assert!((skewed.busiest_share(2) - 10.0 / 12.0).abs() < 1e-12);
        assert_eq!(skewed.overlap(&layer(&[9, 8, 7, 1]), 2), 0.5);
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        let of =
            |tokens, layers: &[&[u64]]| Calibration::new(2, Load(tokens), layers.iter().map(|l| layer(l)).collect());
        assert!(of(4, &[&[4, 3, 1], &[0, 4, 4]]).is_ok());
        assert_eq!(of(4, &[]), Err(CalibrationError::Empty));
        assert_eq!(of(4, &[&[], &[]]), Err(CalibrationError::Empty));
        assert_eq!(of(0, &[&[0, 0]]), Err(CalibrationError::Empty));
        assert_eq!(of(4, &[&[4, 3, 1], &[4, 4]]), Err(CalibrationError::Experts { layer: 1 }));
        assert_eq!(of(4, &[&[8]]), Err(CalibrationError::Experts { layer: 0 }));
        // Layers without experts are none of these.
        let behind = of(4, &[&[], &[4, 3, 1]]).unwrap();
        assert_eq!((behind.experts(), behind.overlap(&behind, 2)), (3, Ok(vec![1.0])));
        assert_eq!(of(4, &[&[], &[4, 3, 1], &[4, 4]]), Err(CalibrationError::Experts { layer: 2 }));
        assert_eq!(of(4, &[&[4, 3, 0]]), Err(CalibrationError::Counts { layer: 0 }));
        assert_eq!(of(4, &[&[5, 3, 0]]), Err(CalibrationError::Counts { layer: 0 }));
        let (two, three) = (of(4, &[&[4, 4]]).unwrap(), of(4, &[&[4, 4, 0]]).unwrap());
        assert_eq!(two.overlap(&three, 4), Err(CalibrationError::Shapes));
    }

    proptest! {
        #[test]
        fn ratios_keep_their_bounds(mine in counts(1..20), k in 0_usize..24) {
            let experts = mine.loads().len();
            prop_assert!((1.0 - 1e-9..=experts as f64 + 1e-9).contains(&mine.imbalance()));
            prop_assert!((mine.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!(mine.busiest_share(k) <= mine.busiest_share(k + 1) + 1e-12);
            prop_assert_eq!(mine.overlap(&mine, k), 1.0);
        }

        #[test]
        fn overlap_is_mutual_and_of_all_experts_whole((mine, other) in (counts(8..9), counts(8..9)), k in 1_usize..12) {
            prop_assert_eq!(mine.overlap(&other, k), other.overlap(&mine, k));
            prop_assert_eq!(mine.overlap(&other, 8), 1.0);
        }
    }
}
