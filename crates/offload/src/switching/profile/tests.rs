//! Choices and files of profiles, with costs that were never measured.

use super::*;
use duet_scheduler::progressive::{PassTime, Prompt, Trial, Use};
use duet_types::Nanos;
use proptest::prelude::*;

fn subject(model: &str) -> GraphSubject {
    GraphSubject {
        model: model.to_owned(),
        weights: Bytes(7),
        device: "NPU".to_owned(),
        full_name: None,
        architecture: None,
        driver: Some("1.2".to_owned()),
        toolchain: "2026".to_owned(),
        settings: "INFERENCE_NUM_THREADS=1".to_owned(),
        version: "1.2.3".to_owned(),
    }
}

fn shape(rows: u32) -> impl Strategy<Value = ShapeCost> {
    let times = (1_u64..1_000_000, 0_u64..1_000, 0_u64..1_000_000, 0_u64..1_000_000, 1_u64..10_000);
    times.prop_map(move |(empty, per_position, fixed, per_layer, bytes)| ShapeCost {
        rows: Tokens(rows),
        pass: PassTime { empty: Nanos(empty), per_position: Nanos(per_position) },
        load: LoadTime { fixed: Nanos(fixed), per_layer: Nanos(per_layer) },
        bytes: Bytes(bytes),
        compile: Nanos(1),
        samples: 1,
    })
}

fn costs() -> impl Strategy<Value = GraphCosts> {
    let shapes = (shape(16), shape(64), shape(128));
    (1_usize..9, shapes).prop_map(|(layers, (a, b, c))| GraphCosts { layers, measured: 3, shapes: vec![a, b, c] })
}

fn demand() -> impl Strategy<Value = Demand> {
    let uses = prop::collection::vec((1_u32..500, 0_u32..50), 1..3);
    let budget = prop_oneof![
        Just(GraphBudget::SetAndATenth),
        (1_u64..200_000).prop_map(|bytes| GraphBudget::Bytes(Bytes(bytes)))
    ];
    (uses, budget).prop_map(|(uses, budget)| {
        let of = |(rows, passes)| Use { prompt: Prompt { context: Tokens::ZERO, rows: Tokens(rows) }, passes };
        Demand { uses: uses.into_iter().map(of).collect(), budget }
    })
}

/// What a candidate comes to alone; nothing if it does not fit.
fn alone(costs: &GraphCosts, candidate: Candidate, demand: &Demand) -> Option<Nanos> {
    let trial = Trial { blocks: costs.blocks(candidate).unwrap(), uses: demand.uses.clone() };
    choose(&[trial], demand.budget.bytes(costs)).unwrap().map(|choice| choice.best.total)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_choice_is_the_least_total_of_those_that_fit(costs in costs(), demand in demand()) {
        let all: Vec<Candidate> = costs
            .pairs()
            .flat_map(|rows| (1..=costs.layers()).map(move |blocks| Candidate { blocks, rows }))
            .collect();
        let totals = |all: &[Candidate]| -> Vec<Nanos> {
            all.iter().filter_map(|&candidate| alone(&costs, candidate, &demand)).collect()
        };
        let budget = demand.budget.bytes(&costs);
        match GraphProfile::chosen(subject("m"), costs.clone(), demand.clone()) {
            Ok(Swept { profile, choice }) => {
                prop_assert_eq!(profile.blocks().count(), profile.candidate().blocks);
                prop_assert_eq!(alone(&costs, profile.candidate(), &demand), Some(choice.best.total));
                prop_assert!(choice.best.peak <= budget);
                // Not all numbers of blocks are tried, and of those that are none is better.
                let tried: Vec<Candidate> = choice.points.iter().map(|point| point.candidate).collect();
                prop_assert!(totals(&tried).iter().all(|&total| total >= choice.best.total));
                prop_assert!(tried.len() <= all.len());
            }
            Err(GraphProfileError::Budget { needed, .. }) => {
                prop_assert!(totals(&all).is_empty());
                prop_assert!(needed > budget);
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }

    #[test]
    fn a_profile_is_found_again_for_its_own_subject_only(costs in costs(), demand in demand()) {
        let folder = tempfile::tempdir().unwrap();
        let demand = Demand { budget: GraphBudget::SetAndATenth, ..demand };
        let profile = GraphProfile::chosen(subject("A model/with slashes"), costs, demand).unwrap().profile;
        profile.save(folder.path()).unwrap();
        let found = GraphProfile::load(folder.path(), &profile.of);
        prop_assert_eq!(found.as_ref().map(GraphProfile::blocks), Some(profile.blocks()));
        prop_assert_eq!(found, Some(profile.clone()));
        for other in [
            subject("another"),
            GraphSubject { settings: "INFERENCE_NUM_THREADS=2".to_owned(), ..profile.of.clone() },
            GraphSubject { driver: None, ..profile.of.clone() },
        ] {
            // Even where its file would be.
            std::fs::copy(folder.path().join(profile.of.file_name()), folder.path().join(other.file_name())).unwrap();
            prop_assert_eq!(GraphProfile::load(folder.path(), &other), None);
        }
    }
}

#[test]
fn a_damaged_profile_and_one_whose_choice_makes_no_blocks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let pass = PassTime { empty: Nanos(1_000), per_position: Nanos(1) };
    let load = LoadTime { fixed: Nanos(10), per_layer: Nanos(100) };
    let shape = |rows| ShapeCost { rows: Tokens(rows), pass, load, bytes: Bytes(10), compile: Nanos(1), samples: 1 };
    let costs = GraphCosts { layers: 4, measured: 3, shapes: vec![shape(16), shape(32)] };
    let demand = Demand::mixed(Tokens(4096), GraphBudget::SetAndATenth);
    let profile = GraphProfile::chosen(subject("m"), costs, demand).unwrap().profile;
    let path = profile.save(folder.path()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    for damaged in ["", "{", &text[..text.len() / 2], &text.replace("1000", "9000")] {
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(GraphProfile::load(folder.path(), &profile.of), None, "{damaged}");
    }
    // Whole, and nonsense.
    let rows = Pair { prefill: Tokens(16), decode: Tokens(99) };
    GraphProfile { chosen: Candidate { blocks: 2, rows }, ..profile.clone() }.save(folder.path()).unwrap();
    assert_eq!(GraphProfile::load(folder.path(), &profile.of), None);
}

/// Times that make no blocks, since the machine was busy, are no excuse for a budget that is too small.
#[test]
fn a_budget_is_refused_whatever_the_times_are() {
    let pass = PassTime { empty: Nanos(1_000), per_position: Nanos(1 << 40) };
    let load = LoadTime::default();
    let shape = |rows| ShapeCost { rows: Tokens(rows), pass, load, bytes: Bytes(10), compile: Nanos(1), samples: 1 };
    let costs = GraphCosts { layers: 4, measured: 3, shapes: vec![shape(16), shape(32)] };
    let chosen = |bytes| {
        let demand = Demand::mixed(Tokens(4096), GraphBudget::Bytes(Bytes(bytes)));
        GraphProfile::chosen(subject("m"), costs.clone(), demand)
    };
    assert!(matches!(chosen(39), Err(GraphProfileError::Budget { needed: Bytes(40), budget: Bytes(39) })));
    assert!(matches!(chosen(40), Err(GraphProfileError::Blocks(_))));
}

#[test]
fn a_block_costs_its_layers_and_what_loads_have_in_common() {
    let pass = PassTime { empty: Nanos(100), per_position: Nanos(2) };
    let load = LoadTime { fixed: Nanos(50), per_layer: Nanos(7) };
    let shape = |rows| ShapeCost { rows: Tokens(rows), pass, load, bytes: Bytes(10), compile: Nanos(1), samples: 1 };
    let costs = GraphCosts { layers: 5, measured: 3, shapes: vec![shape(16), shape(32)] };
    let rows = Pair { prefill: Tokens(32), decode: Tokens(16) };
    let blocks = costs.blocks(Candidate { blocks: 2, rows }).unwrap();
    assert_eq!(blocks.load(duet_scheduler::progressive::Role::Decode), Nanos(2 * 50 + 5 * 7));
    assert_eq!(blocks.pass(duet_scheduler::progressive::Role::Decode, Tokens(10)), Nanos(5 * (100 + 20)));
    assert_eq!(blocks.bytes(duet_scheduler::progressive::Role::Prefill), Bytes(50));
}

#[test]
fn loads_are_told_from_layers_and_a_disturbed_measurement_is_shared_out() {
    let of = |one, all, layers| {
        let LoadTime { fixed, per_layer } = LoadTime::of(Nanos(one), Nanos(all), layers);
        (fixed.0, per_layer.0)
    };
    assert_eq!(of(30, 50, 3), (20, 10));
    // Less than nothing in common: all of it is the layers'.
    assert_eq!(of(10, 60, 3), (0, 20));
    assert_eq!(of(70, 60, 3), (0, 20));
    assert_eq!(of(60, 60, 3), (0, 20));
    assert_eq!(of(70, 70, 1), (0, 70));
}
