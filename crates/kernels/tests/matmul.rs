//! The matrix products: against a plain computation, to the bit across instruction sets, rows, panels and crews.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod tiles;

use duet_kernels::crew::{Crew, Scoped, Solo, Unequal};
use duet_kernels::isa::Isa;
use duet_kernels::matmul::{Epilogue, Gating, Target, matmul};
use duet_kernels::memory::Shared;
use duet_kernels::packed::{Form, PANEL, Packable, PackedMatrix, WeightGroup};
use duet_kernels::quantize::{GROUP, Operands, QuantizedRows};
use duet_kernels::read_ahead::ReadAhead;
use proptest::prelude::*;

/// A repeatable stream of numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn float(&mut self) -> f32 {
        self.next() as f32 / (1_u64 << 30) as f32 - 1.0
    }
}

fn matrix(numbers: &mut Numbers, outputs: usize, inputs: usize, form: Form) -> PackedMatrix {
    PackedMatrix::new(outputs, inputs, form, |_, _| group(numbers, form)).expect("scales in range")
}

/// Weights of about the same size in every form.
fn group(numbers: &mut Numbers, form: Form) -> Packable {
    if form.is_float() {
        return std::array::from_fn(|_| numbers.float() * 0.3).into();
    }
    let small = if form.has_small_scales() { 0.1 } else { 1.0 } * if form.table().is_some() { 0.1 } else { 1.0 };
    WeightGroup {
        scale: numbers.float() * 0.01 * small,
        min: numbers.float() * 0.1 * small,
        small: [numbers.next() as u8, numbers.next() as u8],
        // 0 stands for -128, which the packers never produce and the kernels need not tell from -127.
        quants: std::array::from_fn(|_| (numbers.next() % (1 << form.bits())).max(u32::from(form == Form::Q8_0)) as u8),
    }
    .into()
}

/// Rows of four forms below each other, as queries, keys and values are in files of mixed types.
fn mixed(numbers: &mut Numbers, outputs: usize, inputs: usize) -> PackedMatrix {
    let forms = [(64, Form::Q4K), (32, Form::Q6K), (32, Form::F16), (outputs, Form::Q5_0)];
    let form = |output: usize| forms[[64, 96, 128].iter().filter(|first| output >= **first).count()].1;
    PackedMatrix::in_sections(inputs, &forms, |output, _| group(numbers, form(output))).expect("scales in range")
}

fn rows(numbers: &mut Numbers, rows: usize, columns: usize) -> Vec<Vec<f32>> {
    (0..rows).map(|_| (0..columns).map(|_| numbers.float() * 3.0).collect()).collect()
}

fn product(isa: Isa, crew: &dyn Crew, weights: &PackedMatrix, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut quantized = QuantizedRows::new(rows.len(), weights.inputs(), Operands::BytesAndFloats);
    let shared = quantized.share(weights.inputs());
    for (index, row) in rows.iter().enumerate() {
        // SAFETY: one thread.
        unsafe { shared.set_row(isa, index, row) };
    }
    let stride = weights.panels() * PANEL;
    let mut out = vec![f32::NAN; rows.len() * stride];
    let target = Target { out: Shared::new(&mut out), first_row: 0, stride };
    crew.run(&|worker| {
        // SAFETY: the rows are quantised, and this crew alone has the target.
        unsafe { matmul(isa, weights, &shared, rows.len(), &Epilogue::Store(target), &worker) }
    });
    out.chunks(stride).map(|row| row[..weights.outputs()].to_vec()).collect()
}

/// The definition, in doubles: weights as packed, activations rounded to 127ths of their group's largest, but for outputs
/// whose weights are floats.
fn plain(weights: &PackedMatrix, floats: impl Fn(usize) -> bool, row: &[f32]) -> Vec<f64> {
    let exact: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
    let rounded: Vec<f64> = row
        .chunks(GROUP)
        .flat_map(|group| {
            let largest = group.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
            let scale = f64::from(largest) / 127.0;
            group.iter().map(move |x| (f64::from(x * (127.0 / largest))).round_ties_even() * scale)
        })
        .collect();
    (0..weights.outputs())
        .map(|output| {
            let operand = if floats(output) { &exact } else { &rounded };
            operand.iter().enumerate().map(|(i, x)| x * f64::from(weights.weight(output, i))).sum()
        })
        .collect()
}

#[test]
fn products_are_as_defined() {
    let mut numbers = Numbers(7);
    for form in Form::ALL.map(Some).into_iter().chain([None]) {
        let weights = match form {
            Some(form) => matrix(&mut numbers, 70, 600, form),
            None => mixed(&mut numbers, 70, 600),
        };
        let rows = rows(&mut numbers, 7, 600);
        for (row, result) in rows.iter().zip(product(Isa::chosen().unwrap(), &Solo, &weights, &rows)) {
            let floats = |output| form.map_or((96..128).contains(&output), Form::is_float);
            for (expected, result) in plain(&weights, floats, row).into_iter().zip(result) {
                assert!(
                    (expected - f64::from(result)).abs() < 1e-4 * expected.abs().max(1.0),
                    "{form:?}: {result}, not {expected}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Every instruction set, number of rows and crew gives the bytes of the portable path, row by row.
    #[test]
    fn a_row_is_the_same_in_any_company(
        seed in any::<u64>(),
        outputs in 1_usize..140,
        groups in 1_usize..11,
        short in 0_usize..GROUP,
        count in 1_usize..45,
        form in prop::option::weighted(0.9, prop::sample::select(Form::ALL.to_vec())),
    ) {
        let mut numbers = Numbers(seed);
        let inputs = groups * GROUP - short.min(groups * GROUP - 1);
        let weights = match form {
            Some(form) => matrix(&mut numbers, outputs, inputs, form),
            None => mixed(&mut numbers, outputs, inputs),
        };
        let rows = rows(&mut numbers, count, inputs);
        let alone: Vec<Vec<f32>> =
            rows.iter().flat_map(|row| product(Isa::Portable, &Solo, &weights, std::slice::from_ref(row))).collect();
        for isa in Isa::available() {
            prop_assert_eq!(&product(isa, &Solo, &weights, &rows), &alone, "{}", isa);
        }
        prop_assert_eq!(&product(Isa::chosen().unwrap(), &Scoped { threads: 3 }, &weights, &rows), &alone);
        let unequal = Unequal { cuts: &[0, 5, 6, 10] };
        prop_assert_eq!(&product(Isa::chosen().unwrap(), &unequal, &weights, &rows), &alone);
    }
}

/// Inner loops are chosen by the number of rows, by whether tiles share weights, and by the form: all of these, with blocks of 256
/// inputs that are whole and one that is not.
#[test]
fn every_form_is_the_same_for_each_number_of_rows() {
    let mut numbers = Numbers(7);
    for form in Form::ALL {
        // Four panels, which few rows of floats take together, and one that stands alone.
        let weights = matrix(&mut numbers, 5 * PANEL, 19 * GROUP, form);
        let rows = rows(&mut numbers, 34, 19 * GROUP);
        let alone: Vec<Vec<f32>> =
            rows.iter().flat_map(|row| product(Isa::Portable, &Solo, &weights, std::slice::from_ref(row))).collect();
        for count in (1..=9).chain([15, 16, 17, 34]) {
            for isa in Isa::available() {
                assert_eq!(product(isa, &Solo, &weights, &rows[..count]), alone[..count], "{form:?}, {count}, {isa}");
            }
        }
    }
}

/// Where every product is the largest that there is, sums of 16 bits would be the first to overflow.
/// As long as products are that a crew deals out piece by piece; the others here are divided beforehand. Nothing of them is
/// left out.
#[test]
fn a_long_product_is_the_same_whoever_takes_which_piece() {
    let mut numbers = Numbers(7);
    let weights = matrix(&mut numbers, 200, 512, Form::Q4_1);
    let rows = rows(&mut numbers, 600, 512);
    let isa = Isa::chosen().unwrap();
    let alone = product(isa, &Solo, &weights, &rows[..9]);
    let crews: [&dyn Crew; 2] = [&Scoped { threads: 3 }, &Unequal { cuts: &[0, 5, 6] }];
    for crew in crews {
        let together = product(isa, crew, &weights, &rows);
        assert_eq!(together[..9], alone);
        assert!(together.iter().flatten().all(|y| *y != 0.0), "a result that nobody computed");
    }
}

#[test]
fn the_largest_products_are_summed_exactly() {
    for form in Form::ALL.into_iter().filter(|form| !form.is_float()) {
        for quant in [usize::from(form == Form::Q8_0), (1 << form.bits()) - 1] {
            let quants = [quant as u8; GROUP];
            let group = WeightGroup { scale: 0.01, min: 0.01, small: [1; 2], quants };
            let weights =
                PackedMatrix::new(2 * PANEL, 2 * GROUP, form, |_, _| Packable::Quants(group)).expect("scales in range");
            for value in [-127.0, 127.0] {
                let rows = vec![vec![value; 2 * GROUP]; 9];
                let expected = product(Isa::Portable, &Solo, &weights, &rows);
                for isa in Isa::available() {
                    assert_eq!(product(isa, &Solo, &weights, &rows), expected, "{form:?}, {quant}, {value}, {isa}");
                }
            }
        }
    }
}

/// Whole tiles of rows are the matrix unit's, two by two, where weights have minima and there are enough rows: so many products
/// as there are, where they can be counted, and the bits of the portable path.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn whole_tiles_of_rows_are_multiplied_by_the_matrix_unit() {
    if !Isa::available().contains(&Isa::AmxInt8) {
        return;
    }
    let mut numbers = Numbers(23);
    for form in Form::ALL {
        let is_taken = matches!(form, Form::Q4_1 | Form::Q5_1 | Form::Q4K | Form::Q5K);
        for (outputs, inputs, count) in [(70, 300, 64), (16, 32, 75), (33, 257, 80), (32, 96, 63)] {
            let weights = matrix(&mut numbers, outputs, inputs, form);
            let rows = rows(&mut numbers, count, inputs);
            let before = tiles::trap::dots();
            let result = product(Isa::AmxInt8, &Solo, &weights, &rows);
            let counted = tiles::trap::dots() - before;
            assert_eq!(result, product(Isa::Portable, &Solo, &weights, &rows), "{form:?}, {count} rows");
            // Fewer rows are not worth unpacking, but for quants of several planes, which are unpacked anyway.
            let computed = if is_taken && (count >= 64 || form.bits() > 4) { (count / 8).div_ceil(2) } else { 0 };
            let expected = computed * inputs.div_ceil(GROUP) * weights.panels().next_multiple_of(2);
            assert!(
                counted == expected || counted == 0 && natively(),
                "{form:?}, {count} rows: {counted}, not {expected}"
            );
        }
    }
}

/// Whether the processor has the matrix unit.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn natively() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("amx_int8"))
}

#[test]
fn gates_are_applied_to_their_values() {
    let mut numbers = Numbers(11);
    let weights = matrix(&mut numbers, 4 * PANEL, 64, Form::Q8_0);
    let rows = rows(&mut numbers, 5, 64);
    let plain = product(Isa::chosen().unwrap(), &Solo, &weights, &rows);
    // Large enough that some are clamped.
    let bias: Vec<f32> = (0..4 * PANEL).map(|at| (at as f32 - 32.0) / 3.0).collect();
    for (gating, exact, bias) in [
        (Gating::Silu, (|x: f64, value: f64| x / (1.0 + (-x).exp()) * value) as fn(f64, f64) -> f64, None),
        (
            Gating::GeluTanh,
            |x, value| {
                let cubic = x + 0.044_715 * x.powi(3);
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * cubic).tanh()) * value
            },
            None,
        ),
        (
            Gating::ClampedSwish,
            |x, value| {
                let x = x.min(7.0);
                x / (1.0 + (-1.702 * x).exp()) * (value.clamp(-7.0, 7.0) + 1.0)
            },
            Some(bias.as_slice()),
        ),
    ] {
        let mut results: Vec<Vec<f32>> = Vec::new();
        for isa in Isa::available() {
            let mut quantized = QuantizedRows::new(rows.len(), 64, Operands::Bytes);
            let shared = quantized.share(64);
            for (index, row) in rows.iter().enumerate() {
                // SAFETY: one thread.
                unsafe { shared.set_row(isa, index, row) };
            }
            let mut out = vec![0.0; rows.len() * 2 * PANEL];
            let target = Target { out: Shared::new(&mut out), first_row: 0, stride: 2 * PANEL };
            let epilogue = Epilogue::Gated { target, gating, bias };
            Solo.run(&|worker| {
                // SAFETY: the rows are quantised, and this crew alone has the target.
                unsafe { matmul(isa, &weights, &shared, rows.len(), &epilogue, &worker) }
            });
            results.push(out);
        }
        for (row, products) in plain.iter().enumerate() {
            for column in 0..2 * PANEL {
                let at = column / PANEL * 2 * PANEL + column % PANEL;
                let biased = |at: usize| f64::from(products[at]) + bias.map_or(0.0, |bias| f64::from(bias[at]));
                let expected = exact(biased(at), biased(at + PANEL));
                let result = f64::from(results[0][row * 2 * PANEL + column]);
                assert!((expected - result).abs() < 1e-5 * expected.abs().max(1.0), "{gating:?} {expected} {result}");
            }
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{gating:?}: instruction sets differ");
    }
}

/// How weights are read is the machine's choice, and no bit is.
#[test]
fn however_weights_are_read_the_bits_are_the_same() {
    let mut numbers = Numbers(11);
    for form in [Form::Q4K, Form::Q5_0, Form::Q6K, Form::Q8_0, Form::F16] {
        let weights = matrix(&mut numbers, 16 * 9, 1280, form);
        for count in [1, 2, 3, 4, 5, 8, 9, 12] {
            let rows = rows(&mut numbers, count, 1280);
            for isa in Isa::available() {
                let all = ReadAhead::ALL.map(|way| {
                    way.choose();
                    product(isa, &Scoped { threads: 2 }, &weights, &rows)
                });
                assert!(all.iter().all(|product| *product == all[0]), "{form:?}, {count} rows, {isa}");
            }
        }
    }
    ReadAhead::of_processor().choose();
}
