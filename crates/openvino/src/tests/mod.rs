//! With a real runtime, where there is one; without, each test that wants it says that it was skipped.

mod blobs;
mod graph_device;
mod graphs;
mod inference;
mod npu_front_end;
mod refusals;
mod started;

use crate::compiled::CompiledGraph;
use crate::device::Device;
use crate::matmul::MatMul;
use crate::options::{CompileOptions, Precision};
use crate::runtime::Runtime;
use duet_runtimes::Error;
use std::io::Write;

/// The CPU of the runtime, or an excuse.
fn cpu() -> Option<Device> {
    match Runtime::load() {
        Ok(runtime) => Some(runtime.device("CPU").unwrap()),
        Err(Error::Missing(missing)) => {
            assert!(std::env::var_os("DUET_RT").is_none(), "DUET_RT names a folder without a runtime: {missing}");
            // Past the test harness, which would hide it.
            let _ = writeln!(std::io::stderr(), "skipped: {}", missing.to_string().lines().next().unwrap_or_default());
            None
        }
        Err(error) => panic!("a runtime is installed and does not work: {error}"),
    }
}

/// A product compiled for exact comparison: a CPU with half-precision units would use them if it were not told.
fn product(cpu: &Device, rows: Option<usize>, inputs: usize, weights: &[f32]) -> CompiledGraph {
    let graph = MatMul::new(rows, inputs, weights.len() / inputs, weights);
    cpu.compile(&graph.ir(), &exact()).unwrap()
}

fn exact() -> CompileOptions {
    CompileOptions { precision: Some(Precision::F32), ..CompileOptions::one_core() }
}
