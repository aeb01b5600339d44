//! A valid file, damaged at random: opening it must answer, soon, and never panic; and what it accepts must be whole.
//!
//! `fuzz/` does the same with coverage to guide it; this one needs no special toolchain and runs with every test.

use duet_model::gguf::{
    Array, GgufFile, Group, TensorType, Texts, Value, summary,
    writer::{GgufWriter, quantise},
};
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use std::time::{Duration, Instant};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16_384,
        // A failure is printed as the shortest list of mutations, which is what a named test needs.
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn gguf_mutations_never_panic(mutations in prop::collection::vec(mutation(), 1..6)) {
        let mut file = valid_file();
        for mutation in mutations {
            mutation.apply(&mut file);
        }
        read_everything(file);
    }

    #[test]
    fn gguf_random_bytes_after_the_version_never_panic(body in prop::collection::vec(any::<u8>(), 0..512)) {
        read_everything([b"GGUF\x03\0\0\0".to_vec(), body].concat());
    }
}

#[test]
fn gguf_every_cut_is_noticed() {
    let file = valid_file();
    // The padding after the last tensor may be missing.
    let needed = file.len() - file.iter().rev().take_while(|&&byte| byte == 0).count();
    for len in 0..needed {
        assert!(GgufFile::from_bytes(file[..len].to_vec()).is_err(), "cut at {len}");
    }
}

#[test]
fn gguf_the_undamaged_file_is_read() {
    let file = GgufFile::from_bytes(valid_file()).unwrap();
    assert_eq!(file.tensors().len(), TensorType::ALL.len() + 3);
    assert!(file.metadata().strings("array.string").unwrap().iter().eq(["duet", "", "two"]));
    assert!(read_everything(valid_file()));
}

/// One act of damage. Positions are scaled to the file, so that shrinking moves them to its start.
#[derive(Clone, Debug)]
enum Mutation {
    FlipBit { at: Position, bit: u8 },
    Number { at: Position, width: usize, number: u64 },
    Truncate { at: Position },
    Remove { at: Position, len: usize },
    Repeat { at: Position, len: usize, to: Position },
}

/// Most positions fall in the header, which is where damage is interesting.
#[derive(Clone, Copy, Debug)]
enum Position {
    Header(u16),
    Anywhere(u16),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let position =
        || prop_oneof![4 => any::<u16>().prop_map(Position::Header), 1 => any::<u16>().prop_map(Position::Anywhere)];
    let number = prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(i64::MAX as u64),
        Just(u64::from(u32::MAX)),
        0..100u64,
        (0..64u32).prop_map(|bit| 1 << bit),
        any::<u64>()
    ];
    prop_oneof![
        3 => (position(), 0..8u8).prop_map(|(at, bit)| Mutation::FlipBit { at, bit }),
        4 => (position(), prop_oneof![Just(1), Just(4), Just(8)], number)
            .prop_map(|(at, width, number)| Mutation::Number { at, width, number }),
        1 => position().prop_map(|at| Mutation::Truncate { at }),
        1 => (position(), 1..64usize).prop_map(|(at, len)| Mutation::Remove { at, len }),
        1 => (position(), 1..64usize, position()).prop_map(|(at, len, to)| Mutation::Repeat { at, len, to }),
    ]
}

impl Mutation {
    fn apply(&self, file: &mut Vec<u8>) {
        match *self {
            Self::FlipBit { at, bit } => {
                let at = at.within(file.len());
                if let Some(byte) = file.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Number { at, width, number } => {
                let start = at.within(file.len());
                for (byte, new) in file[start..].iter_mut().take(width).zip(number.to_le_bytes()) {
                    *byte = new;
                }
            }
            Self::Truncate { at } => file.truncate(at.within(file.len())),
            Self::Remove { at, len } => {
                let start = at.within(file.len());
                file.drain(start..(start + len).min(file.len()));
            }
            Self::Repeat { at, len, to } => {
                let start = at.within(file.len());
                let piece = file[start..(start + len).min(file.len())].to_vec();
                let to = to.within(file.len());
                file.splice(to..to, piece);
            }
        }
    }
}

impl Position {
    fn within(self, len: usize) -> usize {
        let (part, of) = match self {
            Self::Header(part) => (part, len.min(HEADER_LEN)),
            Self::Anywhere(part) => (part, len),
        };
        (usize::from(part) * of) >> 16
    }
}

/// Opens a file and, if that succeeds, asks for everything in it. Returns whether it did.
fn read_everything(file: Vec<u8>) -> bool {
    let len = file.len();
    let start = Instant::now();
    let opened = GgufFile::from_bytes(file);
    // Real openings of such small files take microseconds. A clock is the only witness of a loop over a hostile count;
    // the bound is wide enough for the busiest machine.
    assert!(start.elapsed() < Duration::from_secs(5), "opening took {:?}", start.elapsed());
    let Ok(file) = opened else { return false };

    let metadata = file.metadata();
    for (key, value) in metadata.iter() {
        assert_eq!(metadata.get(key).map(Value::type_name), Some(value.type_name()));
        let _ = (metadata.u32(key), metadata.f32(key), metadata.bool(key), metadata.str(key));
        let _ = (metadata.strings(key), metadata.f32s(key), metadata.i32s(key), metadata.u32s(key));
    }
    assert!(summary(&file).bytes.0 <= len as u64);
    for info in file.tensors() {
        let tensor = file.tensor(&info.name).unwrap();
        assert_eq!(tensor.info, info);
        assert_eq!(tensor.data().len(), info.bytes());
        let mut row = vec![0.0; info.row_len()];
        let mut groups = vec![Group::default(); info.row_len() / 32];
        for index in 0..info.rows() {
            tensor.dequantize_row(index, &mut row);
            if info.kind.group_form().is_some() {
                tensor.groups_row(index, &mut groups);
            }
        }
    }
    true
}

/// One entry of each kind and one tensor of each type.
fn valid_file() -> Vec<u8> {
    let mut writer = GgufWriter::new();
    let values = [
        ("u8", Value::U8(1)),
        ("i16", Value::I16(-2)),
        ("u64", Value::U64(3)),
        ("f64", Value::F64(0.25)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("some text".into())),
        ("general.alignment", Value::U32(32)),
        ("array.u8", Value::Array(Array::U8(vec![1, 2, 3]))),
        ("array.i32", Value::Array(Array::I32(vec![-1, 2]))),
        ("array.f32", Value::Array(Array::F32(vec![0.5, f32::NAN]))),
        ("array.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("array.string", Value::Array(Array::String(["duet", "", "two"].into_iter().collect()))),
        ("array.array", Value::Array(Array::Array(vec![Array::U16(vec![1]), Array::String(Texts::default())]))),
    ];
    for (key, value) in values {
        writer.metadata(key, value).unwrap();
    }
    let weights: Vec<f32> = (0..64).map(|i| (i as f32 - 20.0) * 0.1).collect();
    writer.tensor("some.q8_0", &[32, 2], TensorType::Q8_0, quantise::q8_0(&weights)).unwrap();
    writer.tensor("some.q4_0", &[64], TensorType::Q4_0, quantise::q4_0(&weights)).unwrap();
    writer.tensor("some.q4_1", &[32, 1, 2], TensorType::Q4_1, quantise::q4_1(&weights)).unwrap();
    for kind in TensorType::ALL {
        // The high half-precision bytes are NaN in part of these: weights are data.
        let data: Vec<u8> = (0..2 * kind.block_bytes()).map(|i| (i * 37 + 252) as u8).collect();
        writer.tensor(kind.name(), &[kind.block_elements() as u64, 2], kind, data).unwrap();
    }
    writer.to_bytes()
}

/// A little less than the header of [`valid_file`].
const HEADER_LEN: usize = 1280;
