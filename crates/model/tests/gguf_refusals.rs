//! Files that must be refused, built byte by byte, with the message that a person sees.
//!
//! Nothing here goes through `GgufWriter`, which would not write them.

use duet_model::gguf::GgufFile;

#[test]
fn gguf_other_files_are_told_apart() {
    check(Vec::new(), "not a GGUF file: it begins with nothing (it is empty), a GGUF file begins with \"GGUF\"");
    check(
        b"PK\x03\x04 a zip".to_vec(),
        "not a GGUF file: it begins with \"PK\\x03\\x04\", a GGUF file begins with \"GGUF\"",
    );
    check(b"GG".to_vec(), "not a GGUF file: it begins with \"GG\", a GGUF file begins with \"GGUF\"");
    check(
        b"GGUF\x01\0\0\0".to_vec(),
        "GGUF version 1 is not supported, duet reads versions 2 and 3; convert the model again with a current tool",
    );
    check(
        b"GGUF\x04\0\0\0".to_vec(),
        "GGUF version 4 is not supported, duet reads versions 2 and 3; convert the model again with a current tool",
    );
    let big_endian = "a big-endian GGUF file, which duet does not read; convert it to little-endian";
    check(b"GGUF\0\0\0\x03".to_vec(), big_endian);
    check(b"FUGG\0\0\0\x03".to_vec(), big_endian);
}

#[test]
fn gguf_impossible_counts_fail_before_anything_is_reserved() {
    check(
        Header::new(3, 0, u64::MAX).0,
        "the metadata count is 18446744073709551615, more than the 65536 that duet allows",
    );
    check(
        Header::new(3, 60_000, 0).0,
        "truncated: the tensor count needs 1920000 bytes at offset 16, where the file has 8 left; is the download complete?",
    );
    let strings = Header::new(3, 0, 1).string("tokens").u32(9).u32(8).u64(1 << 60);
    check(
        strings.0,
        "truncated: the metadata value `tokens` needs 9223372036854775808 bytes at offset 54, where the file has 0 left; \
         is the download complete?",
    );
    let numbers = Header::new(3, 0, 1).string("scores").u32(9).u32(6).u64(1 << 62).u64(0);
    check(
        numbers.0,
        "truncated: the metadata value `scores` needs 18446744073709551615 bytes at offset 54, where the file has 8 \
         left; is the download complete?",
    );
    check(
        Header::new(3, 0, 1).u64(u64::MAX).u64(0).0,
        "truncated: the key of metadata entry 0 needs 18446744073709551615 bytes at offset 32, where the file has 8 \
         left; is the download complete?",
    );
}

#[test]
fn gguf_damaged_metadata_is_named() {
    check(
        Header::new(3, 0, 1).string("k").u32(13).u64(0).0,
        "the metadata value `k` has value type 13, which GGUF does not define",
    );
    check(
        Header::new(3, 0, 1).string("k").u32(7).bytes(&[2]).0,
        "the metadata value `k` is a boolean with the byte 2, only 0 and 1 are allowed",
    );
    check(Header::new(3, 0, 1).string("k").u32(8).u64(1).bytes(&[0xff]).0, "the metadata value `k` is not valid UTF-8");
    let mut deep = Header::new(3, 0, 1).string("k").u32(9);
    for _ in 0..1000 {
        deep = deep.u32(9).u64(1);
    }
    check(deep.0, "the metadata value `k` nests arrays more than 4 deep");
    check(
        Header::new(3, 0, 2).string("k").u32(4).u32(1).string("k").u32(4).u32(2).0,
        "the metadata key `k` appears twice",
    );
    for alignment in [0, 4, 24, 1 << 17] {
        check(
            Header::new(3, 0, 1).string("general.alignment").u32(4).u32(alignment).0,
            &format!("general.alignment is {alignment}, it must be a power of two from 8 to 65536"),
        );
    }
    check(
        Header::new(3, 0, 1).string("general.alignment").u32(8).string("32").0,
        "the metadata key `general.alignment` is string, expected u32",
    );
}

#[test]
fn gguf_impossible_tensors_are_named() {
    check(
        Header::new(3, 1, 0).tensor("blk.0.ffn_down.weight", &[256], 16, 0).0,
        "tensor `blk.0.ffn_down.weight` has type IQ2_XXS, which duet does not support; use a file quantised as one of \
         F32, BF16, F16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, IQ4_NL, IQ4_XS, MXFP4, Q3_K, Q2_K",
    );
    check(Header::new(3, 1, 0).string("t").u32(5).bytes(&[0; 64]).0, "tensor `t` has 5 dimensions, 1 to 4 are allowed");
    check(Header::new(3, 1, 0).tensor("t", &[32, 0], 0, 0).0, "tensor `t` has the impossible shape [32, 0]");
    check(
        Header::new(3, 1, 0).tensor("t", &[1 << 40, 1 << 40], 0, 0).0,
        "tensor `t` has the impossible shape [1099511627776, 1099511627776]",
    );
    check(
        Header::new(3, 1, 0).tensor("t", &[100], 12, 0).0,
        "tensor `t` has rows of 100 elements, Q4_K needs a multiple of 256",
    );
    check(
        Header::new(3, 1, 0).tensor("t", &[8], 0, 8).data(64).0,
        "tensor `t` starts at data offset 8, which is not a multiple of the alignment 32",
    );
    check(
        Header::new(3, 1, 0).tensor("t", &[8], 0, 0).data(31).0,
        "truncated: tensor `t` needs 32 bytes at offset 64, where the file has 31 left; is the download complete?",
    );
    check(
        Header::new(3, 1, 0).tensor("t", &[8], 0, u64::MAX - 31).data(32).0,
        "truncated: tensor `t` needs 32 bytes at offset 18446744073709551615, where the file has 0 left; \
         is the download complete?",
    );
    check(
        Header::new(3, 2, 0).tensor("a", &[8], 0, 32).tensor("b", &[16], 0, 0).data(128).0,
        "the tensors `b` and `a` overlap in the file",
    );
    check(
        Header::new(3, 2, 0).tensor("a", &[8], 0, 0).tensor("a", &[8], 0, 32).data(128).0,
        "the tensor `a` appears twice",
    );
}

/// The one thing that differs between the two versions that are read is the number.
#[test]
fn gguf_versions_2_and_3_read_alike() {
    for version in [2, 3] {
        let file = Header::new(version, 1, 1).string("k").u32(4).u32(7).tensor("t", &[2, 2], 0, 0);
        let file = file.data(0).bytes(&1.5f32.to_le_bytes()).bytes(&[0; 12]);
        let file = GgufFile::from_bytes(file.0).unwrap();
        assert_eq!(file.version(), version);
        assert_eq!(file.metadata().u32("k").unwrap(), 7);
        let mut row = [0.0; 2];
        file.tensor("t").unwrap().dequantize_row(0, &mut row);
        assert_eq!(row, [1.5, 0.0]);
        assert!(file.tensor("absent").is_none());
    }
}

#[test]
fn gguf_errors_of_opening_name_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let error = |path| GgufFile::open(path).unwrap_err().to_string();
    let shown = path.display();
    assert!(error(&path).starts_with(&format!("{shown}: cannot open the file: ")));
    assert_eq!(error(dir.path()), format!("{}: not a regular file", dir.path().display()));
    std::fs::write(&path, "").unwrap();
    assert!(error(&path).starts_with(&format!("{shown}: not a GGUF file: it begins with nothing")));
    std::fs::write(&path, Header::new(3, 1, 0).tensor("t", &[64], 8, 0).data(5).0).unwrap();
    assert_eq!(
        error(&path),
        format!(
            "{shown}: truncated: tensor `t` needs 68 bytes at offset 64, where the file has 5 left; \
             is the download complete?"
        )
    );
}

fn check(file: Vec<u8>, message: &str) {
    assert_eq!(GgufFile::from_bytes(file).unwrap_err().to_string(), message);
}

/// A file, field by field.
struct Header(Vec<u8>);

impl Header {
    fn new(version: u32, tensors: u64, entries: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(version).u64(tensors).u64(entries)
    }
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
    fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }
    fn u64(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }
    fn string(self, string: &str) -> Self {
        self.u64(string.len() as u64).bytes(string.as_bytes())
    }
    fn tensor(self, name: &str, shape: &[u64], kind: u32, offset: u64) -> Self {
        let named = self.string(name).u32(shape.len() as u32);
        shape.iter().fold(named, |header, &dim| header.u64(dim)).u32(kind).u64(offset)
    }
    /// Pads to the data part, then `len` zeros.
    fn data(mut self, len: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 0);
        self
    }
}
