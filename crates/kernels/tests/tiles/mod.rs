//! An emulator of AMX's tiles, so that the kernels' own machine code for them runs on processors that have none.
//!
//! Such a processor raises a signal at each of these instructions. The handler ([`trap`]) decodes the instruction from its
//! bytes ([`decode`]), executes it as the manual defines it ([`unit`]), and goes on behind it. **Invariant:** it knows nothing of
//! the kernels: which tiles they use for what, and in what layout, is theirs alone.
//!
//! A test program that has this module has AMX from its start; where the processor has it, it runs natively instead.

pub(crate) mod decode;
pub(crate) mod trap;
pub(crate) mod unit;

/// Runs before `main`, and so before anybody asks for instruction sets.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = trap::install;
