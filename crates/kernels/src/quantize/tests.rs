//! Quantising groups of any floats, on every instruction set of the machine.

use super::*;
use proptest::prelude::*;
use std::slice::from_raw_parts;

/// A row of two groups as it lies in memory.
#[derive(Debug, PartialEq)]
struct Stored {
    quants: Vec<i8>,
    /// Bits of each group's scale and sum: a NaN equals itself so.
    scales: Vec<u32>,
    sums: Vec<u32>,
    offsets: Vec<Offsets>,
}

fn quantize(isa: Isa, values: &[f32]) -> Stored {
    let groups = values.len().div_ceil(GROUP);
    let mut rows = QuantizedRows::new(1, values.len(), Operands::Bytes);
    // What was there before must not shine through.
    rows.quants.fill(77);
    let shared = rows.share(values.len());
    // SAFETY: one thread; a tile of one row holds one scale, sum and offset and 32 quants a group.
    unsafe {
        shared.set_row(isa, 0, values);
        let tile = shared.tile(0);
        Stored {
            quants: from_raw_parts(tile.quants, groups * GROUP).to_vec(),
            scales: from_raw_parts(tile.scales, groups).iter().map(|scale| scale.to_bits()).collect(),
            sums: from_raw_parts(tile.sums, groups).iter().map(|sum| sum.to_bits()).collect(),
            offsets: from_raw_parts(tile.offsets, groups).to_vec(),
        }
    }
}

/// What the module says of groups of any values.
fn check(values: &[f32]) {
    let portable = quantize(Isa::Portable, values);
    for (index, group) in values.chunks(GROUP).enumerate() {
        let quants = &portable.quants[index * GROUP..(index + 1) * GROUP];
        let (scale, sum) = (f32::from_bits(portable.scales[index]), f32::from_bits(portable.sums[index]));
        let total: i32 = quants.iter().map(|&quant| i32::from(quant)).sum();
        let sum_of = |quants: &[i8]| quants.iter().map(|&quant| i32::from(quant)).sum::<i32>();
        let (low, high) = quants.split_at(LANES);
        for (form, part, expected) in [
            (Form::Q8_0, 0, 128 * total),
            (Form::Q5_0, 0, 16 * total),
            (Form::Q4_0, 0, 8 * total),
            (Form::Q6K, 0, 32 * sum_of(low)),
            (Form::Q6K, 1, 32 * sum_of(high)),
            (Form::Q3K, 0, 4 * sum_of(low)),
            (Form::Q3K, 1, 4 * sum_of(high)),
        ] {
            assert_eq!(portable.offsets[index].of(form, part), BIASED_ZERO - expected, "{form:?} {part} of {group:?}");
        }
        assert_eq!([0, 1].map(|half| portable.offsets[index].half(half)), [sum_of(low), sum_of(high)], "{group:?}");
        let largest = group.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        if group.iter().any(|x| !x.is_finite()) {
            assert!(scale.is_nan() && sum.is_nan() && quants.iter().all(|&quant| quant == 0), "{group:?}: {scale}");
        } else if (127.0 / largest).is_infinite() {
            assert!(scale == 0.0 && sum == 0.0 && quants.iter().all(|&quant| quant == 0), "{group:?}: {scale}");
        } else {
            assert!(scale.is_finite() && sum == scale * total as f32, "{group:?}: {scale}");
            for (x, &quant) in group.iter().zip(quants) {
                let error = (f64::from(*x) - f64::from(scale) * f64::from(quant)).abs();
                // Half a step, and what rounding the scale costs, which has 21 bits at least.
                assert!(error <= f64::from(largest) * (0.5 / 127.0 + 1e-6), "{x} of {largest}: {quant} × {scale}");
            }
        }
    }
    for isa in Isa::available() {
        assert_eq!(quantize(isa, values), portable, "{isa}: {values:?}");
    }
}

#[test]
fn groups_at_the_borders_of_the_formats() {
    let smallest = f32::from_bits(1);
    let invertible = 127.0 / f32::MAX;
    for largest in [
        0.0,
        smallest,
        3e-45,
        1e-40,
        1e-38,
        f32::MIN_POSITIVE,
        invertible.next_down(),
        invertible,
        invertible.next_up(),
        3.8e-37,
        1e-30,
        1.0,
        f32::MAX.next_down(),
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
        -f32::NAN,
    ] {
        for sign in [1.0, -1.0] {
            for rest in [0.0, -0.0, smallest, largest / 2.0, f32::NEG_INFINITY, f32::NAN] {
                for place in [0, 7, 15, 16, 31] {
                    let mut values = vec![rest; GROUP + 5];
                    values[place] = sign * largest;
                    check(&values);
                }
            }
        }
    }
}

/// Groups whose scales are found together keep their own, whatever their neighbours are, and so do those of the next ones.
#[test]
fn rows_of_more_groups_than_are_rounded_together() {
    for groups in [TOGETHER - 1, TOGETHER, TOGETHER + 1, 2 * TOGETHER, 2 * TOGETHER + 3] {
        for (more, special) in [(0, 1.0), (5, 1e-40), (5, f32::INFINITY), (1, f32::NAN)] {
            let mut values: Vec<f32> =
                (0..groups * GROUP + more).map(|i| ((i * 7919) as f32).sin() * (1 + i / GROUP) as f32).collect();
            for group in (0..groups).step_by(5) {
                values[group * GROUP..(group + 1) * GROUP].fill(special);
            }
            check(&values);
        }
    }
}

/// Floats of any bits, no larger than the exponent allows: else nearly every group would hold a huge number.
fn group() -> impl Strategy<Value = Vec<f32>> {
    (0_u32..=255, prop::collection::vec(any::<u32>(), GROUP + 9)).prop_map(|(exponent_max, bits)| {
        let bounded = |bits: u32| {
            let exponent = (bits >> 23 & 255).min(exponent_max);
            f32::from_bits(bits & 0x807F_FFFF | exponent << 23)
        };
        bits.into_iter().map(bounded).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_floats_are_the_same_bytes_on_every_instruction_set(values in group()) {
        check(&values);
    }

    #[test]
    fn any_bits_are_the_same_bytes_on_every_instruction_set(bits in prop::collection::vec(any::<u32>(), GROUP)) {
        check(&bits.into_iter().map(f32::from_bits).collect::<Vec<_>>());
    }
}
