//! Models in several files.

use duet_model::gguf::writer::GgufWriter;
use duet_model::gguf::{GgufFile, Value};
use duet_model::{LoadOptions, Model};
use std::path::{Path, PathBuf};

const PARTS: usize = 3;

fn whole() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden_qwen2.gguf")
}

fn name(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("m-{:05}-of-{PARTS:05}.gguf", index + 1))
}

/// The tiny Qwen in parts: the first has what is said of it, and no tensor, as files of one size limit may.
fn split(folder: &Path) {
    let file = GgufFile::open(&whole()).unwrap();
    for index in 0..PARTS {
        let mut writer = GgufWriter::new();
        if index == 0 {
            for (key, value) in file.metadata().iter() {
                writer.metadata(key, value.clone()).unwrap();
            }
        }
        writer.metadata("split.no", Value::U16(index as u16)).unwrap();
        writer.metadata("split.count", Value::U16(PARTS as u16)).unwrap();
        let share = file.tensors().len().div_ceil(PARTS - 1);
        let tensors = file.tensors().chunks(share).nth(index.wrapping_sub(1)).unwrap_or_default();
        for info in tensors {
            let data = file.tensor(&info.name).unwrap().data();
            writer.tensor(&info.name, &info.shape, info.kind, data).unwrap();
        }
        std::fs::write(name(folder, index), writer.to_bytes()).unwrap();
    }
}

fn refusal(path: &Path) -> String {
    GgufFile::open(path).err().unwrap().to_string()
}

#[test]
fn parts_are_one_model() {
    let folder = tempfile::tempdir().unwrap();
    split(folder.path());
    let (file, expected) = (GgufFile::open(&name(folder.path(), 0)).unwrap(), GgufFile::open(&whole()).unwrap());
    assert_eq!(file.tensors().len(), expected.tensors().len());
    for info in expected.tensors() {
        assert_eq!(
            file.tensor(&info.name).unwrap().data(),
            expected.tensor(&info.name).unwrap().data(),
            "{}",
            info.name
        );
    }
    let load = |path: &Path| Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(load(&name(folder.path(), 0)).weight_bytes(), load(&whole()).weight_bytes());
    // Whoever writes the file again writes it whole.
    assert!(file.metadata().iter().all(|(key, _)| !key.starts_with("split.")));
}

#[test]
fn what_is_missing_or_another_part_is_named() {
    let folder = tempfile::tempdir().unwrap();
    split(folder.path());
    let [first, second, third] = [0, 1, 2].map(|index| name(folder.path(), index));
    let refused = refusal(&second);
    assert!(refused.contains("part 2 of 3; name the first one") && refused.contains("m-00001-of-00003"), "{refused}");
    let elsewhere = folder.path().join("m.gguf");
    std::fs::copy(&first, &elsewhere).unwrap();
    let refused = refusal(&elsewhere);
    assert!(refused.contains("NAME-00001-of-00003.gguf"), "{refused}");
    std::fs::copy(&second, &third).unwrap();
    let refused = refusal(&first);
    assert!(refused.contains("part 2 of 3, where its name says part 3 of 3"), "{refused}");
    std::fs::remove_file(&third).unwrap();
    let refused = refusal(&first);
    assert!(refused.contains("m-00003-of-00003.gguf: cannot open the file"), "{refused}");
}
