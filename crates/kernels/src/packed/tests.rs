use super::*;

/// Some group of a form; scales and minima are what half precision holds.
fn group(output: usize, index: usize, form: Form) -> Packable {
    if form.is_float() {
        return std::array::from_fn(|i| (output * 31 + index * 7 + i * 5) as f32 / 8.0 - 50.0).map(short).into();
    }
    let shared = if form.has_small_scales() { index / BLOCK } else { index };
    let small = |i: usize| (output * 37 + index * 11 + i * 101) as u8 & if form == Form::Q2K { 255 } else { 63 };
    WeightGroup {
        scale: 0.5 + (output % 50) as f32,
        min: -(shared as f32),
        small: [small(0), small(1)],
        quants: std::array::from_fn(|i| ((output * 31 + index * 7 + i * 5) % (1 << form.bits())) as u8),
    }
    .into()
}

/// What all forms of floats can hold.
fn short(value: f32) -> f32 {
    half::bf16::from_f32(value).to_f32()
}

/// What ggml says that weight `i` of a group is.
fn expected(form: Form, group: &Packable, i: usize) -> f32 {
    let group = match group {
        Packable::Quants(group) => group,
        Packable::Floats(floats) => return floats[i],
    };
    let (q, WeightGroup { scale, min, small, .. }) = (f32::from(group.quants[i]), *group);
    let half = small[i / 16];
    let value = || f32::from(form.table().unwrap()[usize::from(group.quants[i])]);
    match form {
        Form::Q8_0 => scale * (q - 128.0),
        Form::Q4_0 => scale * (q - 8.0),
        Form::Q5_0 => scale * (q - 16.0),
        Form::Q4_1 | Form::Q5_1 => scale * q + min,
        Form::Q2K => scale * f32::from(half & 15) * q + min * f32::from(half >> 4),
        Form::Q3K => scale * f32::from(half as i8) * (q - 4.0),
        Form::Q6K => scale * f32::from(half as i8) * (q - 32.0),
        Form::IQ4NL | Form::MXFP4 => scale * value(),
        Form::IQ4XS => scale * f32::from(small[0] as i8) * value(),
        Form::Q4K | Form::Q5K => scale * f32::from(small[0]) * q + min * f32::from(small[1]),
        Form::F32 | Form::F16 | Form::BF16 => unreachable!("floats have no quants"),
    }
}

fn matrix(outputs: usize, form: Form) -> PackedMatrix {
    PackedMatrix::new(outputs, 600, form, |output, index| group(output, index, form)).unwrap()
}

#[test]
fn weights_come_back() {
    for form in Form::ALL {
        let packed = matrix(35, form);
        for output in 0..35 {
            for input in 0..600 {
                let expected = expected(form, &group(output, input / GROUP, form), input % GROUP);
                assert_eq!(packed.weight(output, input), expected, "{form:?} {output} {input}");
            }
        }
    }
}

#[test]
fn sections_have_their_own_forms() {
    let forms = [(64, Form::Q4K), (32, Form::Q6K), (19, Form::Q8_0)];
    let form = |output: usize| forms[usize::from(output >= 64) + usize::from(output >= 96)].1;
    let packed = PackedMatrix::in_sections(512, &forms, |output, index| group(output, index, form(output))).unwrap();
    assert_eq!((packed.outputs(), packed.panels()), (115, 8));
    for output in 0..115 {
        let group = group(output, 9, form(output));
        assert_eq!(packed.weight(output, 9 * GROUP + 5), expected(form(output), &group, 5), "{output}");
    }
}

#[test]
fn gathered_outputs_have_their_weights() {
    for form in Form::ALL {
        let packed = matrix(40, form);
        let outputs: Vec<usize> = (0..19).map(|output| (output * 7 + 3) % 40).collect();
        let gathered = packed.gather(&outputs).unwrap();
        assert_eq!((gathered.outputs(), gathered.inputs()), (19, 600));
        for (to, &from) in outputs.iter().enumerate() {
            assert!((0..600).all(|input| gathered.weight(to, input) == packed.weight(from, input)), "{form:?} {from}");
        }
    }
}

/// Of a matrix of 256 by 256, whose panels and blocks are whole.
#[test]
fn as_many_bytes_are_read_as_the_file_has() {
    let bits = |form: Form| {
        let packed = PackedMatrix::new(256, 256, form, |output, index| group(output, index, form)).unwrap();
        packed.bytes() as f64 * 8.0 / packed.macs() as f64
    };
    for (form, file) in [
        (Form::Q8_0, 8.5),
        (Form::Q4_0, 4.5),
        (Form::Q4_1, 5.0),
        (Form::Q5_0, 5.5),
        (Form::Q5_1, 6.0),
        (Form::Q2K, 2.625),
        (Form::Q6K, 6.5625),
        (Form::IQ4NL, 4.5),
        (Form::MXFP4, 4.5),
        (Form::F32, 32.0),
        (Form::F16, 16.0),
        (Form::BF16, 16.0),
    ] {
        assert_eq!(bits(form), file, "{form:?}");
    }
    // Small scales of six bits take eight.
    for (form, file) in [(Form::Q3K, 3.4375), (Form::Q4K, 4.5), (Form::Q5K, 5.5)] {
        assert_eq!(bits(form), file + 0.125, "{form:?}");
    }
    assert_eq!(bits(Form::IQ4XS), 4.25 + 0.0625);
}

#[test]
fn tiny_scales_keep_their_precision() {
    let packed = PackedMatrix::new(1, 32, Form::Q8_0, |_, _| WeightGroup {
        scale: 3e-7,
        quants: [255; 32],
        ..WeightGroup::zeros(Form::Q8_0)
    })
    .unwrap();
    let relative = packed.weight(0, 3) / (3e-7 * 127.0) - 1.0;
    assert!(relative.abs() < 1e-3, "{relative}");
}

#[test]
fn floats_that_are_none_are_refused() {
    let packed = PackedMatrix::new(3, 32, Form::F16, |output, _| {
        let mut floats = [1.0; GROUP];
        floats[31] = if output == 2 { f32::NAN } else { 1.0 };
        floats
    });
    assert_eq!(packed.err().map(|error| error.output), Some(2));
}

#[test]
fn absurd_scales_are_refused() {
    for absurd in [f32::NAN, f32::INFINITY, -1e9] {
        let packed = PackedMatrix::new(2, 32, Form::Q8_0, |output, _| {
            let mut group = WeightGroup::zeros(Form::Q8_0);
            group.scale = if output == 1 { absurd } else { 1.0 };
            group
        });
        assert_eq!(packed.err().map(|error| error.output), Some(1));
    }
}

#[test]
fn lent_matrices_are_those_that_were_packed() {
    let forms = [(64, Form::Q4K), (32, Form::F16), (19, Form::Q8_0)];
    let form = |output: usize| forms[usize::from(output >= 64) + usize::from(output >= 96)].1;
    let packed = PackedMatrix::in_sections(512, &forms, |output, index| group(output, index, form(output))).unwrap();
    let (mut bytes, mut sections) = (vec![0_u8; 64], Vec::new());
    for part in packed.parts() {
        assert_eq!(section_bytes(part.outputs, 16, part.form), [part.quants.len(), part.scales.len()]);
        let places = [part.quants, part.scales].map(|part| {
            bytes.extend_from_slice(part);
            bytes.len() - part.len()
        });
        sections.push((part.outputs, part.form, places));
    }
    let lender: Lender = std::sync::Arc::new(bytes.clone());
    let lent = PackedMatrix::lent(512, &sections, &lender).unwrap();
    assert_eq!((lent.outputs(), lent.inputs(), lent.bytes()), (packed.outputs(), packed.inputs(), packed.bytes()));
    for output in 0..115 {
        assert!((0..512).all(|input| lent.weight(output, input) == packed.weight(output, input)), "{output}");
    }
    // What is cut short, or begins within a pair of panels, is none.
    bytes.pop();
    let short: Lender = std::sync::Arc::new(bytes);
    assert!(PackedMatrix::lent(512, &sections, &short).is_none());
    sections[0].0 = 63;
    assert!(PackedMatrix::lent(512, &sections, &lender).is_none());
}
