//! A disk that fails: the system answers `EIO` to reads of a file at some place, for the thread that asks for this and those
//! that it starts, by a filter of their system calls.

use std::io;

/// Reads with `pread` that begin at `offset`, of whatever file, fail from now on for this thread and those that it starts.
pub(crate) fn fail_reads_at(offset: u64) {
    let load = |at: u32| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, (0, 0));
    // Goes on if it is the same, and else to the last instruction but one, so many further.
    let is = |value: u32, further: u8| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, (0, further));
    let answer = |what: u32| instruction(libc::BPF_RET | libc::BPF_K, what, (0, 0));
    let mut filter = [
        load(NUMBER),
        is(u32::try_from(libc::SYS_pread64).unwrap(), 5),
        load(OFFSET),
        is((offset & u64::from(u32::MAX)) as u32, 3),
        load(OFFSET + 4),
        is((offset >> 32) as u32, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: neither call changes memory; the program and what it points to outlive the second one, which copies both.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    assert!(done, "system calls cannot be filtered: {}", io::Error::last_os_error());
}

/// Where the number of the call is in what a filter sees.
const NUMBER: u32 = 0;
/// Where the low half of its fourth argument is.
const OFFSET: u32 = 16 + 3 * 8;

fn instruction(code: u32, k: u32, (jt, jf): (u8, u8)) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}
