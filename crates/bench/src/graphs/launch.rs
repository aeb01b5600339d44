//! What a launch costs: a graph that computes next to nothing, and what several launches take beyond one graph that does
//! the same.

use super::line::{LaunchLine, Line};
use super::random_weights::linear;
use super::{GraphsError, Settings};
use crate::bed::{Bed, Runnable};
use crate::load::Progress;
use crate::samples::median;
use duet_graphs::{Block, BlockBuilder, Rows};
use duet_sim::Random;
use duet_types::{Nanos, Tokens};

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), GraphsError> {
    progress("launches");
    let rows = Rows::Static(ROWS);
    let (one, chain) = (block(1)?, block(CHAIN)?);
    let mut one = Runnable::new(bed.compile(&one, rows)?, &one, ROWS);
    let mut chain = Runnable::new(bed.compile(&chain, rows)?, &chain, ROWS);
    let (mut ones, mut chains, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.samples * LAUNCHES {
        let mut apart = Nanos::ZERO;
        for _ in 0..CHAIN {
            let took = one.run()?;
            ones.push(micros(took));
            apart += took;
        }
        let whole = chain.run()?;
        chains.push(micros(whole));
        beyond.push((micros(apart) - micros(whole)) / (CHAIN - 1) as f64);
    }
    let n = ones.len();
    let line = |setting: String, n, launch_us| Line::Launch(LaunchLine { setting, n, launch_us });
    tell(line(format!("launch, one product of {WIDTH}"), n, median(ones)));
    tell(line(format!("launch, {CHAIN} such products in one graph"), chains.len(), median(chains)));
    tell(line(format!("launch, each beyond the first of {CHAIN}"), beyond.len(), median(beyond)));
    Ok(())
}

/// Some small products, one after the other.
fn block(products: usize) -> Result<Block, GraphsError> {
    let mut random = Random::new(2);
    let (mut builder, [mut value]) = BlockBuilder::new("chain", [("in", WIDTH)]);
    for _ in 0..products {
        value = builder.linear(value, linear(WIDTH, WIDTH, &mut random)?);
    }
    builder.output("out", value);
    Ok(builder.finish()?)
}

fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

/// Large enough that a compiler leaves the products apart, small enough to take no time.
const WIDTH: usize = 32;
const ROWS: Tokens = Tokens(16);
const CHAIN: usize = 16;
/// Chains for each sample.
const LAUNCHES: usize = 100;
