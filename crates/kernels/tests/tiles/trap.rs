//! The handler of the signal that a processor raises at an instruction which it does not have.

use super::decode::{Instruction, Registers, decode};
use super::unit::Unit;
use duet_kernels::isa::{self, Isa};
use std::cell::{Cell, UnsafeCell};

thread_local! {
    /// This thread's tiles. Nothing has to be made or dropped, so that a handler may use them.
    static UNIT: UnsafeCell<Unit> = const { UnsafeCell::new(Unit::new()) };
    static DOTS: Cell<usize> = const { Cell::new(0) };
}

/// How many products of tiles this thread has had executed here; none where the processor has them.
pub(crate) fn dots() -> usize {
    DOTS.get()
}

/// From now on there is AMX: the processor's, or the handler.
pub(crate) extern "C" fn install() {
    let lacking: Vec<&str> = Isa::AmxInt8.features().iter().filter(|name| name.starts_with("amx")).copied().collect();
    let natively = std::fs::read_to_string("/proc/cpuinfo")
        .is_ok_and(|text| lacking.iter().all(|name| text.contains(&name.replace('-', "_"))));
    if natively {
        return;
    }
    // SAFETY: an action of zeros is one without flags or masked signals; the handler has the form that `SA_SIGINFO` asks
    // for, and touches only what belongs to its thread. It executes what the processor does not, and nobody has asked for
    // instruction sets: this runs before `main`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_illegal as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        assert_eq!(libc::sigaction(libc::SIGILL, &raw const action, std::ptr::null_mut()), 0, "no handler for SIGILL");
        isa::assume_amx();
    }
}

/// Executes one instruction and goes on behind it. What is none of AMX's, or is faulty, is left to the processor, which
/// ends the program.
extern "C" fn on_illegal(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system calls the handler with the thread's context. The bytes at the instruction's address were about to be
    // executed; an instruction is at most 15 long, and none of the test program's lies in the last 15 bytes of its code.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let general = &mut context.uc_mcontext.gregs;
        let registers = Registers {
            general: GENERAL.map(|at| general[at as usize] as u64),
            instruction: general[libc::REG_RIP as usize] as u64,
        };
        let code = std::slice::from_raw_parts(registers.instruction as *const u8, 15);
        let executed = decode(code, &registers).and_then(|(instruction, length)| {
            if matches!(instruction, Instruction::Dot { .. }) {
                DOTS.set(DOTS.get() + 1);
            }
            UNIT.with(|unit| (*unit.get()).execute(instruction)).ok().map(|()| length)
        });
        match executed {
            Some(length) => general[libc::REG_RIP as usize] += length as i64,
            None => {
                libc::signal(libc::SIGILL, libc::SIG_DFL);
            }
        }
    }
}

/// Where the context has the general registers, in the order of their numbers.
const GENERAL: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];
