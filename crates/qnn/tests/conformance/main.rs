//! What is emitted for the HTP, compiled by Qualcomm's compiler and run on its emulator (on aarch64: on the HTP).
//!
//! No node may run elsewhere: the provider is the only one in a session, and falling back to the CPU is switched off.
//! Outputs are compared with the reference interpreter: the root mean square of the differences, in root mean squares of
//! the output.

mod blocks;
mod device;
mod models;

use blocks::Case;
use device::{GENERATIONS, device};
use duet_graphs::{LayoutRules, Rows, ShapeError, onnx};
use duet_runtimes::{Buffer, Emitted, Error, Graph, GraphDevice, GraphSource, Tensors};
use duet_types::{Nanos, Tokens};
use std::sync::Arc;
use std::time::Instant;

/// Activations of sixteen bits, and nonlinearities that the HTP rounds once more.
const TOLERANCE: f64 = 1e-3;

/// The emulator is slow.
const LIMIT: Nanos = Nanos(120_000_000_000);

fn run(graph: &mut dyn Graph, case: &Case) -> Result<Vec<Buffer>, Error> {
    let inputs = case.inputs.iter().map(|input| Arc::new(Buffer::from(&**input))).collect();
    let outputs = case.expected.iter().map(|output| Buffer::zeroed(output.len())).collect();
    graph.run(Tensors { inputs, outputs }, LIMIT)
}

fn error(found: &[f32], expected: &[f32]) -> f64 {
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = squares(&mut found.iter().zip(expected).map(|(f, e)| f64::from(*f) - f64::from(*e)));
    (difference / squares(&mut expected.iter().map(|value| f64::from(*value)))).sqrt()
}

/// Compiles the block for each generation, runs it, and takes it up again.
fn conforms(case: &Case, tolerance: f64) {
    for name in GENERATIONS {
        let Some(device) = device(name) else { return };
        let emitted = device.emit(&case.source()).unwrap();
        let start = Instant::now();
        let mut compiled = device.compile_graph(&emitted).unwrap();
        let compile = start.elapsed();
        let start = Instant::now();
        let found = run(&mut *compiled, case).unwrap();
        let ran = start.elapsed();
        let what = format!("{} of {} rows on {name}", case.block.name(), case.rows);
        let errors: Vec<_> = found.iter().zip(&case.expected).map(|(found, expected)| error(found, expected)).collect();
        let blob = compiled.export().unwrap();
        let start = Instant::now();
        let mut imported = device.import_graph(&blob).unwrap();
        println!(
            "{what}: compile {compile:.0?}, run {ran:.0?}, load {:.0?}, {} KiB, errors {errors:.5?}",
            start.elapsed(),
            blob.len() / 1024
        );
        assert!(errors.iter().all(|error| *error <= tolerance), "{what}: {errors:?}");
        assert_eq!(imported.ports(), compiled.ports());
        let again = run(&mut *imported, case).unwrap();
        assert!(found.iter().zip(&again).all(|(found, again)| **found == **again), "{what}: other bits");
    }
}

#[test]
fn qkv_conforms() {
    conforms(&blocks::qkv(Tokens(32)), TOLERANCE);
}

#[test]
fn feed_forward_conforms() {
    conforms(&blocks::feed_forward(Tokens(32)), TOLERANCE);
}

#[test]
fn experts_conform() {
    conforms(&blocks::experts(Tokens(32)), TOLERANCE);
}

#[test]
fn head_conforms() {
    conforms(&blocks::head(Tokens(16), blocks::VOCABULARY), TOLERANCE);
}

/// By the device's rules, before anything is compiled; and by the compiler, for who writes such a model himself.
#[test]
fn rows_that_vary_are_refused() {
    let Some(device) = device("HTP") else { return };
    let case = blocks::qkv(Tokens(16));
    let source = GraphSource { block: &case.block, rows: Rows::Dynamic, ranges: Some(&case.ranges) };
    let refused = device.emit(&source).unwrap_err();
    assert!(matches!(refused, Error::Shape(ShapeError::DynamicRows)), "{refused}");
    let graph = onnx::emit(&case.block, &case.ranges, Rows::Dynamic, &LayoutRules::FREE).unwrap();
    let refused = device.compile_graph(&Emitted { graph, constants: Vec::new() }).unwrap_err();
    assert!(refused.to_string().contains("fallback to CPU EP has been explicitly disabled"), "{refused}");
}

/// The compiler fills tiles itself.
#[test]
fn rows_and_widths_need_not_fill_tiles() {
    let Some(device) = device("HTP") else { return };
    for (rows, vocabulary) in [(1, 50), (17, 1000)] {
        let case = blocks::head(Tokens(rows), vocabulary);
        let mut graph = device.compile_graph(&device.emit(&case.source()).unwrap()).unwrap();
        let found = run(&mut *graph, &case).unwrap();
        assert!(error(&found[0], &case.expected[0]) <= TOLERANCE);
    }
}

#[test]
fn a_session_that_compiled_its_model_itself_gives_the_same_bits() {
    let Some(device) = device("HTP") else { return };
    let case = blocks::qkv(Tokens(32));
    let emitted = device.emit(&case.source()).unwrap();
    let mut context = device.compile_graph(&emitted).unwrap();
    // Whatever is taken up is compiled if it was not before.
    let mut model = device.import_graph(&emitted.graph).unwrap();
    assert_eq!(*run(&mut *context, &case).unwrap()[0], *run(&mut *model, &case).unwrap()[0]);
    assert!(matches!(model.export(), Err(Error::Imported)));
}

#[test]
fn what_is_wrong_is_refused_in_words_and_a_graph_goes_on() {
    let Some(device) = device("HTP") else { return };
    assert!(matches!(device.runtime().device("HTP.v12"), Err(Error::NoDevice { .. })));
    assert!(matches!(device.runtime().device("CPU"), Err(Error::NoDevice { .. })));
    let garbage = device.import_graph(b"no graph").unwrap_err();
    assert!(matches!(&garbage, Error::Refused { message, .. } if message.contains("protobuf")), "{garbage}");
    let case = blocks::qkv(Tokens(16));
    let uncalibrated = GraphSource { ranges: None, ..case.source() };
    assert!(matches!(device.emit(&uncalibrated), Err(Error::Uncalibrated { .. })));
    let mut graph = device.compile_graph(&device.emit(&case.source()).unwrap()).unwrap();
    let tensors = |rows: usize| Tensors {
        inputs: vec![Arc::new(Buffer::zeroed(rows * case.block.inputs()[0].width))],
        outputs: vec![Buffer::zeroed(case.expected[0].len())],
    };
    assert!(matches!(graph.run(tensors(17), LIMIT), Err(Error::Length { index: 0, .. })));
    assert!(matches!(graph.run(Tensors::default(), LIMIT), Err(Error::Count { given: 0, .. })));
    // It takes thousands of times as long; the session is away with the first until that has ended.
    assert!(matches!(graph.run(tensors(16), Nanos(1000)), Err(Error::Hung { .. })));
    assert!(matches!(graph.run(tensors(16), Nanos(1000)), Err(Error::Hung { .. })));
    assert!(error(&run(&mut *graph, &case).unwrap()[0], &case.expected[0]) <= TOLERANCE);
}

#[test]
fn the_device_passes_its_self_test() {
    let Some(device) = device("HTP") else { return };
    let passed = duet_runtimes::self_test(&device).unwrap();
    assert!(passed.compile.0 > 0 && passed.inference.0 > 0 && passed.off > 0.0, "{passed:?}");
    assert!(device.runtime().devices().iter().any(|known| known.info() == device.info()));
}
