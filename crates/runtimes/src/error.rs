//! What can go wrong between duet and a device.

use crate::find::Missing;
use duet_graphs::ShapeError;
use duet_graphs::onnx::OnnxError;
use duet_types::Nanos;
use std::path::PathBuf;

/// Why something was not done. None of them leaves memory that was lent in the hands of a device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runtime is not installed.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A file that is called like the runtime cannot be loaded.
    #[error("{path}: cannot be loaded: {reason}; install {requirements} again")]
    Load {
        /// The library's file.
        path: PathBuf,
        /// What the system's loader says.
        reason: String,
        /// What brings it.
        requirements: &'static str,
    },
    /// The runtime lacks a function that duet calls.
    #[error("{path}: has no function `{symbol}`; duet needs {requirements}")]
    Symbol {
        /// The library's file.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
        /// What brings it.
        requirements: &'static str,
    },
    /// The toolchain refused a call. Two threads that OpenVINO refuses at the same time may see each other's message:
    /// it has one for the whole process.
    #[error("{call}: {message} (status {status})")]
    Refused {
        /// The toolchain's function.
        call: &'static str,
        /// Its status.
        status: i32,
        /// The toolchain's own words.
        message: String,
    },
    /// The device is gone: its driver was reset or removed. Nothing that was compiled for it will run again.
    #[error("the device is lost: {message}")]
    DeviceLost {
        /// What told it.
        message: String,
    },
    /// Nobody started the inference that was waited for.
    #[error("no inference was started")]
    NotStarted,
    /// The device did not end an inference in time. The tensors stay with it until it does.
    #[error("the device has not answered for {:.0} ms", limit.as_millis_f64())]
    Hung {
        /// How long was waited.
        limit: Nanos,
    },
    /// The runtime has no such device.
    #[error("{runtime} has no device `{name}` here; there are: {available}")]
    NoDevice {
        /// Which runtime.
        runtime: &'static str,
        /// What was asked for.
        name: String,
        /// Those there are.
        available: String,
    },
    /// A text for a toolchain has a zero byte, where it would be taken to end.
    #[error("{what} holds a zero byte")]
    ZeroByte {
        /// What the text is.
        what: &'static str,
    },
    /// What should be a text is none.
    #[error("{what} is not text in UTF-8")]
    NotText {
        /// What it should be.
        what: &'static str,
    },
    /// An inference was given too many or too few tensors.
    #[error("the graph has {wanted} {side}s, {given} were given")]
    Count {
        /// Inputs or outputs.
        side: Side,
        /// How many the graph has.
        wanted: usize,
        /// How many were given.
        given: usize,
    },
    /// A tensor's values do not fill the shape of its port.
    #[error("{side} {index} has the shape {shape}, which {given} values do not fill")]
    Length {
        /// Inputs or outputs.
        side: Side,
        /// Which one.
        index: usize,
        /// The port's shape.
        shape: String,
        /// How many values were given.
        given: usize,
    },
    /// The tensors of an inference have different numbers of rows.
    #[error("{side} {index} has {rows} rows, where what was given before has {before}")]
    Rows {
        /// Inputs or outputs.
        side: Side,
        /// Which one.
        index: usize,
        /// Its rows.
        rows: usize,
        /// The rows of the ports before it, the inputs first.
        before: usize,
    },
    /// A tensor does not begin at a multiple of [`ALIGNMENT`](crate::ALIGNMENT) bytes.
    #[error("{side} {index} does not begin at a multiple of {} bytes", crate::ALIGNMENT)]
    Misaligned {
        /// Inputs or outputs.
        side: Side,
        /// Which one.
        index: usize,
    },
    /// A port has other values than single-precision floats.
    #[error("{side} {index} has the element type {found}; duet lends single-precision floats")]
    Element {
        /// Inputs or outputs.
        side: Side,
        /// Which one.
        index: usize,
        /// The type, as the toolchain tells it.
        found: String,
    },
    /// A port's shape is not one that memory can be lent for.
    #[error("{side} {index} has a shape of unknown rank; give each of its dimensions, `?` where it varies")]
    Rank {
        /// Inputs or outputs.
        side: Side,
        /// Which one.
        index: usize,
    },
    /// A graph of dynamic shape made another shape than the memory lent for its output has.
    #[error("output {index} came out as {came}, where memory for {lent} was lent")]
    OutputShape {
        /// Which one.
        index: usize,
        /// The shape that the graph made.
        came: String,
        /// The shape of the memory.
        lent: String,
    },
    /// The self-test's results are wrong.
    #[error(
        "the self-test's feed-forward block came out wrong: {:.3} % off, where the device's precision explains {:.3} %",
        100.0 * off,
        100.0 * tolerance
    )]
    WrongResult {
        /// How far off: the root mean square of the differences, in that of what was expected.
        off: f64,
        /// How far it may be.
        tolerance: f64,
    },
    /// The device does not take the block, or not in this shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The block has no form in integers.
    #[error(transparent)]
    Integers(#[from] OnnxError),
    /// The device computes in integers, and nobody has said between which numbers the block's values lie.
    #[error("block {block} comes without ranges: the device computes in integers, so calibrate it first")]
    Uncalibrated {
        /// The block.
        block: String,
    },
    /// A graph that was taken up as bytes is not handed over again.
    #[error("the graph was taken up from bytes: keep these")]
    Imported,
    /// A compiled graph could not be handed over: OpenVINO writes it to a file first.
    #[error("a compiled graph could not be written to a temporary file: {0}")]
    Export(#[source] std::io::Error),
    /// The system has no thread for an inference.
    #[error("there is no thread for an inference: {0}")]
    Thread(#[source] std::io::Error),
    /// A device whose graphs hold no attention, or none of this shape.
    #[error("the device takes no attention of this shape: leave that to the CPU")]
    NoAttention,
    /// A compiled graph could not be kept for the next time.
    #[error("a compiled graph could not be kept: {0}")]
    Keep(#[source] std::io::Error),
}

/// One side of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What goes in.
    Input,
    /// What comes out.
    Output,
}

impl Error {
    /// What a toolchain said when it refused `call`. A driver that has lost its device says so in words only.
    #[must_use]
    pub fn refused(call: &'static str, status: i32, message: String) -> Self {
        if LOST.iter().any(|sign| message.contains(sign)) {
            return Self::DeviceLost { message };
        }
        Self::Refused { call, status, message }
    }
}

/// Level Zero's name for it, and OpenCL's.
const LOST: [&str; 2] = ["ZE_RESULT_ERROR_DEVICE_LOST", "CL_DEVICE_NOT_AVAILABLE"];

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_device_is_told_from_a_refusal() {
        let of = |message: &str| Error::refused("ov_infer_request_infer", -1, message.to_owned());
        let lost = of("L0 zeFenceHostSynchronize result: ZE_RESULT_ERROR_DEVICE_LOST, code 0x70000001");
        assert!(matches!(lost, Error::DeviceLost { .. }), "{lost}");
        let refused = of("shape mismatch");
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        assert!(
            refused.to_string().contains("ov_infer_request_infer") && refused.to_string().contains("shape mismatch")
        );
    }
}
