//! The self-test on real plugins, set as for serving.

use super::cpu;
use crate::options::{Activations, CompileOptions, Precision};
use duet_runtimes::{Error, GraphDevice, self_test};

/// Each precision is as near as it should be, and what is rounded shows: nothing else is computed than what was asked for.
/// Without VNNI the plugin rounds no activations, whatever it was asked for.
#[test]
fn a_cpu_passes_in_every_precision() {
    let Some(cpu) = cpu() else { return };
    let off = |options| self_test(&cpu.clone().with_options(options)).unwrap().off;
    let floats = CompileOptions::of_blocks(1, Activations::Floats);
    let single = off(floats);
    let half = off(CompileOptions { precision: Some(Precision::F16), ..floats });
    let rounded = off(CompileOptions::of_blocks(1, Activations::ROUNDED));
    println!("single {single:.2e}, half {half:.2e}, activations of eight bits {rounded:.2e}");
    assert!(single < 1e-5 && half < Precision::F16.tolerance(), "single {single}, half {half}");
    if duet_testing::multiplies_bytes() {
        assert!((1e-3..Activations::ROUNDED.tolerance()).contains(&rounded), "rounded {rounded}");
    } else {
        assert_eq!(rounded, single, "the plugin rounds without VNNI now: there is more to test here");
    }
}

/// The CPU behind it computes as it likes, in bfloats where it has them; it is handed halves.
#[test]
fn the_front_end_of_an_npu_passes_with_the_options_of_serving() {
    let Some(cpu) = cpu() else { return };
    let npu = cpu.runtime().npu_front_end_on_cpu().with_options(CompileOptions::of_blocks(2, Activations::ROUNDED));
    let passed = self_test(&npu).unwrap();
    println!("{:.2e} off, {:?}", passed.off, npu.precision());
    assert!(passed.off < 3e-2);
}

#[test]
fn a_device_that_is_coarser_than_it_says_fails() {
    let Some(cpu) = cpu() else { return };
    // It adds in an order of its own, which no processor's single precision hides.
    let cpu = cpu.with_options(CompileOptions::of_blocks(1, Activations::Floats));
    let error = self_test(&Overconfident(cpu)).unwrap_err();
    assert!(matches!(error, Error::WrongResult { off, tolerance } if off > tolerance), "{error}");
}

/// A device that says that it computes to the last bit what the reference interpreter does.
#[derive(Debug)]
struct Overconfident(crate::Device);

impl GraphDevice for Overconfident {
    fn info(&self) -> &duet_runtimes::DeviceInfo {
        self.0.info()
    }

    fn rules(&self) -> duet_graphs::LayoutRules {
        self.0.rules()
    }

    fn toolchain(&self) -> &str {
        self.0.toolchain()
    }

    fn settings(&self) -> String {
        self.0.settings()
    }

    fn tolerance(&self) -> f64 {
        1e-9
    }

    fn emit(&self, source: &duet_runtimes::GraphSource<'_>) -> Result<duet_runtimes::Emitted, Error> {
        self.0.emit(source)
    }

    fn compile_graph(&self, emitted: &duet_runtimes::Emitted) -> Result<Box<dyn duet_runtimes::Graph>, Error> {
        self.0.compile_graph(emitted)
    }

    fn import_graph(&self, blob: &[u8]) -> Result<Box<dyn duet_runtimes::Graph>, Error> {
        self.0.import_graph(blob)
    }
}
