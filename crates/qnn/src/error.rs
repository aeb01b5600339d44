//! Errors of ONNX Runtime as errors of a device.

use duet_runtimes::{Error, ONNX_RUNTIME};
use std::path::Path;

/// What ONNX Runtime said when it refused `call`.
pub(crate) fn refused<R>(call: &'static str, error: ort::Error<R>) -> Error {
    let status = ort::sys::OrtErrorCode::from(error.code());
    // The provider's words for a HTP that has stopped: its subsystem was restarted under our feet.
    if status == ort::sys::OrtErrorCode::ORT_DEVICE_RESET || error.message().contains("NPU crashed") {
        return Error::DeviceLost { message: error.message().to_owned() };
    }
    Error::refused(call, status as i32, error.message().to_owned())
}

/// The library at `path` cannot be used.
pub(crate) fn not_loaded(path: &Path, reason: impl ToString) -> Error {
    Error::Load { path: path.to_owned(), reason: reason.to_string(), requirements: ONNX_RUNTIME.requirements }
}
