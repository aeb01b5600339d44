//! The end of the process where a mapped file is not there any more: somebody made a model or its packed weights shorter while they
//! were in use, or their disk fails. The system then sends SIGBUS to the thread that reads them, which cannot go on; without this
//! the process would end without a word.

use std::mem::MaybeUninit;

/// What is said then.
const SAID: &[u8] =
    b"error: the model's file, or its packed weights, became shorter while they were in use, or their disk cannot be \
read; start duet again, which makes packed weights anew\n";

/// Says so from now on, with exit status 1. Other signals of that kind end the process as before. Call it once, at the start.
pub fn explain_lost_files() {
    // SAFETY: all bytes zero are a signal set and an action.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_bus_error as extern "C" fn(_, _, _) as usize;
    // On the thread's stack for signals, as the standard library's handlers.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the action is whole and its handler has the form that `SA_SIGINFO` asks for. If it is refused, nothing has changed.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system gives a handler of this form what it knows of the signal. All that is called may be called in a handler.
    unsafe {
        if (*info).si_code == libc::BUS_ADRERR {
            libc::write(libc::STDERR_FILENO, SAID.as_ptr().cast(), SAID.len());
            libc::_exit(1);
        }
        // The access is made again when this returns, and ends the process.
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}
