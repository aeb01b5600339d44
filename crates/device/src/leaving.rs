//! The end of the process while threads may still be inside a device's library.
//!
//! A library that a device brought (OpenVINO, a Vulkan driver) registers functions that the C library calls at `exit`, and
//! they take down what a thread that is just loading or compiling there uses: the process then ends by a signal, now and
//! then. Nobody waits for such threads, since a driver may never answer, so the functions are not called.

use std::io::Write;

/// Ends the process at once, with what was written to stdout. Call it when all that has to be kept is kept: nothing is
/// dropped, and no function that was registered for the end is called.
pub fn leave(status: u8) -> ! {
    // Whoever has to know whether it was read has flushed before.
    let _ = std::io::stdout().flush();
    // SAFETY: `_exit` may be called at any time and touches no memory of this process.
    unsafe { libc::_exit(i32::from(status)) }
}
