use super::*;
use crate::forward::{Activations, Pass, Segment};
use crate::gguf::writer::GgufWriter;
use crate::gguf::{GgufFile, TensorType};
use crate::kv::KvFormat;
use crate::{LoadError, LoadOptions, Model, PackedFileUse, Packing, WeightsIn};
use duet_kernels::crew::Solo;
use duet_kernels::packed::{Form, Lender};
use duet_types::{TokenId, Tokens};
use proptest::prelude::*;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/golden_{name}.gguf"))
}

fn load(path: &Path, folder: &Path) -> Model {
    let options = LoadOptions { packed: Some(folder.to_owned()), ..LoadOptions::default() };
    Model::load(path, &options, &mut |_| {}).unwrap()
}

/// A file of a model's packed weights.
fn packed(path: &Path) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    Model::pack_into(&GgufFile::open(path).unwrap(), file.as_file(), &LoadOptions::default(), &mut |_| {}).unwrap();
    std::fs::read(file.path()).unwrap()
}

/// Where the weights of a model at `path` were to be kept, which they then are.
fn keep(path: &Path, model: &Model) -> (PathBuf, Unusable) {
    let Packing::Packed(place, why) = model.packing() else { panic!("{:?}", model.packing()) };
    std::fs::write(place, packed(path)).unwrap();
    (place.clone(), *why)
}

fn logits(model: &Model) -> Vec<f32> {
    let kv = model.kv_pool(KvFormat::Int8, Tokens(64)).table();
    let tokens: Vec<TokenId> = (0..40).map(TokenId).collect();
    let mut pass = Pass::new(model, Activations::new(model, 64), vec![Segment::new(kv, tokens)]).unwrap();
    model.run_span(&mut pass, 0..model.node_count(), &Solo);
    let mut logits = Vec::new();
    model.logits(&mut pass, &(0..40).collect::<Vec<_>>(), &mut logits, &Solo);
    logits
}

#[test]
fn a_second_start_maps_what_the_first_packed() {
    let gemmas = ["gemma3", "gemma4", "gemma4_dense", "gemma4_experts"];
    for name in ["llama", "qwen2moe", "mixtral", "lfm2", "qwen3next"].into_iter().chain(gemmas) {
        let folder = tempfile::tempdir().unwrap();
        let first = load(&fixture(name), folder.path());
        let (path, why) = keep(&fixture(name), &first);
        assert_eq!(why, Unusable::Absent);
        let second = load(&fixture(name), folder.path());
        assert_eq!(second.packing(), &Packing::Kept(path), "{name}");
        assert_eq!(second.weight_bytes(), first.weight_bytes());
        assert_eq!(logits(&second), logits(&first), "{name}");
        assert_eq!([first.unread(), second.unread()], [&[] as &[String]; 2], "{name}");
    }
}

#[cfg(unix)]
fn in_own_memory(path: &Path, folder: &Path) -> Model {
    let packed = Some(folder.to_owned());
    let options = LoadOptions { packed, weights_in: WeightsIn::OwnMemory, ..LoadOptions::default() };
    Model::load(path, &options, &mut |_| {}).unwrap()
}

#[cfg(unix)]
#[test]
fn weights_in_memory_of_ones_own_are_those_of_the_file() {
    for name in ["llama", "qwen2moe", "mixtral", "lfm2", "qwen3next", "gemma3", "gemma4_experts"] {
        let folder = tempfile::tempdir().unwrap();
        let first = load(&fixture(name), folder.path());
        let (path, _) = keep(&fixture(name), &first);
        let own = in_own_memory(&fixture(name), folder.path());
        assert_eq!(own.packing(), &Packing::Kept(path), "{name}");
        assert_eq!(logits(&own), logits(&first), "{name}");
        let mapped = load(&fixture(name), folder.path());
        for ((name, matrix), (_, of_file)) in own.weights().matrices().into_iter().zip(mapped.weights().matrices()) {
            assert!(of_file.parts().all(|part| part.regions().iter().all(Option::is_none)), "{name}");
            for part in matrix.parts() {
                let places =
                    [part.quants, part.scales].map(|bytes| part.regions()[0].as_ref().unwrap().place_of(bytes));
                assert!(places.iter().all(|place| place.is_some_and(|place| place.is_multiple_of(64))), "{name}");
            }
        }
    }
}

/// A device is given them together.
#[cfg(unix)]
#[test]
fn experts_of_a_layer_lie_one_behind_the_other_in_memory_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    keep(&fixture("qwen2moe"), &load(&fixture("qwen2moe"), folder.path()));
    let own = in_own_memory(&fixture("qwen2moe"), folder.path());
    let matrices = own.weights().matrices();
    let parts = matrices.iter().filter_map(|(name, matrix)| {
        let (kind, expert) = crate::weights::name_without_expert(name);
        (kind != name).then(|| (kind, expert, matrix.parts().next().unwrap()))
    });
    let parts: Vec<_> = parts.collect();
    assert!(parts.len() > 8);
    for (kind, expert, part) in &parts {
        let (_, _, first) = parts.iter().find(|(other, expert, _)| (other, *expert) == (kind, 0)).unwrap();
        for (first, bytes) in [(first.quants, part.quants), (first.scales, part.scales)] {
            assert_eq!(bytes.as_ptr(), first.as_ptr().wrapping_add(expert * bytes.len()), "{expert} of {kind}");
        }
    }
}

#[cfg(unix)]
#[test]
fn damage_is_found_on_the_way_to_memory_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = keep(&fixture("llama"), &load(&fixture("llama"), folder.path()));
    let mut bytes = std::fs::read(&path).unwrap();
    // Behind the table, in panels.
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let damaged = in_own_memory(&fixture("llama"), folder.path());
    assert_eq!(damaged.packing(), &Packing::Packed(path, Unusable::Damaged));
}

/// A tensor that no architecture reads, of a file that is otherwise a Llama's.
fn with_a_tensor_more(name: &str, folder: &Path) -> PathBuf {
    let file = GgufFile::open(&fixture("llama")).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().iter() {
        writer.metadata(key, value.clone()).unwrap();
    }
    for tensor in file.tensors() {
        let data = file.tensor(&tensor.name).unwrap().data();
        writer.tensor(&tensor.name, &tensor.shape, tensor.kind, data).unwrap();
    }
    writer.tensor(name, &[32], TensorType::F32, &[0; 128]).unwrap();
    let path = folder.join("more.gguf");
    std::fs::write(&path, writer.to_bytes()).unwrap();
    path
}

#[test]
fn what_nothing_reads_is_told_at_every_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_a_tensor_more("blk.0.attn_strange.weight", folder.path());
    let first = load(&path, folder.path());
    keep(&path, &first);
    let second = load(&path, folder.path());
    assert!(matches!(second.packing(), Packing::Kept(_)));
    assert_eq!([first.unread(), second.unread()], [["blk.0.attn_strange.weight"]; 2]);

    let path = with_a_tensor_more("blk.0.attn_q.bias", folder.path());
    let options = LoadOptions { packed: Some(folder.path().to_owned()), ..LoadOptions::default() };
    let error = Model::load(&path, &options, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_q.bias"), "{error}");
}

#[test]
fn what_is_not_just_the_model_s_is_packed_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = keep(&fixture("qwen2"), &load(&fixture("qwen2"), folder.path()));
    let whole = std::fs::read(&path).unwrap();
    let why = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        match load(&fixture("qwen2"), folder.path()).packing() {
            Packing::Packed(_, why) => Some(*why),
            _ => None,
        }
    };
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] ^= byte;
        bytes
    };
    assert_eq!(why(&whole), None);
    assert_eq!(why(b""), Some(Unusable::Foreign));
    assert_eq!(why(b"GGUF"), Some(Unusable::Foreign));
    assert_eq!(why(&with(0, 1)), Some(Unusable::Foreign));
    assert_eq!(why(&with(8, 2)), Some(Unusable::Version));
    assert_eq!(why(&with(30, 1)), Some(Unusable::OtherModel));
    assert_eq!(why(&with(HEADER + 5, 1)), Some(Unusable::Damaged));
    assert_eq!(why(&whole[..whole.len() - ALIGNMENT]), Some(Unusable::Damaged));
    // What is wrong is only that another model has the name.
    let (other, _) = keep(&fixture("llama"), &load(&fixture("llama"), folder.path()));
    assert_eq!(why(&std::fs::read(other).unwrap()), Some(Unusable::OtherModel));
}

#[test]
fn a_file_that_was_changed_in_place_is_packed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let whole = std::fs::read(fixture("llama")).unwrap();
    std::fs::write(&path, &whole).unwrap();
    keep(&path, &load(&path, folder.path()));
    assert!(matches!(load(&path, folder.path()).packing(), Packing::Kept(_)));
    // A byte that the identity does not show, within a tensor of several kilobytes.
    let identity = |path: &Path| {
        let mut shown = Vec::new();
        GgufFile::open(path).unwrap().identity(&mut |bytes| shown.extend_from_slice(bytes));
        shown
    };
    let before = identity(&path);
    let hidden = (0..whole.len()).rev().step_by(64).find(|&at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        identity(&path) == before
    });
    assert!(hidden.is_some());
    assert!(matches!(load(&path, folder.path()).packing(), Packing::Packed(_, Unusable::Absent)));
}

#[test]
fn a_file_with_other_matrices_is_not_used_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let model = load(&fixture("llama"), folder.path());
    let Packing::Packed(path, _) = model.packing() else { panic!("{:?}", model.packing()) };
    let all = model.weights().matrices();
    let file = File::create(path).unwrap();
    let writer = StreamWriter::begin(&file, model.file().digest(), all.len());
    writer.matrices(&all[1..]).unwrap();
    writer.finish().unwrap();
    let again = load(&fixture("llama"), folder.path());
    assert_eq!(again.packing(), &Packing::Packed(path.clone(), Unusable::Packing));
    assert_eq!(logits(&again), logits(&model));
    let refuse = LoadOptions {
        packed: Some(folder.path().to_owned()),
        packed_file: PackedFileUse::OrRefuse,
        ..LoadOptions::default()
    };
    let refused = Model::load(&fixture("llama"), &refuse, &mut |_| {}).map(drop);
    assert!(matches!(refused, Err(LoadError::NotPacked { why: Unusable::Packing, .. })), "{refused:?}");
}

#[test]
fn a_file_that_was_just_written_is_read_when_it_is_needed() {
    for name in ["llama", "gemma3", "qwen2moe"] {
        let folder = tempfile::tempdir().unwrap();
        let path = fixture(name);
        let of = |packed_file| {
            let options = LoadOptions { packed: Some(folder.path().to_owned()), packed_file, ..LoadOptions::default() };
            Model::load(&path, &options, &mut |_| {})
        };
        let Err(LoadError::NotPacked { path: place, why: Unusable::Absent }) = of(PackedFileUse::OrRefuse) else {
            panic!("{name}")
        };
        std::fs::write(&place, packed(&path)).unwrap();
        let model = of(PackedFileUse::JustWritten).unwrap();
        assert_eq!(model.packing(), &Packing::Kept(place), "{name}");
        assert_eq!(logits(&model), logits(&load(&path, Path::new("nowhere"))), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Wherever a byte differs or the file ends, it is not used, or the byte is of no weight; and nothing panics.
    #[test]
    fn no_damage_is_used(at in any::<prop::sample::Index>(), byte in 1_u8.., cut in any::<bool>()) {
        let model = Model::load(&fixture("olmoe"), &LoadOptions::default(), &mut |_| {}).unwrap();
        let (digest, mut bytes) = (model.file().digest(), packed(&fixture("olmoe")));
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= byte }
        let damaged: Lender = Arc::new(bytes);
        if let Ok(opened) = PackedFile::check(damaged, &digest, (Check::All, 1)) {
            for (name, matrix) in model.weights().matrices() {
                let forms: Vec<(usize, Form)> = matrix.parts().map(|part| (part.outputs, part.form)).collect();
                let found = opened.matrix(&name, matrix.inputs(), &forms).unwrap();
                let same = found.parts().zip(matrix.parts()).all(|(a, b)| a.quants == b.quants && a.scales == b.scales);
                prop_assert!(same, "{name}");
            }
        }
    }
}
