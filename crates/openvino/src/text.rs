//! Texts on their way to C.

use duet_runtimes::Error;
use std::ffi::CString;

/// `text` for C; `what` names it in the error.
///
/// # Errors
/// [`Error::ZeroByte`] if it has a zero byte, where C would take it to end.
pub(crate) fn c_text(what: &'static str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::ZeroByte { what })
}
