//! How an adapter adds a product to a sum. The CPU's kernels round once; WGSL lets an adapter round both, as Mesa's program for
//! the processor does. Which of them an adapter does is found by a try, when it is opened; one that rounds both computes it in
//! double precision, if it has that, and has the CPU's bits all the same.

use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::nodes::whole;
use crate::recording::{Groups, Recording};
use crate::shader::TRY_FUSED;
use crate::staging::Staging;

/// How `a × b + c` is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fusing {
    /// By the adapter's own instruction, which rounds once.
    Once,
    /// In double precision, rounded once.
    Doubles,
    /// Product and sum are rounded both: last bits differ from the CPU's.
    Apart,
}

impl Fusing {
    /// The shaders' `fused`.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Once => include_str!("shaders/fused_once.wgsl"),
            Self::Doubles => include_str!("shaders/fused_doubles.wgsl"),
            Self::Apart => include_str!("shaders/fused_apart.wgsl"),
        }
    }

    /// Whether results have the CPU's bits.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self != Self::Apart
    }
}

/// What double precision takes.
pub(crate) const DOUBLES: wgpu::Features = wgpu::Features::SHADER_F64.union(wgpu::Features::SHADER_INT64);

/// Tries an adapter's `fma`, and the one in double precision if its own rounds twice.
///
/// # Errors
/// If it does not compile or run that.
pub(crate) fn found(gpu: &mut Gpu) -> Result<Fusing, GpuError> {
    let terms = terms();
    let is_right = |results: &[f32], which: usize| {
        let right =
            |(term, found): (&[f32; 4], &[f32])| found[which].to_bits() == term[0].mul_add(term[1], term[2]).to_bits();
        terms.iter().zip(results.chunks_exact(2)).all(right)
    };
    gpu.fusing = Fusing::Apart;
    if is_right(&tried(gpu, &terms)?, 0) {
        return Ok(Fusing::Once);
    }
    if !gpu.device.features().contains(DOUBLES) {
        return Ok(Fusing::Apart);
    }
    gpu.fusing = Fusing::Doubles;
    let results = tried(gpu, &terms)?;
    Ok(if is_right(&results, 1) { Fusing::Doubles } else { Fusing::Apart })
}

fn tried(gpu: &Gpu, terms: &[[f32; 4]]) -> Result<Vec<f32>, GpuError> {
    let mut results = vec![0.0; terms.len() * 2];
    let given = gpu.floats("terms", terms.as_flattened());
    let found = gpu.empty("results", results.len() * 4);
    let mut recording = Recording::new(gpu);
    let pipeline = gpu.pipeline(&TRY_FUSED, 1, &[])?;
    recording.launch(&pipeline, &[&given, &found].map(whole), &[], Groups(terms.len() / 64, 1));
    Staging::default().read_after(gpu, recording, &[(&found, results.len())], &mut results)?;
    Ok(results)
}

/// Factors and addends that show how often was rounded: products that a sum takes all of but the last bits of, sums that lie
/// so near between two floats that a double cannot tell on which side, and some of all sizes.
fn terms() -> Vec<[f32; 4]> {
    let step = |of: i32| 2.0_f32.powi(of);
    let (odd, near) = (1.0 + step(-23), 1.0 + step(-12));
    // 2^-54 less than half of the last bit, which a double has no room for: it would be half, and go up.
    let (above, below) = (1.0 + step(-15), step(-24) * (1.0 - step(-15)));
    let mut terms = vec![
        [near, near, -(1.0 + step(-11)), 0.0],
        [above, below, odd, 0.0],
        [-above, below, -odd, 0.0],
        [above, -below, -odd, 0.0],
        [1.0 + step(-16), step(-24) * (1.0 - step(-16)), odd, 0.0],
        [step(-40), step(-40), 1.0, 0.0],
    ];
    let mut bits = 0x2545_f491_u32;
    let mut number = || {
        for shift in [13, -17, 5_i32] {
            bits ^= if shift > 0 { bits << shift } else { bits >> -shift };
        }
        // Of 32 exponents around one, either sign.
        f32::from_bits((bits & 0x807f_ffff) | (111 + (bits >> 23 & 31)) << 23)
    };
    while terms.len() < 1024 {
        let (a, b) = (number(), number());
        // What takes most of the product away as well.
        let c = if terms.len() % 2 == 0 { number() } else { -(a * b) };
        terms.push([a, b, c, 0.0]);
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An adapter that rounds twice, and one that rounds to a double first, are found out.
    #[test]
    fn terms_tell_how_often_was_rounded() {
        let differs = |other: fn(f32, f32, f32) -> f32| {
            terms().iter().any(|&[a, b, c, _]| a.mul_add(b, c).to_bits() != other(a, b, c).to_bits())
        };
        assert!(differs(|a, b, c| a * b + c));
        assert!(differs(|a, b, c| (f64::from(a) * f64::from(b) + f64::from(c)) as f32));
    }
}
