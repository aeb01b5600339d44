//! What blocks and shapes are chosen for: requests, and the memory that graphs may take.

use super::costs::GraphCosts;
use duet_scheduler::progressive::{Prompt, Use};
use duet_types::{Bytes, Tokens};
use serde::{Deserialize, Serialize};

/// Requests, and memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// The requests; each counts once.
    pub uses: Vec<Use>,
    /// How much graphs may take at once.
    pub budget: GraphBudget,
}

/// How much memory graphs may take, in the bytes that they take in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GraphBudget {
    /// One set of the largest graphs, and a tenth of one: a block more, where the model is cut into ten.
    SetAndATenth,
    /// So much.
    Bytes(Bytes),
}

impl Demand {
    /// Short, medium and long prompts with answers of a paragraph, those that fit in `context`, or one
    /// of half of it.
    #[must_use]
    pub fn mixed(context: Tokens, budget: GraphBudget) -> Self {
        let mut prompts: Vec<Tokens> = PROMPTS.into_iter().filter(|prompt| prompt.0 + ANSWER.0 <= context.0).collect();
        if prompts.is_empty() {
            prompts.push(Tokens((context.0 / 2).max(1)));
        }
        Self::of(prompts.into_iter().map(|prompt| (prompt, ANSWER)), budget)
    }

    /// For prompts of these lengths, each with its answer's; a pass of the decode graph makes one token. Of many requests
    /// the lengths are taken at even steps of their order, so that a choice takes seconds.
    #[must_use]
    pub fn of(requests: impl IntoIterator<Item = (Tokens, Tokens)>, budget: GraphBudget) -> Self {
        let mut uses: Vec<(Tokens, Tokens)> = requests.into_iter().collect();
        uses.sort_unstable();
        let count = uses.len().min(USES_MAX);
        let taken = (0..count).map(|index| uses[(2 * index + 1) * uses.len() / (2 * count)]);
        let of =
            |(rows, answer): (Tokens, Tokens)| Use { prompt: Prompt { context: Tokens::ZERO, rows }, passes: answer.0 };
        Self { uses: taken.map(of).collect(), budget }
    }
}

impl GraphBudget {
    /// How much that is of graphs that cost so.
    #[must_use]
    pub fn bytes(self, costs: &GraphCosts) -> Bytes {
        match self {
            Self::SetAndATenth => costs.set_and_a_tenth(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// As in `duet bench graphs`.
const PROMPTS: [Tokens; 3] = [Tokens(256), Tokens(1024), Tokens(2048)];
/// A paragraph.
const ANSWER: Tokens = Tokens(128);
/// Each is planned for with every candidate.
const USES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_context_has_short_prompts() {
        let rows = |context| {
            let demand = Demand::mixed(Tokens(context), GraphBudget::SetAndATenth);
            demand.uses.iter().map(|request| request.prompt.rows.0).collect::<Vec<_>>()
        };
        assert_eq!(rows(8192), [256, 1024, 2048]);
        assert_eq!(rows(1200), [256, 1024]);
        assert_eq!(rows(100), [50]);
    }

    proptest! {
        #[test]
        fn of_many_requests_a_few_are_taken_that_spread_over_them(lengths in prop::collection::vec(1_u32..5000, 0..200)) {
            let demand = Demand::of(lengths.iter().map(|&length| (Tokens(length), Tokens(1))), GraphBudget::SetAndATenth);
            let taken: Vec<u32> = demand.uses.iter().map(|request| request.prompt.rows.0).collect();
            prop_assert_eq!(taken.len(), lengths.len().min(USES_MAX));
            prop_assert!(taken.is_sorted() && taken.iter().all(|length| lengths.contains(length)));
            if lengths.len() <= USES_MAX {
                let mut all = lengths;
                all.sort_unstable();
                prop_assert_eq!(taken, all);
            }
        }
    }
}
