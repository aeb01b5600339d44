//! A file written by the reference `gguf` package: the reader, every decoder and the writer against it.
//!
//! `scripts/golden/quant_blocks.py` makes the file and says what is in it.

use duet_model::gguf::{
    Array, GgufFile, Group, GroupForm, TensorType, Value, summary, writer::GgufWriter, writer::quantise,
};
use std::path::Path;

/// Weights are compared as numbers, without a tolerance: every product is exact in `f32` and every sum is rounded once
/// by both sides. (As numbers and not as bits because `d * (8 - 8)` and `d * 8 - d * 8` differ in the sign of zero.)
#[test]
fn gguf_every_type_dequantises_as_the_reference_does() {
    let file = reference();
    for kind in TensorType::ALL {
        let blocks = file.tensor(&format!("{}.blocks", kind.name())).unwrap();
        let weights = file.tensor(&format!("{}.weights", kind.name())).unwrap();
        assert_eq!(blocks.info.kind, kind);
        assert_eq!((blocks.info.rows(), blocks.info.row_len()), (3, 512));
        for row in 0..3 {
            let mut actual = vec![0.0; 512];
            let mut expected = vec![0.0; 512];
            blocks.dequantize_row(row, &mut actual);
            weights.dequantize_row(row, &mut expected);
            for (i, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                assert!(actual == expected, "{} row {row} weight {i}: {actual:e}, not {expected:e}", kind.name());
            }
        }
    }
}

#[test]
fn gguf_groups_hold_the_same_weights() {
    let file = reference();
    let mut clamped = 0;
    for kind in TensorType::ALL {
        let Some(form) = kind.group_form() else { continue };
        let blocks = file.tensor(&format!("{}.blocks", kind.name())).unwrap();
        let mut row = vec![0.0; 512];
        let mut groups = [Group::default(); 16];
        for index in 0..3 {
            blocks.dequantize_row(index, &mut row);
            blocks.groups_row(index, &mut groups);
            let stored = blocks.row_bytes(index);
            for (at, (group, expected)) in groups.iter().zip(row.as_chunks::<32>().0).enumerate() {
                check_form(group, form);
                let mut weights = [0.0; 32];
                group.weights(&mut weights);
                for (i, (weight, expected)) in weights.iter().zip(expected).enumerate() {
                    // The one difference: a -128 in a block of Q8_0 is given as -127.
                    if kind == TensorType::Q8_0 && stored[at * 34 + 2 + i] == 0x80 {
                        assert_eq!(*weight, -127.0 * group.scale);
                        clamped += 1;
                    } else {
                        assert_eq!(weight.to_bits(), expected.to_bits(), "{} weight {i}", kind.name());
                    }
                }
            }
        }
    }
    assert_ne!(clamped, 0, "the file has some -128");
}

fn check_form(group: &Group, form: GroupForm) {
    let (GroupForm::Nibble { zero } | GroupForm::Byte { zero }) = form;
    if let Some(zero) = zero {
        assert_eq!(group.min, -f32::from(zero) * group.scale);
    }
    if matches!(form, GroupForm::Nibble { .. }) {
        assert!(group.quants.iter().all(|&quant| quant < 16));
    }
}

#[test]
fn gguf_every_value_type_is_read() {
    let file = reference();
    let expected = [
        ("general.architecture", Value::String("test".into())),
        ("value.u8", Value::U8(200)),
        ("value.i8", Value::I8(-100)),
        ("value.u16", Value::U16(60000)),
        ("value.i16", Value::I16(-30000)),
        ("value.u32", Value::U32(4_000_000_000)),
        ("value.i32", Value::I32(-2_000_000_000)),
        ("value.u64", Value::U64(1 << 63)),
        ("value.i64", Value::I64(i64::MIN)),
        ("value.f32", Value::F32(0.5)),
        ("value.f64", Value::F64(1e300)),
        ("value.bool", Value::Bool(true)),
        ("value.string", Value::String("duet: ✓".into())),
        ("array.string", Value::Array(Array::String(["a", "", "Ġé"].into_iter().collect()))),
        ("array.i32", Value::Array(Array::I32(vec![1, -2, 3]))),
        ("array.f32", Value::Array(Array::F32(vec![0.0, -1.5]))),
        ("array.bool", Value::Array(Array::Bool(vec![true, false]))),
    ];
    let actual: Vec<_> = file.metadata().iter().collect();
    assert_eq!(actual.len(), expected.len());
    for ((key, value), (expected_key, expected)) in actual.into_iter().zip(&expected) {
        assert_eq!((key, value), (*expected_key, expected));
    }
    assert_eq!(file.version(), 3);
}

/// What the reference wrote, our writer writes again to the byte.
#[test]
fn gguf_rewriting_the_reference_file_changes_nothing() {
    let file = reference();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        writer.metadata(key, value.clone()).unwrap();
    }
    for info in file.tensors() {
        let data = file.tensor(&info.name).unwrap().data();
        writer.tensor(&info.name, &info.shape, info.kind, data).unwrap();
    }
    assert!(writer.to_bytes() == std::fs::read(path()).unwrap());
}

#[test]
fn gguf_quantisers_give_the_blocks_of_the_reference() {
    let file = reference();
    let source = file.tensor("source").unwrap();
    let check = |kind: &str, quantise: fn(&[f32]) -> Vec<u8>| {
        let expected = file.tensor(&format!("{kind}.quantised")).unwrap();
        let mut row = vec![0.0; 512];
        for index in 0..3 {
            source.dequantize_row(index, &mut row);
            assert_eq!(quantise(&row), expected.row_bytes(index), "{kind} row {index}");
        }
    };
    check("Q8_0", quantise::q8_0);
    check("Q4_0", quantise::q4_0);
    check("Q4_1", quantise::q4_1);
}

#[test]
fn gguf_summary_adds_up() {
    let file = reference();
    let summary = summary(&file);
    assert_eq!(summary.tensors, 36);
    assert_eq!(summary.elements, 36 * 3 * 512);
    assert_eq!(summary.kinds.len(), 16);
    // 16 of expected weights, one of blocks, one to be quantised.
    assert_eq!((summary.kinds[0].kind, summary.kinds[0].tensors), (TensorType::F32, 18));
    assert_eq!(summary.kinds[0].bytes.0, 18 * 3 * 512 * 4);
    assert_eq!(summary.bytes.0, summary.kinds.iter().map(|kind| kind.bytes.0).sum::<u64>());
}

fn reference() -> GgufFile {
    GgufFile::open(&path()).unwrap()
}

fn path() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quant_blocks.gguf")
}
