//! Runs a toolchain in a process of its own, by way of `run.py`.

use crate::cases::Case;
use duet_graphs::reference;
use duet_testing::Need;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a case's folder holds.
pub(crate) type Files = Vec<(&'static str, Vec<u8>)>;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Toolchain {
    OpenVino,
    OnnxRuntime,
    Qnn,
}

impl Toolchain {
    fn name(self) -> &'static str {
        match self {
            Self::OpenVino => "openvino",
            Self::OnnxRuntime => "onnxruntime",
            Self::Qnn => "qnn",
        }
    }

    /// Whether it ran: else it is not installed.
    fn run(self, folder: &Path) -> bool {
        let Some(installed) = duet_testing::path(Need::Runtimes) else { return false };
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/toolchains/run.py");
        let mut python = Command::new("python3");
        let output = python.arg(script).arg(self.name()).arg(folder).env("PYTHONPATH", installed).output();
        let output = output.expect("python3 runs the toolchains");
        if output.status.code() == Some(NOT_INSTALLED) {
            duet_testing::skip(Need::Runtimes, String::from_utf8_lossy(&output.stdout).trim());
            return false;
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        true
    }
}

/// Emits the cases, runs them and compares each output with the reference: the root mean square of the differences, in
/// root mean squares of the output, is at most `tolerance`.
pub(crate) fn check(toolchain: Toolchain, cases: Vec<Case>, tolerance: f64, emit: impl Fn(&Case) -> Files) {
    let folder = tempfile::tempdir().unwrap();
    for case in &cases {
        let path = folder.path().join(case.name);
        std::fs::create_dir(&path).unwrap();
        for (name, bytes) in emit(case) {
            std::fs::write(path.join(name), bytes).unwrap();
        }
        for (port, input) in case.block.inputs().iter().zip(&case.inputs) {
            let bytes: Vec<u8> = input.iter().flat_map(|value| value.to_le_bytes()).collect();
            std::fs::write(path.join(format!("in.{}", port.name)), bytes).unwrap();
        }
    }
    if toolchain.run(folder.path()) {
        for case in &cases {
            compare(toolchain, case, &folder.path().join(case.name), tolerance);
        }
    }
}

fn compare(toolchain: Toolchain, case: &Case, path: &Path, tolerance: f64) {
    let inputs: Vec<&[f32]> = case.inputs.iter().map(Vec::as_slice).collect();
    let expected = reference::run(&case.block, case.rows, &inputs).unwrap();
    for (port, expected) in case.block.outputs().iter().zip(expected) {
        let bytes = std::fs::read(path.join(format!("out.{}", port.name))).unwrap();
        let found: Vec<f32> =
            bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(found.len(), expected.len());
        let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
        let difference = squares(&mut found.iter().zip(&expected).map(|(f, e)| f64::from(*f) - f64::from(*e)));
        let error = (difference / squares(&mut expected.iter().map(|value| f64::from(*value)))).sqrt();
        println!("{} {} {}: error {error:.1e}", toolchain.name(), case.name, port.name);
        assert!(error <= tolerance, "{} {} {}: {error}", toolchain.name(), case.name, port.name);
    }
}

const NOT_INSTALLED: i32 = 3;
