//! Faults by plan, around a device in plain Rust.

use super::fake::{Fake, INPUTS, product};
use crate::buffer::{Buffer, Tensors};
use crate::error::Error;
use crate::faults::{FaultPlan, FaultyDevice};
use crate::graph_device::{Graph, GraphDevice};
use crate::product::{reference, whole_numbers};
use duet_types::Nanos;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Nanos = Nanos(60_000_000_000);
const SHORT: Nanos = Nanos(1_000_000);

fn weights() -> Vec<f32> {
    whole_numbers(8 * INPUTS, 5)
}

fn compile(device: &dyn GraphDevice) -> Result<Box<dyn Graph>, Error> {
    device.compile_graph(&product(&weights()))
}

fn run(graph: &mut dyn Graph, x: &Arc<Buffer>, limit: Nanos) -> Result<Vec<Buffer>, Error> {
    let outputs = vec![Buffer::zeroed(x.len() / INPUTS * 8)];
    graph.run(Tensors { inputs: vec![Arc::clone(x)], outputs }, limit)
}

/// What each inference in a row came to.
fn outcomes(device: &dyn GraphDevice, count: u32, limit: Nanos) -> Vec<&'static str> {
    let mut graph = compile(device).unwrap();
    let x = Arc::new(Buffer::from(&*whole_numbers(3 * INPUTS, 3)));
    let expected = reference(&x, &weights(), INPUTS);
    let outcome = |_| match run(&mut *graph, &x, limit) {
        Ok(outputs) => {
            assert_eq!(*outputs[0], expected);
            "right"
        }
        Err(Error::Refused { .. }) => "refused",
        Err(Error::Hung { .. }) => "hung",
        Err(Error::DeviceLost { .. }) => "lost",
        Err(error) => panic!("{error}"),
    };
    (0..count).map(outcome).collect()
}

#[test]
fn compiling_and_importing_fail_when_planned() {
    let device = FaultyDevice::new(Fake::new(), FaultPlan::default().compile_fails(1).import_fails(0));
    let blob = compile(&device).unwrap().export().unwrap();
    assert!(matches!(compile(&device), Err(Error::Refused { .. })));
    assert!(compile(&device).is_ok());
    assert!(device.import_graph(&blob).is_err());
    assert!(device.import_graph(&blob).is_ok());
}

#[test]
fn a_device_that_vanished_does_nothing_any_more() {
    let device = FaultyDevice::new(Fake::new(), FaultPlan::default().vanishes_before(1));
    let blob = compile(&device).unwrap().export().unwrap();
    assert_eq!(outcomes(&device, 3, PATIENCE), ["right", "lost", "lost"]);
    assert!(matches!(compile(&device), Err(Error::DeviceLost { .. })));
    assert!(matches!(device.import_graph(&blob), Err(Error::DeviceLost { .. })));
}

/// The caller has its input all the while, to compute elsewhere.
#[test]
fn a_hang_keeps_what_it_was_lent_until_it_is_released() {
    let device = FaultyDevice::new(Fake::new(), FaultPlan::default().inference_hangs(0));
    let mut graph = compile(&device).unwrap();
    let x = Arc::new(Buffer::from(&*whole_numbers(3 * INPUTS, 3)));
    let start = Instant::now();
    let error = run(&mut *graph, &x, SHORT).unwrap_err();
    assert!(
        matches!(error, Error::Hung { limit: SHORT }) && start.elapsed() >= Duration::from_nanos(SHORT.0),
        "{error}"
    );
    assert_eq!(Arc::strong_count(&x), 2);
    assert_eq!(*run(&mut *graph, &x, PATIENCE).unwrap()[0], reference(&x, &weights(), INPUTS));
    assert_eq!(Arc::strong_count(&x), 2);
    device.release();
    while Arc::strong_count(&x) > 1 {
        std::thread::yield_now();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is planned, that happens, and nothing else.
    #[test]
    fn the_plan_is_what_happens(
        planned in prop::collection::btree_map(0_u32..12, any::<bool>(), 0..6), gone in prop::option::of(0_u32..12)
    ) {
        let plan = planned.iter().fold(FaultPlan::default(), |plan, (&nth, &hangs)| {
            if hangs { plan.inference_hangs(nth) } else { plan.inference_fails(nth) }
        });
        let plan = gone.into_iter().fold(plan, FaultPlan::vanishes_before);
        let word = |hangs| if hangs { "hung" } else { "refused" };
        let words: BTreeMap<_, _> = planned.iter().map(|(nth, &hangs)| (nth, word(hangs))).collect();
        let expected: Vec<_> = (0..12)
            .map(|nth| match gone {
                Some(gone) if nth >= gone => "lost",
                _ => words.get(&nth).copied().unwrap_or("right"),
            })
            .collect();
        let device = FaultyDevice::new(Fake::new(), plan);
        prop_assert_eq!(outcomes(&device, 12, Nanos(100_000)), expected);
    }
}
