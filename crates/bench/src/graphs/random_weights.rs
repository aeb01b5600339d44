//! Experts of random weights: their speed does not depend on what they have learned.

use super::GraphsError;
use duet_graphs::{Activation, Block, GatedFeed, Linear, LinearWeights, Precision};
use duet_sim::Random;

/// How wide experts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpertShape {
    pub(super) hidden: usize,
    pub(super) inner: usize,
}

/// A group of `experts` experts.
pub(super) fn group(shape: ExpertShape, experts: usize, random: &mut Random) -> Result<Block, GraphsError> {
    let experts = (0..experts).map(|_| expert(shape, random)).collect::<Result<Vec<_>, _>>()?;
    Ok(Block::experts(experts)?)
}

fn expert(shape: ExpertShape, random: &mut Random) -> Result<GatedFeed, GraphsError> {
    let ExpertShape { hidden, inner } = shape;
    Ok(GatedFeed {
        gate: linear(hidden, inner, random)?,
        up: linear(hidden, inner, random)?,
        activation: Activation::Silu,
        down: linear(inner, hidden, random)?,
    })
}

/// A product whose results are about as large as what goes in.
pub(super) fn linear(inputs: usize, outputs: usize, random: &mut Random) -> Result<Linear, GraphsError> {
    let scale = (3.0 / inputs as f64).sqrt();
    let rows =
        (0..outputs).map(|_| (0..inputs).map(|_| ((random.share() * 2.0 - 1.0) * scale) as f32).collect::<Vec<_>>());
    Ok(LinearWeights::from_rows(inputs, Precision::Int8, rows)?.into())
}
