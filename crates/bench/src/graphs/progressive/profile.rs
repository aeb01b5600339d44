//! What the graphs of each block cost on this device: how long they take to load, and a chunk to pass them. (CoordGen §3.1)

use super::answer::Answering;
use super::{CHUNK, SHAPES};
use crate::graphs::GraphsError;
use crate::graphs::bed::{Bed, timed};
use crate::samples::median;
use duet_offload::switching::Shelf;
use duet_scheduler::progressive::{Block, Blocks, Computed, GraphCost, Pair, PassTime, Prompt, Role, shared};
use duet_types::{Bytes, Nanos, Tokens};

/// What graphs cost, shape by shape.
pub(super) struct Profile {
    shapes: Vec<Shape>,
    samples: usize,
}

/// All blocks' graphs of one number of rows.
struct Shape {
    rows: Tokens,
    costs: Vec<GraphCost>,
}

/// Samples of a block's graphs.
#[derive(Default)]
struct Samples {
    load: Vec<f64>,
    /// Of an early chunk and of a late one.
    chunks: [Vec<f64>; 2],
}

impl Profile {
    /// Loads every block's graphs and reads a prompt on them, shape after shape, so many times.
    pub(super) fn measure(bed: &Bed, shelf: &Shelf, samples: usize) -> Result<Self, GraphsError> {
        let samples = samples.max(1);
        let mut all: Vec<Vec<Samples>> =
            SHAPES.iter().map(|_| (0..shelf.count()).map(|_| Samples::default()).collect()).collect();
        for _ in 0..samples {
            for (&rows, blocks) in SHAPES.iter().zip(&mut all) {
                sample(bed, shelf, rows, blocks)?;
            }
        }
        let shape = |(&rows, blocks): (&Tokens, Vec<Samples>)| {
            let costs =
                blocks.into_iter().enumerate().map(|(block, samples)| samples.cost(rows, shelf.bytes(block, rows)));
            costs.collect::<Option<Vec<_>>>().map(|costs| Shape { rows, costs })
        };
        let shapes = SHAPES.iter().zip(all).map(shape).collect::<Option<_>>().ok_or(GraphsError::NoResult)?;
        Ok(Self { shapes, samples })
    }

    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    /// The blocks with graphs of these rows.
    pub(super) fn blocks(&self, rows: Pair<Tokens>) -> Result<Blocks, GraphsError> {
        let (prefill, decode) = (self.costs(rows.prefill), self.costs(rows.decode));
        let blocks = prefill.iter().zip(decode).map(|(&prefill, &decode)| Block { prefill, decode }).collect();
        Blocks::new(rows, blocks).map_err(GraphsError::Profile)
    }

    /// Loading all blocks' graphs, and what a chunk at the beginning of a prompt takes on them.
    pub(super) fn sums(&self, rows: Tokens) -> (Nanos, Nanos) {
        let costs = self.costs(rows);
        let load = costs.iter().map(|cost| cost.load).sum();
        let starts = || (0..CHUNK.0).step_by(rows.as_usize().max(1));
        let chunk = costs.iter().flat_map(|cost| starts().map(|start| cost.pass.after(Tokens(start)))).sum();
        (load, chunk)
    }

    fn costs(&self, rows: Tokens) -> &[GraphCost] {
        self.shapes.iter().find(|shape| shape.rows == rows).map_or(&[], |shape| &shape.costs)
    }
}

/// One sample of every block's graphs of so many rows.
fn sample(bed: &Bed, shelf: &Shelf, rows: Tokens, blocks: &mut [Samples]) -> Result<(), GraphsError> {
    for (block, samples) in blocks.iter_mut().enumerate() {
        let (load, loaded) = timed(|| shelf.load(block, rows));
        loaded?;
        samples.load.push(load.0 as f64);
    }
    let free = Block { prefill: GraphCost::default(), decode: GraphCost::default() };
    let unknown = Blocks::new(Pair { prefill: CHUNK, decode: rows }, vec![free; shelf.count()]);
    let unknown = unknown.map_err(GraphsError::Profile)?;
    let prompt = bed.text(PROFILED);
    let length = Prompt { context: Tokens::ZERO, rows: Tokens(prompt.len() as u32) };
    let plan = shared(&unknown, length, Role::Decode).map_err(GraphsError::Problem)?;
    let answering = Answering { bed, shelf, output: 0 };
    for Computed { place, from, until, .. } in answering.prefill(&unknown, plan, &prompt)?.computed {
        if let Some(which) = [EARLY, LATE].iter().position(|&chunk| chunk == place.chunk) {
            blocks[place.block].chunks[which].push((until - from).0 as f64);
        }
    }
    Ok(())
}

impl Samples {
    /// What a pass takes after no position, and more for each, so that two chunks of them take what they took.
    fn cost(self, rows: Tokens, bytes: Bytes) -> Option<GraphCost> {
        let [early, late] = self.chunks.map(median);
        let (early, late, load) = (early?, late?, median(self.load)?);
        let rows = f64::from(rows.0);
        let chunk = f64::from(CHUNK.0);
        let passes = chunk / rows;
        let per_position = ((late - early) / (passes * chunk * f64::from(LATE - EARLY))).max(0.0);
        // Positions before the passes of the early chunk, all together.
        let positions = passes * f64::from(EARLY) * chunk + rows * passes * (passes - 1.0) / 2.0;
        let empty = ((early - per_position * positions) / passes).max(0.0);
        let pass = PassTime { empty: Nanos(empty as u64), per_position: Nanos(per_position as u64) };
        Some(GraphCost { pass, load: Nanos(load as u64), bytes })
    }
}

/// The chunks that are compared. The first one of all is left out: the graphs run for the first time then.
const EARLY: u32 = 1;
const LATE: u32 = 3;
/// Tokens that a profile reads.
pub(in crate::graphs) const PROFILED: usize = (LATE as usize + 1) * CHUNK.0 as usize;

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile of chunks that were predicted says what they were predicted with.
    #[test]
    fn a_profile_gives_back_the_costs_of_a_device() {
        let pass = PassTime { empty: Nanos(2_000_000), per_position: Nanos(700) };
        let cost = GraphCost { pass, load: Nanos(5_000_000), bytes: Bytes(9) };
        for rows in SHAPES {
            let blocks =
                Blocks::new(Pair { prefill: CHUNK, decode: rows }, vec![Block { prefill: cost, decode: cost }]);
            let blocks = blocks.unwrap();
            let chunk = |chunk: u32| vec![blocks.time(0, Role::Decode, Tokens(chunk * CHUNK.0), CHUNK).0 as f64];
            let samples = Samples { load: vec![5e6], chunks: [chunk(EARLY), chunk(LATE)] };
            assert_eq!(samples.cost(rows, Bytes(9)), Some(cost), "{rows} rows");
        }
    }
}
