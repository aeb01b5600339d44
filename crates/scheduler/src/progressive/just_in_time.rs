//! The latest start that still hides the loads, and the way back from an earlier switch. (Ours)
//!
//! The paper's rule begins with the first chunk, so that in a long prompt most chunks pass graphs of few rows, which may
//! be slower. Here the relatives of that rule are tried from the latest place on from which the loads can be hidden, and
//! the plan that is ready first is taken; of equals the one whose prompt is read first. Where blocks still have their
//! decode graphs, of an earlier answer or a plan that was abandoned, they keep them or are switched back at first, and the
//! loads back are part of what the plan takes.
//!
//! The paper's own plan is among those that are tried: this one is never ready later. O(starts × places × blocks).

use super::baselines::{asynchronous, plan};
use super::blocks::Role;
use super::greedy::{Hiding, Next, Rule, greedy, loads};
use super::plan::{Load, Plan};
use super::problem::Problem;
use super::prompt::Place;
use super::timeline::readiness;
use duet_types::Nanos;

/// The plan that is ready first.
#[must_use]
pub fn just_in_time(problem: &Problem<'_>) -> Plan {
    best(problem, &starts(problem))
}

/// The plan that is ready first of so few starts that they and their places, multiplied, are no more than `steps`; of two
/// at least. The starts are spread evenly over those of [`just_in_time`], the latest among them.
#[must_use]
pub fn just_in_time_within(problem: &Problem<'_>, steps: usize) -> Plan {
    let all = starts(problem);
    let count = (steps / problem.places().max(1)).clamp(2, STARTS_MAX).min(all.len());
    let some: Vec<Place> = (0..count).map(|index| all[index * all.len() / count]).collect();
    best(problem, &some)
}

fn best(problem: &Problem<'_>, starts: &[Place]) -> Plan {
    let known = [greedy(problem), asynchronous(problem)];
    let all = known.into_iter().chain(relatives(problem, starts));
    all.min_by_key(|plan| readiness(plan, problem.blocks)).unwrap_or_else(|| asynchronous(problem))
}

/// The relatives of the paper's rule, from these places on.
fn relatives<'a>(problem: &'a Problem<'_>, starts: &'a [Place]) -> impl Iterator<Item = Plan> + 'a {
    starts.iter().flat_map(move |&from| {
        let rules = [Next::Last, Next::Furthest]
            .into_iter()
            .flat_map(move |next| [Hiding::Whole, Hiding::Part].map(|hiding| Rule { next, hiding, from }));
        rules.flat_map(move |rule| {
            let stay = plan(problem, loads(problem, rule, problem.unswitched()));
            [Some(stay), back(problem, rule)].into_iter().flatten()
        })
    })
}

/// All blocks are switched back at first, the one that computes first before the others.
fn back(problem: &Problem<'_>, rule: Rule) -> Option<Plan> {
    let switched = (0..problem.blocks.count()).filter(|&block| problem.resident[block] == Role::Decode);
    let mut all: Vec<Load> = switched.map(|block| Load { block, role: Role::Prefill, at: Place::START }).collect();
    if all.is_empty() {
        return None;
    }
    all.extend(loads(problem, rule, (0..problem.blocks.count()).collect()));
    Some(plan(problem, all))
}

/// Places to begin at, the latest first: before the first of them what is left of the prompt takes longer than all loads.
fn starts(problem: &Problem<'_>) -> Vec<Place> {
    let (count, places) = (problem.blocks.count(), problem.places());
    let needed = problem.blocks.load(Role::Decode);
    let mut left = Nanos::ZERO;
    let mut latest = places;
    while latest > 0 && left < needed {
        latest -= 1;
        let place = Place::at(latest, count);
        let (context, rows) = problem.prompt.chunk(problem.blocks, place.chunk);
        left += problem.blocks.time(place.block, Role::Prefill, context, rows);
    }
    // Every place of the rounds before it, and before them the beginnings of chunks.
    let is_tried = |at: &usize| at + ROUNDS * count >= latest || at.is_multiple_of(count);
    (0..=latest).rev().filter(is_tried).take(STARTS_MAX).map(|at| Place::at(at, count)).collect()
}

/// Rounds of all blocks before the latest start in which every place is tried.
const ROUNDS: usize = 2;
/// Starts that are tried at most: with more, a plan would take longer to find than it saves.
const STARTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::baselines::{both_resident, synchronous};
    use super::super::blocks::{Block, Blocks, GraphCost, Pair, PassTime};
    use super::super::progress::Progress;
    use super::super::prompt::Prompt;
    use super::super::timeline::Timeline;
    use super::*;
    use duet_types::{Bytes, Tokens};

    /// Six blocks; eight passes of the decode graph take `slower` times what one of the prefill graph takes, 80.
    fn blocks(slower: u64, load: u64) -> Blocks {
        let cost = |empty| GraphCost {
            pass: PassTime { empty: Nanos(empty), per_position: Nanos(0) },
            load: Nanos(load),
            bytes: Bytes(10),
        };
        let rows = Pair { prefill: Tokens(256), decode: Tokens(32) };
        Blocks::new(rows, vec![Block { prefill: cost(80), decode: cost(10 * slower) }; 6]).unwrap()
    }

    fn prompt(rows: u32) -> Prompt {
        Prompt { context: Tokens(0), rows: Tokens(rows) }
    }

    /// Where decode graphs read three times as slowly, all but the last chunks stay on the prefill graphs.
    #[test]
    fn long_prompts_are_read_on_prefill_graphs() {
        let blocks = blocks(3, 100);
        let problem = Problem::in_place(&blocks, prompt(2048)).unwrap();
        let ready = |plan: &Plan| Timeline::of(plan, &blocks).ready().0;
        let ideal = ready(&both_resident(&blocks, prompt(2048)).unwrap());
        let (ours, papers) = (ready(&just_in_time(&problem)), ready(&greedy(&problem)));
        assert_eq!(ideal, 8 * 6 * 80);
        // The paper's rule has seven of eight chunks on slow graphs; ours leaves two loads for after the prompt.
        assert!(papers > 2 * ideal, "{papers}");
        assert!(ours <= ideal + 200, "{ours}");
        assert!(ready(&synchronous(&problem)) >= ideal + 600);
    }

    /// What an abandoned plan leaves is switched back if that is worth it, and kept if not.
    #[test]
    fn the_next_prompt_begins_with_what_was_left() {
        let blocks = blocks(3, 100);
        let problem = Problem::in_place(&blocks, prompt(512)).unwrap();
        let mut progress = Progress::new(greedy(&problem), &blocks);
        for _ in 0..2 {
            progress.begin_load();
            progress.begin_compute(&blocks);
            progress.computed();
            progress.begin_compute(&blocks);
            progress.loaded();
            progress.computed();
        }
        let left = progress.abandon();
        assert_eq!(left.iter().filter(|&&role| role == Role::Decode).count(), 2);
        let roles = |rows| {
            let problem = Problem::new(&blocks, prompt(rows), &left, Bytes(60)).unwrap();
            let plan = just_in_time(&problem);
            plan.loads().iter().filter(|load| load.role == Role::Prefill).count()
        };
        assert_eq!((roles(32), roles(4096)), (0, 2));
    }
}
