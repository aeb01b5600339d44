//! The NPU's plugin with its front end, which hands its work to the CPU here: no silicon, but the calls, the refusals and
//! the blobs of an NPU.

use super::cpu;
use crate::matmul::MatMul;
use crate::options::{Activations, CompileOptions};
use duet_runtimes::product::{reference, whole_numbers};
use duet_runtimes::{Buffer, DeviceKind};

const INPUTS: usize = 64;
const ROWS: usize = 32;

#[test]
fn static_graphs_compile_run_and_come_back_and_rows_that_vary_are_refused() {
    let Some(cpu) = cpu() else { return };
    let npu = cpu.runtime().npu_front_end_on_cpu().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED));
    assert_eq!(npu.info().kind, DeviceKind::Npu);
    let weights = whole_numbers(INPUTS * INPUTS, 5);
    let varying = MatMul::new(None, INPUTS, INPUTS, &weights);
    assert!(npu.compile(&varying.ir(), npu.options()).is_err());
    let graph = npu.compile(&MatMul::new(Some(ROWS), INPUTS, INPUTS, &weights).ir(), npu.options()).unwrap();
    let imported = npu.import(&graph.export().unwrap(), npu.options()).unwrap();
    let x = Buffer::from(&*whole_numbers(ROWS * INPUTS, 3));
    let results = [graph, imported].map(|graph| {
        let mut y = Buffer::zeroed(ROWS * INPUTS);
        graph.request().unwrap().run(&[&x], &mut [&mut y]).unwrap();
        y.to_vec()
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], reference(&x, &weights, INPUTS));
}
