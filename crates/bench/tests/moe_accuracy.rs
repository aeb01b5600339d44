//! `duet bench moe --only accuracy` on a tiny model, without a device and with OpenVINO's CPU.

use duet_bench::moe::accuracy::{AccuracyError, Line, Mode, Settings, Target, measure};
use duet_model::{LoadOptions, Model};
use duet_moe::Provision;
use duet_offload::Saliency;
use duet_openvino::{Activations, CompileOptions, Runtime};
use duet_runtimes::BlobCache;
use duet_types::{Bytes, Tokens};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn model(name: &str) -> Arc<Model> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    let path = folder.join(format!("golden_{name}.gguf"));
    Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap())
}

/// Questions that are asked after a few words, eight of each kind.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut quiz, mut text) = (String::new(), String::new());
    for item in 0..8 {
        let right = if item % 3 == 0 { "no" } else { "yes" };
        let words = "the cold sea is wide and ".repeat(1 + item % 2);
        writeln!(
            quiz,
            r#"{{"task": "boolq 0-shot", "messages": [{{"content": "{words}{item} is it so? Answer:"}}], "reference": "{right}"}}"#
        )
        .unwrap();
        writeln!(
            text,
            r#"{{"task": "story", "messages": [{{"content": "{item} ships {words}"}}], "reference": null}}"#
        )
        .unwrap();
    }
    let (quiz_file, text_file) = (folder.join("quiz.jsonl"), folder.join("text.jsonl"));
    std::fs::write(&quiz_file, quiz).unwrap();
    std::fs::write(&text_file, text).unwrap();
    vec![quiz_file, text_file]
}

fn settings(modes: Vec<Mode>) -> Settings {
    Settings { modes, limit: 3, lengths: (Tokens(17), Tokens(200)), threads: 1, target: None }
}

fn pruned(headroom: f64) -> Mode {
    let provision = Provision::Calibrated { tiers_max: 1, headroom };
    Mode::Pruned { provision, saliency: Saliency::AttentionNorm }
}

fn lines(model: &Arc<Model>, data: &[PathBuf], settings: &Settings) -> Result<Vec<Line>, AccuracyError> {
    let mut lines = Vec::new();
    measure(model, data, settings, &|_| {}, &mut |line| lines.push(line)).map(|()| lines)
}

#[test]
fn room_for_all_is_the_exact_model_and_too_little_is_not() {
    let (model, folder) = (model("qwen2moe"), tempfile::tempdir().unwrap());
    let lines = lines(&model, &files(folder.path()), &settings(vec![pruned(1e6), pruned(1e-6)])).unwrap();
    let of = |data: &str| lines.iter().filter(|line| line.data == data).collect::<Vec<_>>();
    assert_eq!(["quiz", "text", "all"].map(|data| of(data).len()), [3, 3, 3]);
    for data in ["quiz", "text", "all"] {
        let [exact, roomy, tight] = of(data)[..] else { unreachable!() };
        assert_eq!((roomy.perplexity, roomy.accuracy), (exact.perplexity, exact.accuracy), "{data}");
        assert_eq!(roomy.capacity.unwrap().dropped, 0.0);
        assert_eq!(roomy.agreement.map(|agreement| agreement.agreement), exact.accuracy.map(|_| 1.0));
        let (dropped, ratio) = (tight.capacity.unwrap().dropped, tight.ratio.unwrap());
        assert!(dropped > 0.0 && dropped < 1.0 && tight.perplexity != exact.perplexity, "{tight}");
        assert!(ratio.perplexity_ratio_low <= ratio.perplexity_ratio, "{tight}");
        assert!(ratio.perplexity_ratio <= ratio.perplexity_ratio_high, "{tight}");
    }
    let [quiz, text, all] = ["quiz", "text", "all"].map(|data| of(data)[0]);
    assert_eq!((quiz.n, text.n, all.n, all.tokens), (3, 3, 6, quiz.tokens + text.tokens));
    assert!(quiz.accuracy.is_some() && text.accuracy.is_none());
    assert!(all.calibrated_on.contains("quiz") && all.calibrated_on.contains("text"));
}

#[test]
fn on_a_device_nothing_is_dropped_and_answers_are_near() {
    let Some(runtime) = duet_testing::loaded(Runtime::load()) else { return };
    let (model, folder) = (model("qwen2moe"), tempfile::tempdir().unwrap());
    let device = runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED));
    let cache = BlobCache::new(folder.path().join("graphs"), Bytes(1 << 30));
    let target = Some(Target { device: Arc::new(device), cache });
    let settings = Settings { target, ..settings(vec![Mode::Padded]) };
    let lines = lines(&model, &files(folder.path())[..1], &settings).unwrap();
    let [exact, padded] = &lines[..] else { unreachable!("{lines:?}") };
    let (capacity, ratio) = (padded.capacity.unwrap(), padded.ratio.unwrap().perplexity_ratio);
    assert!(capacity.dropped == 0.0 && capacity.launches > 0 && capacity.padding > 0.0, "{padded}");
    assert!((0.9..1.1).contains(&ratio) && padded.perplexity != exact.perplexity, "{padded}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    let refused = |name, data: &[PathBuf], settings: &Settings| {
        let error = lines(&model(name), data, settings).unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        error.to_string()
    };
    assert!(refused("llama", &files, &settings(Mode::all())).contains("dense"));
    assert!(refused("qwen2moe", &[], &settings(Mode::all())).contains("no data"));
    assert!(refused("qwen2moe", &[folder.path().join("none.jsonl")], &settings(Mode::all())).contains("none.jsonl"));
    let long = Settings { lengths: (Tokens(1_000_000), Tokens(2_000_000)), ..settings(Mode::all()) };
    assert!(refused("qwen2moe", &files, &long).contains("1000000"));
}
