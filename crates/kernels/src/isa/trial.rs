//! A trial of two instruction sets on a small product: what a machine's specification does not tell.
//!
//! Sums of integers by a matrix unit cost little and bringing them to scale as much as ever, so whether the unit pays is for
//! the machine to say. Bits are the same either way.

use super::Isa;
use crate::crew::{Crew, Solo};
use crate::matmul::{Epilogue, Target, matmul};
use crate::memory::{Aligned, Shared};
use crate::packed::{Form, PANEL, PANELS_TOGETHER, PackedMatrix, WeightGroup};
use crate::quantize::{Operands, QuantizedRows, SharedRows};
use std::time::{Duration, Instant};

/// As many rows as a chunk of a prompt has, for weights that stay in the second cache.
const ROWS: usize = 256;
const INPUTS: usize = 2048;
const OUTPUTS: usize = 2 * PANELS_TOGETHER * PANEL;
/// The fastest of so many counts; each takes some tenths of a millisecond.
const ROUNDS: usize = 8;

/// So many times slower is not a matter of what the first use of a unit costs.
const HOPELESS: u32 = 100;

/// The faster of the two at reading prompts, `ordinary` if they are equally fast.
pub(super) fn faster(ordinary: Isa, other: Isa) -> Isa {
    let group = WeightGroup { scale: 0.01, min: 0.01, small: [1; 2], quants: [3; _] };
    let Ok(weights) = PackedMatrix::new(OUTPUTS, INPUTS, Form::Q4K, |_, _| group) else { return ordinary };
    let mut rows = QuantizedRows::new(ROWS, INPUTS, Operands::Bytes);
    let rows = rows.share(INPUTS);
    for row in 0..ROWS {
        // SAFETY: one thread.
        unsafe { rows.set_row(ordinary, row, &[1.0; INPUTS]) };
    }
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (fastest, isa) in fastest.iter_mut().zip([ordinary, other]) {
            *fastest = time(isa, &weights, &rows).min(*fastest);
        }
        if fastest[1] > HOPELESS * fastest[0] {
            break;
        }
    }
    if fastest[1] < fastest[0] { other } else { ordinary }
}

fn time(isa: Isa, weights: &PackedMatrix, rows: &SharedRows<'_>) -> Duration {
    let mut out = Aligned::zeroed(ROWS * OUTPUTS);
    let epilogue = Epilogue::Store(Target { out: Shared::new(&mut out), first_row: 0, stride: OUTPUTS });
    let start = Instant::now();
    Solo.run(&|worker| {
        // SAFETY: the rows are quantised, and this crew alone has the target.
        unsafe { matmul(isa, weights, rows, ROWS, &epilogue, &worker) }
    });
    start.elapsed()
}
