//! What holds of every plan of every planner, over random problems.

use super::blocks::{Block, Blocks, GraphCost, Pair, PassTime, Role};
use super::greedy::{Hiding, Next, Rule, greedy_by};
use super::problem::{Problem, ProblemError, Resident};
use super::progress::{Progress, Todo};
use super::prompt::{Place, Prompt};
use super::timeline::{Computed, Timeline};
use super::*;
use duet_types::{Bytes, Instant, Nanos, Tokens};
use proptest::prelude::*;

fn graph() -> impl Strategy<Value = GraphCost> {
    (0_u64..60, 0_u64..2, 1_u64..150, 1_u64..20).prop_map(|(empty, per_position, load, bytes)| GraphCost {
        pass: PassTime { empty: Nanos(empty * 10), per_position: Nanos(per_position) },
        load: Nanos(load * 10),
        bytes: Bytes(bytes),
    })
}

fn blocks(count: std::ops::Range<usize>) -> impl Strategy<Value = Blocks> {
    let block = (graph(), graph()).prop_map(|(prefill, decode)| Block { prefill, decode });
    (proptest::collection::vec(block, count), 1_u32..9).prop_map(|(blocks, decode)| {
        let rows = Pair { prefill: Tokens(8), decode: Tokens(decode) };
        Blocks::new(rows, blocks).unwrap()
    })
}

fn prompt(rows: std::ops::Range<u32>) -> impl Strategy<Value = Prompt> {
    (0_u32..20, rows).prop_map(|(context, rows)| Prompt { context: Tokens(context), rows: Tokens(rows) })
}

/// Every planner's plan.
fn plans(problem: &Problem<'_>) -> Vec<Plan> {
    let mut plans = vec![synchronous(problem), asynchronous(problem), greedy(problem), just_in_time(problem)];
    plans.push(just_in_time_within(problem, 60));
    for next in [Next::Last, Next::Furthest] {
        for hiding in [Hiding::Whole, Hiding::Part] {
            for from in [Place::START, Place { chunk: 1, block: 0 }] {
                plans.push(greedy_by(problem, Rule { next, hiding, from }));
            }
        }
    }
    plans.extend(exact(problem));
    plans
}

fn all_prefill(blocks: &Blocks) -> Vec<Role> {
    vec![Role::Prefill; blocks.count()]
}

/// Which graphs of a block are resident while it computes, by what was loaded and released until then.
fn is_resident(plan: &Plan, timeline: &Timeline, computed: &Computed) -> bool {
    let block = computed.place.block;
    let initial = plan.initial()[block];
    let of_block = || timeline.loaded.iter().filter(|loaded| loaded.load.block == block);
    let newest = of_block().rfind(|loaded| loaded.until <= computed.from);
    let has = newest.map_or(initial.has(computed.role), |loaded| loaded.load.role == computed.role);
    let is_released = |at: Instant| plan.exchange() == Exchange::InPlace && at < computed.until;
    has && !of_block().any(|loaded| loaded.until > computed.from && is_released(loaded.from))
}

/// The rules that hold of any plan.
fn check(plan: &Plan, blocks: &Blocks) -> Timeline {
    let timeline = Timeline::of(plan, blocks);
    let places: Vec<Place> = timeline.computed.iter().map(|computed| computed.place).collect();
    let count = plan.prompt().chunks(blocks) as usize * blocks.count();
    // Every row passes every block once, in order.
    assert_eq!(places, (0..count).map(|index| Place::at(index, blocks.count())).collect::<Vec<_>>());
    let mut busy = Nanos::ZERO;
    for computed in &timeline.computed {
        let (context, rows) = plan.prompt().chunk(blocks, computed.place.chunk);
        let needed = blocks.time(computed.place.block, computed.role, context, rows);
        assert_eq!(computed.until - computed.from, needed);
        busy += needed;
        assert!(is_resident(plan, &timeline, computed), "{computed:?} of {timeline:?}");
    }
    assert!(
        timeline.computed.windows(2).all(|pair| pair[0].until <= pair[1].from),
        "the lane does one thing at a time"
    );
    assert!(timeline.loaded.windows(2).all(|pair| pair[0].until <= pair[1].from), "there is one channel");
    for (load, loaded) in plan.loads().iter().zip(&timeline.loaded) {
        assert_eq!((*load, blocks.cost(load.block, load.role).load), (loaded.load, loaded.until - loaded.from));
    }
    assert_eq!(plan.loads().len(), timeline.loaded.len());
    assert_eq!(Nanos(timeline.prefilled.0), busy + timeline.stalled);
    timeline
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_plan_keeps_the_rules_and_the_budget(
        blocks in blocks(1..6), prompt in prompt(1..40), spare in 0_u64..30,
    ) {
        let larger = |block| blocks.cost(block, Role::Prefill).bytes.max(blocks.cost(block, Role::Decode).bytes).0;
        let budget = Bytes((0..blocks.count()).map(larger).sum::<u64>() + spare);
        let problem = Problem::new(&blocks, prompt, &all_prefill(&blocks), budget).unwrap();
        for plan in plans(&problem) {
            let timeline = check(&plan, &blocks);
            prop_assert!(timeline.peak <= budget, "{} of {budget}", timeline.peak);
            // Every block is switched exactly once.
            let mut switched: Vec<usize> = plan.loads().iter().map(|load| load.block).collect();
            switched.sort_unstable();
            prop_assert_eq!(switched, (0..blocks.count()).collect::<Vec<_>>());
            prop_assert!(plan.loads().iter().all(|load| load.role == Role::Decode));
        }
        let refused = Problem::new(&blocks, prompt, &all_prefill(&blocks), Bytes(budget.0 - spare - 1));
        prop_assert!(matches!(refused, Err(ProblemError::Budget { .. })), "too small a budget is refused");
    }

    #[test]
    fn no_plan_is_ready_before_the_exact_one(blocks in blocks(1..5), prompt in prompt(1..33)) {
        let problem = Problem::in_place(&blocks, prompt).unwrap();
        let best = Timeline::of(&exact(&problem).unwrap(), &blocks).ready();
        for plan in plans(&problem) {
            prop_assert!(Timeline::of(&plan, &blocks).ready() >= best, "{plan:?}");
        }
    }

    #[test]
    fn the_latest_start_is_never_worse_than_the_papers(blocks in blocks(1..6), prompt in prompt(1..40)) {
        for problem in [Problem::in_place(&blocks, prompt).unwrap(), Problem::beside(&blocks, prompt).unwrap()] {
            let ready = |plan: &Plan| Timeline::of(plan, &blocks).ready();
            for plan in [just_in_time(&problem), just_in_time_within(&problem, 60)] {
                prop_assert!(ready(&plan) <= ready(&greedy(&problem)));
                prop_assert!(ready(&plan) <= ready(&asynchronous(&problem)));
            }
            prop_assert_eq!(just_in_time_within(&problem, usize::MAX), just_in_time(&problem));
        }
    }

    /// Every way to switch each block before one of the chunks, in every order of the loads.
    #[test]
    fn the_exact_plan_is_the_best_of_all(blocks in blocks(1..4), prompt in prompt(1..25)) {
        let problem = Problem::in_place(&blocks, prompt).unwrap();
        let (count, chunks) = (blocks.count(), prompt.chunks(&blocks));
        let mut best = None;
        for order in orders(count) {
            for choice in 0..(chunks + 1).pow(count as u32) {
                let after = |block: usize| choice / (chunks + 1).pow(block as u32) % (chunks + 1);
                let place = |block: usize| match after(block) {
                    0 => Place::START,
                    chunk => Place { chunk: chunk - 1, block }.next(count),
                };
                let loads = order.iter().map(|&block| Load { block, role: Role::Decode, at: place(block) });
                let ready = Timeline::of(&super::baselines::plan(&problem, loads.collect()), &blocks).ready();
                best = best.into_iter().chain([ready]).min();
            }
        }
        prop_assert_eq!(Some(Timeline::of(&exact(&problem).unwrap(), &blocks).ready()), best);
    }

    /// Whenever a plan is abandoned, what is left is what was loaded, and the rest of the prompt can be planned from it.
    #[test]
    fn an_abandoned_plan_leaves_graphs_to_go_on_from(
        blocks in blocks(1..6), prompt in prompt(2..40), events in 0_usize..60, spare in 0_u64..30,
    ) {
        let larger = |block| blocks.cost(block, Role::Prefill).bytes.max(blocks.cost(block, Role::Decode).bytes).0;
        let budget = Bytes((0..blocks.count()).map(larger).sum::<u64>() + spare);
        let problem = Problem::new(&blocks, prompt, &all_prefill(&blocks), budget).unwrap();
        let mut progress = Progress::new(greedy(&problem), &blocks);
        let begun = follow(&mut progress, &blocks, events);
        prop_assert!(progress.bytes(&blocks) <= budget);
        let left = progress.abandon();
        for (block, &role) in left.iter().enumerate() {
            prop_assert_eq!(role == Role::Decode, begun.contains(&block));
        }
        let again = Problem::new(&blocks, prompt, &left, budget).unwrap();
        for plan in [synchronous(&again), asynchronous(&again), greedy(&again), just_in_time(&again)] {
            prop_assert!(check(&plan, &blocks).peak <= budget);
            let mut after: Vec<Role> = left.clone();
            plan.loads().iter().for_each(|load| after[load.block] = load.role);
            prop_assert_eq!(after, vec![Role::Decode; blocks.count()]);
        }
    }

    /// With both graphs there, no plan reads the prompt sooner than on the better one of each.
    #[test]
    fn both_graphs_are_a_bound(blocks in blocks(1..6), prompt in prompt(1..40)) {
        let both = both_resident(&blocks, prompt).unwrap();
        let ideal = check(&both, &blocks);
        prop_assert!(both.initial().iter().all(|&resident| resident == Resident::Both));
        prop_assert_eq!(ideal.peak, blocks.bytes(Role::Prefill) + blocks.bytes(Role::Decode));
        for role in [Role::Prefill, Role::Decode] {
            let one = check(&shared(&blocks, prompt, role).unwrap(), &blocks);
            prop_assert!(one.computed.iter().all(|computed| computed.role == role));
            prop_assert_eq!(one.peak, blocks.bytes(role));
            prop_assert!(one.ready() >= ideal.ready());
        }
        for plan in plans(&Problem::in_place(&blocks, prompt).unwrap()) {
            prop_assert!(Timeline::of(&plan, &blocks).prefilled >= ideal.prefilled);
        }
    }
}

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let shorter = |last: usize| orders(count - 1).into_iter().map(move |order| (order, last));
    match count {
        0 => vec![Vec::new()],
        _ => (0..count)
            .flat_map(|last| shorter(last).collect::<Vec<_>>())
            .map(|(order, at)| {
                let mut order = order;
                order.insert(at, count - 1);
                order
            })
            .collect(),
    }
}

/// Does so many things, loads before computation. Returns the blocks whose loads have begun.
fn follow(progress: &mut Progress, blocks: &Blocks, events: usize) -> Vec<usize> {
    let mut begun = Vec::new();
    let mut computes = false;
    for event in 0..events {
        if progress.due().is_some() {
            begun.push(progress.begin_load().block);
        }
        if !computes && matches!(progress.todo(blocks), Todo::Compute { .. }) {
            progress.begin_compute(blocks);
            computes = true;
        }
        // Either may be the first to end.
        let loads = progress.loading().is_some();
        if loads && (!computes || event % 3 == 0) {
            progress.loaded();
        } else if computes {
            progress.computed();
            computes = false;
        }
    }
    begun
}
