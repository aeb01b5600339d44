//! Inferences that are waited for at once, on borrowed memory.

use super::graphs::{Graph, shaped, sum};
use super::{cpu, exact, product};
use duet_runtimes::Dimension;
use duet_runtimes::product::{reference, whole_numbers};
use duet_runtimes::{ALIGNMENT, Buffer};
use duet_runtimes::{Error, Side};

#[test]
fn the_cpu_describes_itself() {
    let Some(cpu) = cpu() else { return };
    let devices = cpu.runtime().devices().unwrap();
    assert!(devices.iter().any(|device| device.info() == cpu.info()));
    assert!(cpu.info().full_name.is_some());
}

/// Checked when this is compiled.
#[test]
fn handles_go_between_threads_and_requests_are_used_by_one_at_a_time() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<(crate::Runtime, crate::Device, crate::CompiledGraph, Buffer, Error)>();
    sent::<(crate::InferRequest, crate::Running, crate::Finished, crate::Tensors, Box<dyn crate::Graph>)>();
}

#[test]
fn ports_have_names_and_shapes() {
    let Some(cpu) = cpu() else { return };
    let graph = product(&cpu, None, 8, &whole_numbers(8 * 3, 5));
    assert_eq!((graph.ports().input("x"), graph.ports().output("y")), (Some(0), Some(0)));
    assert_eq!(graph.ports().inputs[0].shape, [Dimension::Any, Dimension::Fixed(8)]);
    assert_eq!(graph.ports().outputs[0].shape, [Dimension::Any, Dimension::Fixed(3)]);
}

/// The same request serves any number of rows, one after the other, and writes what was lent and nothing beside it.
#[test]
fn a_dynamic_graph_is_right_for_any_rows() {
    let Some(cpu) = cpu() else { return };
    const WIDEST: usize = 40;
    let (inputs, outputs) = (24, 16);
    let weights = whole_numbers(inputs * outputs, 5);
    let mut request = product(&cpu, None, inputs, &weights).request().unwrap();
    let x = Buffer::from(&*whole_numbers(WIDEST * inputs, 3));
    let mut y = Buffer::zeroed((WIDEST + 1) * outputs);
    // Up and down, so that each size follows a larger one and a smaller one.
    for rows in (1..=WIDEST).map(|rows| rows * 17 % (WIDEST + 1)).chain((1..=WIDEST).rev()) {
        y.fill(f32::NAN);
        let (lent, beside) = y.split_at_mut(rows * outputs);
        request.run(&[&x[..rows * inputs]], &mut [&mut *lent]).unwrap();
        assert_eq!(*lent, reference(&x[..rows * inputs], &weights, inputs));
        assert!(beside.iter().all(|value| value.is_nan()));
    }
}

/// OpenVINO may compute in place; what was borrowed for reading must not be written all the same.
#[test]
fn inputs_are_not_written() {
    let Some(cpu) = cpu() else { return };
    let graph = cpu.compile(&sum(16).ir(), &exact()).unwrap();
    let (one, other) = (Buffer::from(&*whole_numbers(64, 3)), Buffer::from(&*whole_numbers(64, 5)));
    let mut sum = Buffer::zeroed(64);
    graph.request().unwrap().run(&[&one, &other], &mut [&mut sum]).unwrap();
    assert_eq!(*one, whole_numbers(64, 3));
    assert_eq!(*other, whole_numbers(64, 5));
    assert!(sum.iter().zip(one.iter().zip(&*other)).all(|(sum, (one, other))| *sum == one + other));
}

#[test]
fn requests_run_side_by_side() {
    let Some(cpu) = cpu() else { return };
    let weights = whole_numbers(64 * 64, 5);
    let graph = product(&cpu, Some(32), 64, &weights);
    let run = |step| {
        let x = Buffer::from(&*whole_numbers(32 * 64, step));
        let mut request = graph.request().unwrap();
        for _ in 0..20 {
            let mut y = Buffer::zeroed(32 * 64);
            request.run(&[&x], &mut [&mut y]).unwrap();
            assert_eq!(*y, reference(&x, &weights, 64));
        }
    };
    std::thread::scope(|scope| {
        [1, 3, 5].map(|step| scope.spawn(move || run(step))).map(|thread| thread.join().unwrap())
    });
}

#[test]
fn tensors_that_do_not_fit_are_refused_by_port() {
    let Some(cpu) = cpu() else { return };
    let graph = product(&cpu, Some(4), 16, &whole_numbers(16 * 16, 5));
    let mut request = graph.request().unwrap();
    let (x, mut y) = (Buffer::zeroed(65), Buffer::zeroed(64));
    let error = request.run(&[], &mut [&mut y]).unwrap_err();
    assert!(matches!(error, Error::Count { side: Side::Input, wanted: 1, given: 0 }), "{error}");
    let error = request.run(&[&x], &mut [&mut y]).unwrap_err();
    assert_eq!(error.to_string(), "input 0 has the shape [4, 16], which 65 values do not fill");
    let error = request.run(&[&x[1..]], &mut [&mut y]).unwrap_err();
    assert!(matches!(error, Error::Misaligned { side: Side::Input, index: 0 }), "{error}");
    assert!(error.to_string().contains(&ALIGNMENT.to_string()));
    let error = request.run(&[&x[..64]], &mut [&mut y[..16]]).unwrap_err();
    assert!(matches!(error, Error::Length { side: Side::Output, index: 0, given: 16, .. }), "{error}");
    request.run(&[&x[..64]], &mut [&mut y]).unwrap();
}

#[test]
fn rows_that_disagree_are_refused() {
    let Some(cpu) = cpu() else { return };
    let graph = product(&cpu, None, 16, &whole_numbers(16 * 16, 5));
    let (x, mut y) = (Buffer::zeroed(3 * 16), Buffer::zeroed(6 * 16));
    let mut request = graph.request().unwrap();
    for rows in [1, 6] {
        let error = request.run(&[&x], &mut [&mut y[..rows * 16]]).unwrap_err();
        assert!(matches!(error, Error::Rows { side: Side::Output, before: 3, .. }), "{error}");
    }
    request.run(&[&x], &mut [&mut y[..3 * 16]]).unwrap();
}

/// A graph that drops rows says so only when it runs.
#[test]
fn fewer_rows_than_were_lent_are_an_error() {
    let Some(cpu) = cpu() else { return };
    // All rows but the first, of axis 0.
    let tail: Graph = shaped("Slice", "opset8", &[1, i64::MAX, 1, 0].map(|number| vec![number]), &[-1, 4]);
    let graph = cpu.compile(&tail.ir(), &exact()).unwrap();
    let (x, mut y) = (Buffer::from(&*whole_numbers(12, 3)), Buffer::zeroed(12));
    let error = graph.request().unwrap().run(&[&x], &mut [&mut y]).unwrap_err();
    let Error::OutputShape { index: 0, came, lent } = &error else { panic!("{error}") };
    assert_eq!((came.as_str(), lent.as_str()), ("[2, 4]", "[3, 4]"));
}
