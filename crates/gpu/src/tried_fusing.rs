//! Tries how an adapter adds a product to a sum, when it is opened ([`Fusing`]).

use crate::error::GpuError;
use crate::fusing::{DOUBLES, Fusing};
use crate::gpu::Gpu;
use crate::nodes::whole;
use crate::prepared::Groups;
use crate::recording::Recording;
use crate::shader::TRY_FUSED;
use crate::staging::Staging;

/// Tries an adapter's `fma`, and the one in double precision if its own rounds twice; and what is made of them.
///
/// # Errors
/// If it does not compile or run that.
pub(crate) fn found(gpu: &mut Gpu) -> Result<Fusing, GpuError> {
    let terms = terms();
    gpu.fusing = Fusing::Apart;
    let apart = tried(gpu, &terms)?;
    let mut fusing = Fusing::Once;
    if !are_right(&terms, &apart, 0, f32::mul_add) {
        if !gpu.device.features().contains(DOUBLES) {
            return Ok(Fusing::Apart);
        }
        fusing = Fusing::Doubles;
    }
    gpu.fusing = fusing;
    let results = tried(gpu, &terms)?;
    let quotients = are_right(&terms, &results, 2, |a, b, _| a / b);
    let roots = are_right(&terms, &results, 3, |a, _, _| a.abs().sqrt());
    let is_exact = are_right(&terms, &results, 1, f32::mul_add) && quotients && roots;
    Ok(if is_exact { fusing } else { Fusing::Apart })
}

/// Whether the `which`th results are the cores'. Below what is normal adapters may have zeros.
fn are_right(terms: &[[f32; 4]], results: &[f32], which: usize, cores: fn(f32, f32, f32) -> f32) -> bool {
    terms.iter().zip(results.chunks_exact(RESULTS)).all(|(&[a, b, c, _], found)| {
        let wanted = cores(a, b, c);
        found[which].to_bits() == wanted.to_bits() || wanted.is_subnormal()
    })
}

/// Of each terms, in the shader's order.
const RESULTS: usize = 8;

fn tried(gpu: &Gpu, terms: &[[f32; 4]]) -> Result<Vec<f32>, GpuError> {
    let mut results = vec![0.0; terms.len() * RESULTS];
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

    /// What the shaders make of quotients, roots and powers has the CPU's bits.
    #[test]
    fn arithmetic_has_the_bits_of_the_cores() {
        let Some(gpu) = crate::self_test::opened() else { return };
        if !gpu.fusing.is_exact() {
            return;
        }
        let terms = terms();
        let results = tried(&gpu, &terms).unwrap();
        let cores: [fn(f32, f32, f32) -> f32; RESULTS] = [
            |_, _, _| 0.0,
            f32::mul_add,
            |a, b, _| a / b,
            |a, _, _| a.abs().sqrt(),
            |a, _, _| exponential(a),
            |a, _, _| power_below(-a.abs()),
            |a, b, c| a * b + c,
            |a, b, c| (a * b).mul_add(b, c),
        ];
        for (which, of_cores) in cores.into_iter().enumerate().skip(1) {
            assert!(are_right(&terms, &results, which, of_cores), "the {which}th results");
        }
    }

    /// As `kernels/src/simd` has it.
    fn exponential(x: f32) -> f32 {
        let clamped = x.clamp(-87.3, 88.0);
        let n = (clamped * std::f32::consts::LOG2_E).round_ties_even();
        let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, clamped));
        let p = [1.987_569_2e-4_f32, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
        let p = p.into_iter().reduce(|p, next| p.mul_add(r, next)).unwrap();
        let whole = (r * r).mul_add(p, r + 1.0);
        if x < -87.3 { 0.0 } else { whole * power(n) }
    }

    #[expect(clippy::approx_constant, reason = "the fit's, which has to make up for the terms that it lacks")]
    fn power_below(x: f32) -> f32 {
        let clamped = x.max(-127.0);
        let n = clamped.round_ties_even();
        let r = clamped - n;
        let p = [1.326_472_5e-3_f32, 9.671_513e-3, 5.550_733_6e-2, 0.240_222_42, 0.693_147, 1.0];
        p.into_iter().reduce(|p, next| p.mul_add(r, next)).unwrap() * power(n)
    }

    fn power(n: f32) -> f32 {
        f32::from_bits(((n as i32 + 127) as u32) << 23)
    }

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
