//! `duet bench graphs` on a tiny model and OpenVINO's CPU device. Skipped, with a word, where there is no runtime.

use duet_bench::graphs::{self, Bed, GraphsError, Line, Method, Part, Settings};
use duet_model::{LoadOptions, Model};
use duet_openvino::{Activations, CompileOptions, Runtime};
use duet_runtimes::BlobCache;
use duet_types::{Bytes, Tokens};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// The lines of some parts, as they are printed with `--json`.
fn measure(parts: &[Part]) -> Option<Result<Vec<serde_json::Value>, GraphsError>> {
    let runtime = duet_testing::loaded(Runtime::load())?;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    let model = Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let bed = Bed {
        model,
        device: Arc::new(
            runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED)),
        ),
        threads: 1,
        cache,
    };
    let settings = Settings {
        parts: parts.to_vec(),
        samples: 1,
        lengths: vec![Tokens(20)],
        output: 4,
        methods: Method::all(),
        blocks: NonZeroUsize::new(2).unwrap(),
    };
    let mut lines = Vec::new();
    let mut tell = |line: Line| {
        assert!(!line.to_string().is_empty());
        lines.push(serde_json::to_value(&line).unwrap());
    };
    Some(graphs::run(&bed, &settings, &|_| {}, &mut tell).map(|()| lines))
}

#[test]
fn every_block_in_every_shape_has_its_figures() {
    let Some(lines) = measure(&[Part::Blocks]) else { return };
    let lines = lines.unwrap();
    let of = |name: &str| lines.iter().filter(|line| line["setting"].as_str().unwrap().starts_with(name)).count();
    // Three static shapes and one of any rows.
    assert_eq!(["qkv", "feed-forward", "head", "experts-4", "launch"].map(of), [4, 4, 4, 4, 3]);
    for line in lines.iter().filter(|line| line.get("bytes").is_some()) {
        for key in ["compile_ms", "export_ms", "load_ms", "ms_per_token"] {
            assert!(line[key].as_f64().unwrap() > 0.0, "{key} of {line}");
        }
        assert!(line["bytes"].as_u64().unwrap() > 0, "{line}");
    }
}

#[test]
fn experts_are_launched_once_for_each_or_once_for_all() {
    let Some(lines) = measure(&[Part::Experts]) else { return };
    for line in lines.unwrap() {
        assert!(line["launches_apart"].as_u64().unwrap() >= 4, "{line}");
        let (apart, grouped) = (line["apart_us"].as_f64().unwrap(), line["grouped_us"].as_f64().unwrap());
        assert!((line["speedup"].as_f64().unwrap() - apart / grouped).abs() < 1e-9, "{line}");
    }
}

#[test]
fn a_model_whose_context_is_too_short_is_said_to_be() {
    for part in [Part::Progressive, Part::Exact, Part::EndToEnd] {
        let Some(refused) = measure(&[part]) else { return };
        let error = refused.unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("context"), "{error}");
    }
}
