//! Gates of what attention found: each head's result times the logistic function of a gate that the row was projected to
//! (Qwen3-Next, Qwen 3.5).

use super::{Buffers, part};
use crate::crew::Crew;
use crate::isa::Isa;
use crate::packed::PANEL;
use crate::simd::{Kernel, LANES, Simd, exp};
use std::ops::Range;

/// Gates what attention found for some rows. The gates are columns of the projection, all heads side by side.
///
/// # Panics
/// If there are no such rows or columns, or they are no whole panels.
pub fn gate_attended(isa: Isa, crew: &dyn Crew, buffers: &mut Buffers, rows: Range<usize>, gates: Range<usize>) {
    assert!(rows.end <= buffers.rows() && gates.end <= buffers.shape().qkv && gates.len() <= buffers.shape().queries);
    assert!(gates.len().is_multiple_of(PANEL));
    let (shared, _, _) = buffers.share(buffers.shape().hidden, 0);
    crew.run(&|worker| {
        let (own, columns) = part(rows.len(), gates.len(), &worker);
        for row in own {
            let row = rows.start + row;
            let found = shared.attended.row(row).start;
            let from = row * shared.qkv.stride + gates.start;
            // SAFETY: these columns of the row are this worker's, and nobody writes projections.
            let (found, gates) = unsafe {
                (
                    shared.attended.values.part_mut(found + columns.start..found + columns.end),
                    shared.qkv.values.part(from + columns.start..from + columns.end),
                )
            };
            isa.run(Gate { found, gates });
        }
    });
}

/// `found = found / (1 + e^-gate)`.
struct Gate<'a> {
    found: &'a mut [f32],
    gates: &'a [f32],
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (found, gates) in self.found.as_chunks_mut::<LANES>().0.iter_mut().zip(self.gates.as_chunks::<LANES>().0) {
            // SAFETY: both hold 16 floats.
            unsafe {
                let gate = s.load(gates.as_ptr());
                let over = s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), gate)));
                s.store(found.as_mut_ptr(), s.div(s.load(found.as_ptr()), over));
            }
        }
    }
}
