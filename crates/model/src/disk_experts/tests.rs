use super::{ExpertReads, IfMissing, Wave};
use crate::forward::{Activations, Came, Pass, Segment};
use crate::gguf::GgufFile;
use crate::kv::KvFormat;
use crate::{ExpertMemoryError, ExpertUnread, LoadError, LoadOptions, Model, Packing, Unusable};
use duet_kernels::crew::{Crew, Scoped, Solo};
use duet_moe::{Calibration, LayerCounts, Load};
use duet_types::{Bytes, Class, TokenId, Tokens};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Mixtures of all kinds: with shared experts, biases, layers without experts, and other rules of choice.
const MIXTURES: [&str; 10] = [
    "mixtral",
    "olmoe",
    "qwen2moe",
    "qwen3moe",
    "phimoe",
    "gptoss",
    "gptoss_mxfp4",
    "glm4moe",
    "lfm2moe",
    "gemma4_experts",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/golden_{name}.gguf"))
}

fn in_memory(name: &str) -> Model {
    Model::load(&fixture(name), &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn options(folder: &Path, memory: u64) -> LoadOptions {
    LoadOptions { packed: Some(folder.to_owned()), expert_memory: Some(Bytes(memory)), ..LoadOptions::default() }
}

fn load(name: &str, folder: &Path, memory: u64) -> Result<Model, LoadError> {
    Model::load(&fixture(name), &options(folder, memory), &mut |_| {})
}

/// Packs a model and says where.
fn pack(name: &str, folder: &Path) -> PathBuf {
    let Err(LoadError::NotPacked { path, .. }) = load(name, folder, u64::MAX >> 8) else { panic!("{name}") };
    let file = File::create(&path).unwrap();
    Model::pack_into(&GgufFile::open(&fixture(name)).unwrap(), &file, &options(folder, 0), &mut |_| {}).unwrap();
    path
}

/// The least memory that will do, by the refusal of less.
fn least(name: &str, folder: &Path) -> u64 {
    match load(name, folder, 1) {
        Err(LoadError::ExpertMemory(ExpertMemoryError::TooSmall { least, .. })) => least.0,
        other => panic!("{:?}", other.map(drop)),
    }
}

/// Logits of all rows, in chunks of so many.
fn logits(model: &Model, chunk: usize, crew: &dyn Crew) -> Result<Vec<f32>, ExpertUnread> {
    let mut kv = model.kv_pool(KvFormat::Int8, Tokens(64)).table();
    let tokens: Vec<TokenId> = (0..40).map(|i| TokenId(i * 7 % 250)).collect();
    let mut all = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let rows = tokens.len();
        let mut pass = Pass::new(model, Activations::new(model, 64), vec![Segment::new(kv, tokens.to_vec())]).unwrap();
        for node in model.nodes() {
            model.try_run_node(&mut pass, node, 0..rows, crew)?;
        }
        let mut logits = Vec::new();
        model.logits(&mut pass, &(0..rows).collect::<Vec<_>>(), &mut logits, crew);
        all.extend_from_slice(&logits[..rows * model.config().vocabulary]);
        kv = pass.finish().1.remove(0);
    }
    Ok(all)
}

#[test]
fn experts_on_disk_are_those_in_memory_to_the_bit() {
    for name in MIXTURES {
        let folder = tempfile::tempdir().unwrap();
        let expected = logits(&in_memory(name), 40, &Solo).unwrap();
        pack(name, folder.path());
        let least = least(name, folder.path());
        for memory in [least, 2 * least, 1 << 30] {
            let model = load(name, folder.path(), memory).unwrap();
            assert!(model.expert_memory().unwrap() <= Bytes(memory), "{name}");
            assert_eq!(model.weight_bytes(), in_memory(name).weight_bytes(), "{name}");
            for (chunk, crew) in [(40, &Solo as &dyn Crew), (7, &Scoped { threads: 2 }), (1, &Solo)] {
                assert!(logits(&model, chunk, crew).unwrap() == expected, "{name}: {memory} bytes, chunks of {chunk}");
            }
            let stats = model.expert_memory_stats().unwrap();
            let experts: usize = model.blueprint().experts.unwrap().count * model.config().layers;
            if memory == 1 << 30 {
                assert!(stats.cache.misses <= experts as u64, "{name}: each is read once");
            } else {
                assert!(stats.cache.misses > 0 && stats.read > Bytes(0), "{name}");
            }
        }
    }
}

#[test]
fn a_pass_tells_what_it_had_to_wait_for() {
    let (name, folder) = (MIXTURES[0], tempfile::tempdir().unwrap());
    pack(name, folder.path());
    let model = load(name, folder.path(), least(name, folder.path())).unwrap();
    let reads = |model: &Model| {
        let kv = model.kv_pool(KvFormat::Int8, Tokens(64)).table();
        let segments = vec![Segment::new(kv, vec![TokenId(3), TokenId(7)])];
        let mut pass = Pass::new(model, Activations::new(model, 2), segments).unwrap();
        model.nodes().into_iter().for_each(|node| model.run_node(&mut pass, node, 0..2, &Solo));
        pass.expert_reads()
    };
    let first = reads(&model);
    assert!(first.experts > 0, "nothing was in memory");
    assert_eq!(first.bytes.0 % first.experts, 0, "all are as large");
    assert_eq!(reads(&in_memory(name)), ExpertReads::default());
}

/// The same logits by passes that leave where experts are missing, and how often they left.
fn logits_leaving(model: &Model, chunk: usize, crew: &dyn Crew) -> Result<(Vec<f32>, usize), ExpertUnread> {
    let mut kv = model.kv_pool(KvFormat::Int8, Tokens(64)).table();
    let tokens: Vec<TokenId> = (0..40).map(|i| TokenId(i * 7 % 250)).collect();
    let (mut all, mut left) = (Vec::new(), 0);
    for tokens in tokens.chunks(chunk) {
        let rows = tokens.len();
        let mut pass = Pass::new(model, Activations::new(model, 64), vec![Segment::new(kv, tokens.to_vec())]).unwrap();
        for node in model.nodes() {
            while let Came::ToMissing(_) = model.run_node_or_leave(&mut pass, node, 0..rows, crew)? {
                left += 1;
                let (told, hears) = std::sync::mpsc::channel();
                let now = pass.when_ready(Box::new(move || told.send(()).unwrap()));
                now.into_iter().for_each(|tell| tell());
                hears.recv().unwrap();
            }
        }
        let mut logits = Vec::new();
        model.logits(&mut pass, &(0..rows).collect::<Vec<_>>(), &mut logits, crew);
        all.extend_from_slice(&logits[..rows * model.config().vocabulary]);
        kv = pass.finish().1.remove(0);
    }
    Ok((all, left))
}

#[test]
fn passes_that_leave_come_to_the_same_to_the_bit() {
    for name in MIXTURES {
        let folder = tempfile::tempdir().unwrap();
        let expected = logits(&in_memory(name), 40, &Solo).unwrap();
        pack(name, folder.path());
        let least = least(name, folder.path());
        for memory in [least, 2 * least, 1 << 30] {
            let model = load(name, folder.path(), memory).unwrap();
            let mut all_left = 0;
            for (chunk, crew) in [(40, &Solo as &dyn Crew), (7, &Scoped { threads: 2 }), (1, &Solo)] {
                let (logits, left) = logits_leaving(&model, chunk, crew).unwrap();
                assert!(logits == expected, "{name}: {memory} bytes, chunks of {chunk}");
                all_left += left;
            }
            assert_eq!(model.expert_memory_stats().unwrap().given_back, all_left as u64, "{name}");
            // What is read before anybody looks for it is not waited for, which a busy machine may do once and again.
            let leaves = || logits_leaving(&load(name, folder.path(), memory).unwrap(), 40, &Solo).unwrap().1 > 0;
            let has_room = memory == 1 << 30;
            assert!(!has_room || all_left > 0 || (0..50).any(|_| leaves()), "{name}: there is room to wait");
        }
    }
}

#[test]
fn passes_that_leave_leave_room_for_those_that_do_not() {
    let folder = tempfile::tempdir().unwrap();
    pack("olmoe", folder.path());
    let least = least("olmoe", folder.path());
    let expected = logits(&in_memory("olmoe"), 40, &Solo).unwrap();
    for memory in [least, 2 * least] {
        let model = load("olmoe", folder.path(), memory).unwrap();
        std::thread::scope(|scope| {
            for chunk in [1, 3, 40] {
                let (model, expected) = (&model, &expected);
                scope.spawn(move || (0..5).for_each(|_| assert!(logits(model, chunk, &Solo).unwrap() == *expected)));
                scope.spawn(move || {
                    (0..5).for_each(|_| assert!(logits_leaving(model, chunk, &Solo).unwrap().0 == *expected));
                });
            }
        });
    }
}

#[test]
fn a_pass_that_is_given_up_while_it_waits_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    pack("olmoe", folder.path());
    let model = load("olmoe", folder.path(), 1 << 30).unwrap();
    for _ in 0..20 {
        let kv = model.kv_pool(KvFormat::Int8, Tokens(64)).table();
        let tokens = vec![TokenId(7), TokenId(9)];
        let mut pass = Pass::new(&model, Activations::new(&model, 64), vec![Segment::new(kv, tokens)]).unwrap();
        let mut leaves = |node| model.run_node_or_leave(&mut pass, node, 0..2, &Solo).unwrap() != Came::ToItsEnd;
        if model.nodes().into_iter().any(&mut leaves) {
            // Whoever is told is told in vain.
            drop(pass.when_ready(Box::new(|| {})));
        }
        drop(pass.abandon());
    }
    let expected = logits(&in_memory("olmoe"), 40, &Solo).unwrap();
    assert!(logits(&model, 40, &Solo).unwrap() == expected);
}

#[test]
fn a_file_that_was_packed_in_a_stream_is_mapped_by_models_in_memory_too() {
    for name in ["llama", "qwen2moe", "mixtral", "gemma4_experts"] {
        let (folder, expected) = (tempfile::tempdir().unwrap(), logits(&in_memory(name), 40, &Solo).unwrap());
        let mapped = LoadOptions { packed: Some(folder.path().to_owned()), ..LoadOptions::default() };
        let Packing::Packed(path, Unusable::Absent) =
            Model::load(&fixture(name), &mapped, &mut |_| {}).unwrap().packing().clone()
        else {
            panic!("{name}")
        };
        let file = File::create(&path).unwrap();
        Model::pack_into(&GgufFile::open(&fixture(name)).unwrap(), &file, &mapped, &mut |_| {}).unwrap();
        let model = Model::load(&fixture(name), &mapped, &mut |_| {}).unwrap();
        assert_eq!(model.packing(), &Packing::Kept(path));
        assert!(logits(&model, 40, &Solo).unwrap() == expected, "{name}");
    }
}

#[test]
fn passes_side_by_side_share_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    pack("olmoe", folder.path());
    let model = load("olmoe", folder.path(), least("olmoe", folder.path())).unwrap();
    let expected = logits(&in_memory("olmoe"), 40, &Solo).unwrap();
    std::thread::scope(|scope| {
        for chunk in [1, 3, 40] {
            let (model, expected) = (&model, &expected);
            scope.spawn(move || {
                for _ in 0..5 {
                    assert!(logits(model, chunk, &Solo).unwrap() == *expected);
                }
            });
        }
    });
}

#[test]
fn too_little_memory_is_refused_with_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    pack("olmoe", folder.path());
    let least = least("olmoe", folder.path());
    let refused = load("olmoe", folder.path(), least - 1).unwrap_err().to_string();
    for words in [Bytes(least - 1).to_string(), Bytes(least).to_string(), "experts of".to_owned()] {
        assert!(refused.contains(&words), "{refused}");
    }
    assert!(load("olmoe", folder.path(), least).is_ok());
}

#[test]
fn what_has_no_experts_or_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(load("llama", folder.path(), 1 << 20), Err(LoadError::NoExperts)));
    let nowhere = LoadOptions { packed: None, ..options(folder.path(), 1 << 20) };
    assert!(matches!(Model::load(&fixture("olmoe"), &nowhere, &mut |_| {}), Err(LoadError::NoPackedFile)));
}

#[test]
fn a_file_that_changes_is_an_error_and_is_packed_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = pack("qwen3moe", folder.path());
    let expected = logits(&in_memory("qwen3moe"), 40, &Solo).unwrap();
    let least = least("qwen3moe", folder.path());
    let model = load("qwen3moe", folder.path(), least).unwrap();
    assert!(logits(&model, 40, &Solo).unwrap() == expected);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for place in &model.on_disk().unwrap().shared.places[0] {
        let (at, mut byte) = (place.span().start as u64, [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
    // Whatever was read before is right, whatever is read now is found out; no logits differ.
    let Err(error) = logits(&model, 40, &Solo) else { panic!("nobody noticed") };
    assert!(error.to_string().contains("not those that were written"), "{error}");
    assert!(error.to_string().contains("packs the weights anew"), "{error}");
    assert!(!path.exists());
    assert!(matches!(load("qwen3moe", folder.path(), least), Err(LoadError::NotPacked { why: Unusable::Absent, .. })));
    pack("qwen3moe", folder.path());
    assert!(logits(&load("qwen3moe", folder.path(), least).unwrap(), 40, &Solo).unwrap() == expected);
    // Nothing is held by those who failed.
    assert!(logits(&model, 40, &Solo).is_err());
    assert!(path.exists(), "another file has its name by now");
}

#[test]
fn a_file_that_is_cut_short_is_an_error_and_never_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let path = pack("mixtral", folder.path());
    let least = least("mixtral", folder.path());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 64]).unwrap();
    assert!(matches!(load("mixtral", folder.path(), least), Err(LoadError::NotPacked { why: Unusable::Damaged, .. })));
    std::fs::write(&path, &whole).unwrap();
    let model = load("mixtral", folder.path(), least).unwrap();
    // Nothing that is mapped is touched in what follows.
    let store = model.on_disk().unwrap();
    let half = store.shared.places[0][1].span().end as u64;
    OpenOptions::new().write(true).open(&path).unwrap().set_len(half).unwrap();
    let (layers, count) = (model.config().layers, model.blueprint().experts.unwrap().count as u32);
    let read =
        |layer: usize, expert: u32| store.want((layer, Class::Reactive), 1, &[(expert, 1)]).next_wave(IfMissing::Wait);
    let all = (0..layers).flat_map(|layer| (0..count).map(move |expert| (layer, expert)));
    let results: Vec<bool> = all.map(|(layer, expert)| read(layer, expert).is_ok()).collect();
    assert_eq!(results[..3], [true, true, false]);
}

#[test]
fn the_busiest_by_a_calibration_are_read_before_anybody_asks() {
    let folder = tempfile::tempdir().unwrap();
    pack("olmoe", folder.path());
    let model = load("olmoe", folder.path(), 2 * least("olmoe", folder.path())).unwrap();
    let plan = model.blueprint().experts.unwrap();
    let loads = |_| {
        let busy = (0..plan.count).map(|expert| Load(if expert < plan.chosen { 10 } else { 0 }));
        LayerCounts::of(busy.collect())
    };
    let layers = (0..model.config().layers).map(loads).collect();
    model.keep_busiest(&Calibration::new(plan.chosen as u32, Load(10), layers).unwrap());
    let store = model.on_disk().unwrap();
    while store.stats().read == Bytes(0) {
        std::thread::yield_now();
    }
    assert!(store.want((0, Class::Reactive), 1, &[(0, 1)]).next_wave(IfMissing::Wait).unwrap() == Wave::Here);
    assert_eq!(store.stats().cache.misses, 0);
    assert_eq!(logits(&model, 40, &Solo).unwrap(), logits(&in_memory("olmoe"), 40, &Solo).unwrap());
}

#[test]
fn what_was_foreseen_is_there_or_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    pack("olmoe", folder.path());
    let model = load("olmoe", folder.path(), 1 << 30).unwrap();
    let store = model.on_disk().unwrap();
    store.foresee(1, &[2, 3]);
    assert!(store.want((1, Class::Reactive), 1, &[(3, 1), (4, 1)]).next_wave(IfMissing::Wait).unwrap() == Wave::Here);
    let stats = store.stats();
    assert_eq!((stats.predicted, stats.cache.misses, stats.cache.foreseen_used), ([2, 1], 1, 1));
    assert!(logits(&model, 40, &Solo).unwrap() == logits(&in_memory("olmoe"), 40, &Solo).unwrap());
}
