//! Inferences that are started: words, results, errors, and handles that are dropped or forgotten meanwhile.

use super::graphs::shaped;
use super::{cpu, exact, product};
use crate::compiled::CompiledGraph;
use crate::device::Device;
use duet_runtimes::Error;
use duet_runtimes::product::{reference, whole_numbers};
use duet_runtimes::{Buffer, Tensors};
use duet_types::Nanos;
use std::sync::Arc;
use std::sync::mpsc::channel;

const SIZE: usize = 256;

/// Longer than any inference here takes on a machine that does other things as well.
const PATIENCE: Nanos = Nanos(60_000_000_000);

struct Square {
    graph: CompiledGraph,
    x: Arc<Buffer>,
    expected: Vec<f32>,
}

impl Square {
    fn new(cpu: &Device) -> Self {
        let (weights, x) = (whole_numbers(SIZE * SIZE, 5), whole_numbers(SIZE * SIZE, 3));
        let expected = reference(&x, &weights, SIZE);
        Self { graph: product(cpu, Some(SIZE), SIZE, &weights), x: Arc::new(Buffer::from(&*x)), expected }
    }

    fn tensors(&self) -> Tensors {
        Tensors { inputs: vec![Arc::clone(&self.x)], outputs: vec![Buffer::zeroed(SIZE * SIZE)] }
    }
}

#[test]
fn a_request_is_started_again_and_again() {
    let Some(cpu) = cpu() else { return };
    let square = Square::new(&cpu);
    let mut request = square.graph.request().unwrap();
    for _ in 0..5 {
        let (sender, words) = channel();
        let running = request.start_then(square.tensors(), move || sender.send(()).unwrap()).unwrap();
        words.recv().unwrap();
        assert!(running.is_done());
        let finished = running.wait_for(PATIENCE).unwrap();
        assert_eq!(*finished.outputs[0], square.expected);
        assert!(words.recv().is_err(), "there is one word");
        // Sharing has ended, so that the caller may write its input again.
        assert_eq!(Arc::strong_count(&square.x), 1);
        request = finished.request;
    }
}

#[test]
fn several_inferences_are_under_way_at_once() {
    let Some(cpu) = cpu() else { return };
    let square = Square::new(&cpu);
    let start = |_| square.graph.request().unwrap().start(square.tensors()).unwrap();
    let running: Vec<_> = (0..4).map(start).collect();
    for running in running {
        assert_eq!(*running.wait().unwrap().outputs[0], square.expected);
    }
}

/// The device writes on after the handle is gone. Were its memory freed, the buffers that follow would lie there and be
/// overwritten.
#[test]
fn memory_stays_with_the_device_when_the_handle_goes() {
    let Some(cpu) = cpu() else { return };
    let square = Square::new(&cpu);
    for round in 0..20 {
        let running = square.graph.request().unwrap().start(square.tensors()).unwrap();
        if round % 4 == 0 {
            std::mem::forget(running);
        } else {
            drop(running);
        }
        let next: Vec<_> = (0..4).map(|_| Buffer::zeroed(SIZE * SIZE)).collect();
        let finished = square.graph.request().unwrap().start(square.tensors()).unwrap().wait().unwrap();
        assert_eq!(*finished.outputs[0], square.expected);
        assert!(next.iter().all(|buffer| buffer.iter().all(|&value| value == 0.0)));
    }
}

/// A word that is not taken keeps the device's one thread busy, as a driver that hangs would: the inference behind it
/// is left to the device, and what it uses comes back when the device goes on.
#[test]
fn an_inference_that_hangs_is_left() {
    let Some(cpu) = cpu() else { return };
    let square = Square::new(&cpu);
    let (release, hold) = channel::<()>();
    // It ends when the sender goes.
    let then = move || {
        let _ = hold.recv();
    };
    let holding = square.graph.request().unwrap().start_then(square.tensors(), then).unwrap();
    let hanging = square.graph.request().unwrap().start(square.tensors()).unwrap();
    let error = hanging.wait_for(Nanos(20_000_000)).unwrap_err();
    assert!(matches!(error, Error::Hung { limit: Nanos(20_000_000) }), "{error}");
    assert!(Arc::strong_count(&square.x) > 1, "the device still has the input");
    drop(release);
    assert_eq!(*holding.wait_for(PATIENCE).unwrap().outputs[0], square.expected);
    let next = square.graph.request().unwrap().start(square.tensors()).unwrap().wait_for(PATIENCE).unwrap();
    assert_eq!(*next.outputs[0], square.expected);
    // Without a limit of its own: the test harness has one.
    while Arc::strong_count(&square.x) > 1 {
        std::thread::yield_now();
    }
}

/// What a graph finds wrong when it runs is told by `wait`, with the word as for a good end.
#[test]
fn an_inference_that_fails_says_why() {
    let Some(cpu) = cpu() else { return };
    let square = shaped("Reshape", "opset1", &[vec![4, 4]], &[4, 4]);
    let graph = cpu.compile(&square.ir(), &exact()).unwrap();
    let tensors = |rows: usize| {
        let outputs = vec![Buffer::zeroed(16)];
        Tensors { inputs: vec![Arc::new(Buffer::zeroed(rows * 4))], outputs }
    };
    let (sender, words) = channel();
    let running = graph.request().unwrap().start_then(tensors(3), move || sender.send(()).unwrap()).unwrap();
    words.recv().unwrap();
    let error = running.wait().unwrap_err();
    assert!(matches!(&error, Error::Refused { message, .. } if message.contains("eshape")), "{error}");
    graph.request().unwrap().start(tensors(4)).unwrap().wait().unwrap();
}

#[test]
fn tensors_that_do_not_fit_are_not_started() {
    let Some(cpu) = cpu() else { return };
    let square = Square::new(&cpu);
    let tensors = Tensors { outputs: vec![Buffer::zeroed(SIZE)], ..square.tensors() };
    let error = square.graph.request().unwrap().start(tensors).unwrap_err();
    assert!(matches!(error, Error::Length { .. }), "{error}");
    assert_eq!(Arc::strong_count(&square.x), 1);
}
