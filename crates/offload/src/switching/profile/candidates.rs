//! Every way to cut a model into blocks, with each pair of shapes that was measured.

use super::GraphProfileError;
use super::costs::GraphCosts;
use super::demand::Demand;
use duet_scheduler::progressive::{Blocks, Candidate, Trial};

/// All candidates, as they are tried for the demand.
pub(super) fn trials(costs: &GraphCosts, demand: &Demand) -> Result<Vec<Trial>, GraphProfileError> {
    let candidates = costs.pairs().flat_map(|rows| {
        let counts = counts(costs.layers());
        counts.into_iter().map(move |blocks| Candidate { blocks, rows })
    });
    candidates.map(|candidate| Ok(Trial { blocks: costs.blocks(candidate)?, uses: demand.uses.clone() })).collect()
}

/// Numbers of blocks, ascending: for each size of a block the least number of blocks that are no larger.
fn counts(layers: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (1..=layers).rev().map(|size| layers.div_ceil(size)).collect();
    counts.dedup();
    counts.retain(|&count| count <= Blocks::COUNT_MAX);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_even_as_can_be() {
        assert_eq!(counts(30), [1, 2, 3, 4, 5, 6, 8, 10, 15, 30]);
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(0), [] as [usize; 0]);
        assert!(counts(200).iter().all(|&count| count <= Blocks::COUNT_MAX));
    }
}
