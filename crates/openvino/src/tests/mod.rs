//! With a real runtime, where there is one; without, each test that wants it is skipped.

mod blobs;
mod graph_device;
mod graphs;
mod inference;
mod npu_front_end;
mod options;
mod refusals;
mod self_test;
mod started;

use crate::compiled::CompiledGraph;
use crate::device::Device;
use crate::matmul::MatMul;
use crate::options::{CompileOptions, Precision};
use crate::runtime::Runtime;
use duet_runtimes::Error;

/// The CPU of the runtime, or an excuse.
fn cpu() -> Option<Device> {
    let runtime = match Runtime::load() {
        Err(error) if !matches!(error, Error::Missing(_)) => {
            panic!("a runtime is installed and does not work: {error}")
        }
        runtime => duet_testing::loaded(runtime)?,
    };
    Some(runtime.device("CPU").unwrap())
}

/// A product compiled for exact comparison: a CPU with half-precision units would use them if it were not told.
fn product(cpu: &Device, rows: Option<usize>, inputs: usize, weights: &[f32]) -> CompiledGraph {
    let graph = MatMul::new(rows, inputs, weights.len() / inputs, weights);
    cpu.compile(&graph.ir(), &exact()).unwrap()
}

fn exact() -> CompileOptions {
    CompileOptions { precision: Some(Precision::F32), ..CompileOptions::one_core() }
}
