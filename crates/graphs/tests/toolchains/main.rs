//! What is emitted, run by the toolchains that it is emitted for, and compared with the reference.
//!
//! `DUET_RT` is a folder that they are installed in, with numpy: `scripts/runtimes.sh` does that. Without it, or for a
//! toolchain that is not there, the tests are skipped.

mod cases;
mod toolchain;

use cases::{Case, cases, convolution, groups, minima, rows};
use duet_graphs::{LayoutRules, LinearForm, Rows, calibrate, onnx, openvino};
use toolchain::{Files, Toolchain, check};

/// Sums of a few hundred numbers of single precision, in another order.
const ROUNDING: f64 = 2e-6;

/// Activations of 16 bits.
const QUANTIZED: f64 = 3e-4;

/// The same as the HTP computes them, which also rounds in its nonlinearities.
const HTP: f64 = 4e-3;

fn emitted(case: &Case, rows: Rows, rules: &LayoutRules) -> Files {
    let ir = openvino::emit(&case.block, rows, rules).unwrap();
    vec![("model.xml", ir.xml.into_bytes()), ("model.bin", ir.bin)]
}

#[test]
fn openvino_computes_blocks_of_static_rows() {
    check(Toolchain::OpenVino, cases(), ROUNDING, |case| {
        emitted(case, Rows::Static(rows()), &LayoutRules::STATIC_TILES)
    });
}

#[test]
fn openvino_computes_blocks_of_dynamic_rows() {
    check(Toolchain::OpenVino, cases(), ROUNDING, |case| emitted(case, Rows::Dynamic, &LayoutRules::FREE));
}

#[test]
fn openvino_computes_products_as_convolutions() {
    check(Toolchain::OpenVino, cases(), ROUNDING, |case| emitted(case, Rows::Static(rows()), &convolution()));
    check(Toolchain::OpenVino, cases(), ROUNDING, |case| emitted(case, Rows::Dynamic, &convolution()));
}

#[test]
fn openvino_computes_groups() {
    let all = || groups().into_iter().chain(minima()).collect();
    check(Toolchain::OpenVino, all(), ROUNDING, |case| emitted(case, Rows::Static(rows()), &LayoutRules::FREE));
    check(Toolchain::OpenVino, all(), ROUNDING, |case| emitted(case, Rows::Dynamic, &convolution()));
}

fn quantized(case: &Case, rows: Rows, rules: &LayoutRules) -> Files {
    let inputs: Vec<&[f32]> = case.inputs.iter().map(Vec::as_slice).collect();
    let ranges = calibrate(&case.block, case.rows, &inputs).unwrap();
    vec![("model.onnx", onnx::emit(&case.block, &ranges, rows, rules).unwrap())]
}

#[test]
fn onnx_runtime_computes_integers() {
    let all = || cases().into_iter().chain(groups()).collect();
    check(Toolchain::OnnxRuntime, all(), QUANTIZED, |case| quantized(case, Rows::Static(rows()), &LayoutRules::FREE));
    check(Toolchain::OnnxRuntime, all(), QUANTIZED, |case| quantized(case, Rows::Dynamic, &convolution()));
}

#[test]
fn the_htp_computes_integers() {
    check(Toolchain::Qnn, cases(), HTP, |case| quantized(case, Rows::Static(rows()), &LayoutRules::HTP));
    let convolution = LayoutRules { linear: LinearForm::Convolution, ..LayoutRules::HTP };
    check(Toolchain::Qnn, cases(), HTP, |case| quantized(case, Rows::Static(rows()), &convolution));
}
