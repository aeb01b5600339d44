//! The paper's greedy rule: behind which blocks' computation each decode graph is loaded. (CoordGen §3.2, eq. 1-2)
//!
//! The next graph to be loaded is that of the last block that has not been switched. `k` is the least number of blocks
//! whose computation, from here on and on the graphs that they have by then, takes as long as the load:
//!
//! ```text
//! k* = min { k ≥ 1 | T_load(P_j; G²) ≤ Σ T_compute(P_{i+l}; G^x_{i+l}) for l in 0..k }
//! ```
//!
//! These blocks compute while it is loaded, and so on until all are switched. The paper does not say what happens where
//! the block itself, or the end of the prompt, comes before the load is done. Then the load is hidden from the next place
//! at which it can be; what can never be hidden is loaded as the naive asynchronous switch does it.
//!
//! Relatives of the rule ([`Rule`]) take another block, or begin later, or hide a load in part.

use super::baselines::{after_last, load, plan};
use super::blocks::Role;
use super::plan::{Exchange, Load, Plan};
use super::problem::Problem;
use super::prompt::Place;
use duet_types::Nanos;

/// A rule like the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Which block is next.
    pub next: Next,
    /// How much of a load is to be hidden.
    pub hiding: Hiding,
    /// Before this place nothing is loaded.
    pub from: Place,
}

/// Which block is switched next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The last one that has not been switched. (CoordGen §3.2)
    Last,
    /// The one that computes last from now on, or not any more: there is most time for its load. (Ours)
    Furthest,
}

/// How much of a load is to be hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hiding {
    /// All of it. (eq. 1)
    Whole,
    /// As much as there is: where loads take longer than the prompt, waiting for the rest in the middle is no worse than
    /// loading all of it at the end. (Ours)
    Part,
}

impl Rule {
    /// The paper's.
    pub const PAPER: Self = Self { next: Next::Last, hiding: Hiding::Whole, from: Place::START };
}

/// The paper's plan.
#[must_use]
pub fn greedy(problem: &Problem<'_>) -> Plan {
    greedy_by(problem, Rule::PAPER)
}

/// The plan of a rule. O(places × blocks).
#[must_use]
pub fn greedy_by(problem: &Problem<'_>, rule: Rule) -> Plan {
    plan(problem, loads(problem, rule, problem.unswitched()))
}

/// The loads that switch these blocks, in ascending order; the others have their decode graphs.
pub(super) fn loads(problem: &Problem<'_>, rule: Rule, mut unswitched: Vec<usize>) -> Vec<Load> {
    let (count, places) = (problem.blocks.count(), problem.places());
    let mut at = rule.from.index(count);
    let mut loads = Vec::new();
    while at < places && !unswitched.is_empty() {
        let place = Place::at(at, count);
        let next = choose(problem, rule.next, &unswitched, place);
        let block = unswitched[next];
        let window = Window::behind(problem, &unswitched, block, place);
        if window.hides_all || (rule.hiding == Hiding::Part && window.blocks > 0) {
            unswitched.remove(next);
            loads.push(load(block, place));
            at += window.blocks;
        } else {
            at += 1;
        }
    }
    // What is left was never hidden.
    loads.extend(unswitched.into_iter().map(|block| load(block, after_last(problem, block).max(rule.from))));
    loads
}

/// Which of the unswitched is next.
fn choose(problem: &Problem<'_>, next: Next, unswitched: &[usize], place: Place) -> usize {
    let last = unswitched.len() - 1;
    match next {
        Next::Last => last,
        Next::Furthest => {
            let first = |index: &usize| next_use(problem, unswitched[*index], place);
            (0..unswitched.len()).max_by_key(first).unwrap_or(last)
        }
    }
}

/// Where a block computes next, from this place on; the end if it does not any more.
fn next_use(problem: &Problem<'_>, block: usize, place: Place) -> Place {
    let chunk = if block >= place.block { place.chunk } else { place.chunk + 1 };
    (Place { chunk, block }).min(problem.prompt.end(problem.blocks))
}

/// The blocks that compute while a graph is loaded.
struct Window {
    /// How many (`k`).
    blocks: usize,
    /// Whether they take as long as the load.
    hides_all: bool,
}

impl Window {
    /// The least that hides loading `block`'s graph from `place` on, or all there is before it computes itself.
    fn behind(problem: &Problem<'_>, unswitched: &[usize], block: usize, place: Place) -> Self {
        let count = problem.blocks.count();
        let last = match problem.exchange {
            Exchange::InPlace => next_use(problem, block, place),
            Exchange::Beside => problem.prompt.end(problem.blocks),
        };
        let (needed, mut hidden) = (problem.blocks.cost(block, Role::Decode).load, Nanos::ZERO);
        let mut blocks = 0;
        let mut at = place;
        while at < last && (hidden < needed || blocks == 0) {
            let is_switched = unswitched.binary_search(&at.block).is_err();
            let role = if is_switched { Role::Decode } else { Role::Prefill };
            let (context, rows) = problem.prompt.chunk(problem.blocks, at.chunk);
            hidden += problem.blocks.time(at.block, role, context, rows);
            blocks += 1;
            at = at.next(count);
        }
        Self { blocks, hides_all: blocks > 0 && hidden >= needed }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::{Block, Blocks, GraphCost, Pair, PassTime};
    use super::super::prompt::Prompt;
    use super::super::timeline::Timeline;
    use super::*;
    use duet_types::{Bytes, Instant, Tokens};

    /// `count` equal blocks: a chunk of 256 rows takes 10 on either graph, a load takes `load`.
    fn blocks(count: usize, load: u64) -> Blocks {
        let cost = |empty| GraphCost {
            pass: PassTime { empty: Nanos(empty), per_position: Nanos(0) },
            load: Nanos(load),
            bytes: Bytes(1),
        };
        let rows = Pair { prefill: Tokens(256), decode: Tokens(128) };
        Blocks::new(rows, vec![Block { prefill: cost(10), decode: cost(5) }; count]).unwrap()
    }

    fn prompt(rows: u32) -> Prompt {
        Prompt { context: Tokens(0), rows: Tokens(rows) }
    }

    /// Figure 8: six blocks, two chunks, a load behind two blocks. Half of the model is switched with the first chunk.
    #[test]
    fn the_papers_figure() {
        let blocks = blocks(6, 20);
        let problem = Problem::in_place(&blocks, prompt(512)).unwrap();
        let plan = greedy(&problem);
        let loads: Vec<_> = plan.loads().iter().map(|load| (load.block, load.at.chunk, load.at.block)).collect();
        assert_eq!(loads, [(5, 0, 0), (4, 0, 2), (3, 0, 4), (2, 1, 0), (1, 1, 2), (0, 1, 4)]);
        let timeline = Timeline::of(&plan, &blocks);
        assert_eq!((timeline.ready(), timeline.stalled, timeline.peak), (Instant(120), Nanos(0), Bytes(6)));
        let roles = |chunk| {
            let of = timeline.computed.iter().filter(|done| done.place.chunk == chunk);
            of.map(|done| done.role).collect::<Vec<_>>()
        };
        let (p, d) = (Role::Prefill, Role::Decode);
        assert_eq!(roles(0), [p, p, p, p, d, d]);
        assert_eq!(roles(1), [p, p, d, d, d, d]);
    }

    #[test]
    fn a_load_that_is_longer_than_a_round_is_hidden_in_part_only() {
        let blocks = blocks(3, 35);
        let problem = Problem::in_place(&blocks, prompt(1024)).unwrap();
        let whole = Timeline::of(&greedy(&problem), &blocks);
        // Nothing is hidden but what is loaded after a block's last chunk.
        assert_eq!(whole.stalled, Nanos(0));
        assert_eq!(whole.ready(), Instant(100 + 3 * 35));
        let part = greedy_by(&problem, Rule { next: Next::Furthest, hiding: Hiding::Part, from: Place::START });
        let part = Timeline::of(&part, &blocks);
        assert!(part.ready() < whole.ready() && part.stalled > Nanos(0), "{part:?}");
        // With room for a graph more no block waits.
        let problem = Problem::beside(&blocks, prompt(1024)).unwrap();
        let beside = Timeline::of(&greedy(&problem), &blocks);
        assert_eq!((beside.ready(), beside.stalled, beside.peak), (Instant(120), Nanos(0), Bytes(4)));
    }

    #[test]
    fn of_many_loads_those_that_fit_are_hidden() {
        let blocks = blocks(4, 25);
        let problem = Problem::in_place(&blocks, prompt(256)).unwrap();
        let timeline = Timeline::of(&greedy(&problem), &blocks);
        // The last block's load is hidden behind the first three; the others are loaded when the chunk has passed them.
        assert_eq!(timeline.loaded[0].from, Instant(0));
        assert_eq!(timeline.stalled, Nanos(0));
        assert_eq!(timeline.ready(), Instant(25 * 4));
    }
}
