//! What real plugins are told of the options that serving wants.

use super::cpu;
use crate::compile::configure;
use crate::device::Device;
use crate::options::{Activations, CompileOptions, Precision};
use crate::runtime::core;
use duet_runtimes::Error;

fn wanted() -> CompileOptions {
    CompileOptions::of_blocks(1, Activations::ROUNDED)
}

/// Tells a core of its own, and asks the plugin something, which makes it read what it was told.
fn told(device: &Device, options: &CompileOptions) -> Result<(), Error> {
    let (runtime, name) = (device.runtime(), std::ffi::CString::new(&*device.info().name).unwrap());
    let core = core(runtime.library())?;
    configure(&core, &name, options)?;
    runtime.property_of(&core, &device.info().name, "SUPPORTED_PROPERTIES").map(drop)
}

#[test]
fn a_cpu_takes_all_that_is_wanted() {
    let Some(cpu) = cpu() else { return };
    let cpu = cpu.with_options(wanted());
    assert_eq!((cpu.options(), cpu.left_out()), (&wanted(), &[][..]));
    assert_eq!(cpu.precision(), Precision::F32);
}

/// The plugin of Intel's NPU throws at threads, groups of activations and single precision: told all that a CPU is told, it
/// compiles nothing.
#[test]
fn an_npus_plugin_is_told_only_what_it_takes() {
    let Some(cpu) = cpu() else { return };
    let npu = cpu.runtime().npu_front_end_on_cpu();
    assert!(told(&npu, &wanted()).is_err(), "it takes everything now: there is nothing to leave out any more");
    let npu = npu.with_options(wanted());
    let options = CompileOptions { npu_front_end: None, ..*npu.options() };
    told(&npu, &options).unwrap();
    assert_eq!(options.to_string(), "NUM_STREAMS=1");
    let left_out: Vec<_> = npu.left_out().iter().map(|left| &*left.option).collect();
    assert_eq!(
        left_out,
        ["INFERENCE_NUM_THREADS=1", "DYNAMIC_QUANTIZATION_GROUP_SIZE=32", "INFERENCE_PRECISION_HINT=f16"]
    );
    let silicon = Device::new(npu.runtime().clone(), npu.info().clone()).with_options(wanted());
    assert_eq!(silicon.precision(), Precision::F16, "it offers no other floats");
    assert!(npu.options().to_string().contains("NPU_USE_NPUW=YES"), "the front end stays");
}

/// What a graph is kept under is what it was compiled with, not what was wanted.
#[test]
fn graphs_are_kept_under_the_options_that_were_taken() {
    use duet_runtimes::GraphDevice;
    let Some(cpu) = cpu() else { return };
    let npu = cpu.runtime().npu_front_end_on_cpu();
    let one = npu.clone().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED)).settings();
    let other = npu.with_options(CompileOptions::of_blocks(7, Activations::Floats)).settings();
    assert_eq!(one, other, "it has no threads and rounds no activations");
    let cpu = |threads| cpu.clone().with_options(CompileOptions::of_blocks(threads, Activations::ROUNDED)).settings();
    assert_ne!(cpu(1), cpu(7));
}
