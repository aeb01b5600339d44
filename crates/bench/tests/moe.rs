//! `duet bench moe` on a tiny model and OpenVINO's CPU device. Skipped, with a word, where there is no runtime.

use duet_bench::graphs::Bed;
use duet_bench::moe::{self, Counts, CountsFrom, Line, MoeError, Part, Settings};
use duet_model::{LoadOptions, Model};
use duet_offload::{ExpertScheme, expert_file, write_experts};
use duet_openvino::{Activations, CompileOptions, Runtime};
use duet_runtimes::BlobCache;
use duet_types::{Bytes, Tokens};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

fn load(name: &str) -> Arc<Model> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    Arc::new(Model::load(&folder.join(format!("golden_{name}.gguf")), &LoadOptions::default(), &mut |_| {}).unwrap())
}

/// Two chunks, the second one shorter than what is worth a launch of all.
const PROMPT: u32 = 70;

fn settings(model: &Model, parts: &[Part]) -> Settings {
    Settings {
        parts: parts.to_vec(),
        samples: 1,
        group_sizes: [1, 4, 64].into_iter().filter_map(NonZeroUsize::new).collect(),
        capacities: vec![Tokens(16), Tokens(32)],
        schemes: ExpertScheme::ALL.to_vec(),
        chunks: vec![Tokens(60), Tokens(35)],
        lengths: vec![Tokens(PROMPT)],
        output: 3,
        counts: Counts::of(model, Path::new("there is no such file"), 1).unwrap(),
        llama_bench: None,
    }
}

/// The lines of some parts, as they are printed with `--json`.
fn measure(name: &str, change: impl Fn(&Model) -> Settings) -> Option<Result<Vec<serde_json::Value>, MoeError>> {
    let runtime = duet_testing::loaded(Runtime::load())?;
    let (model, folder) = (load(name), tempfile::tempdir().unwrap());
    let device = runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED));
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 30));
    let settings = change(&model);
    let bed = Bed { model, device: Arc::new(device), threads: 1, cache };
    let mut lines = Vec::new();
    let mut tell = |line: Line| {
        assert!(!line.to_string().is_empty());
        lines.push(serde_json::to_value(&line).unwrap());
    };
    Some(moe::run(&bed, &settings, &|_| {}, &mut tell).map(|()| lines))
}

fn float(line: &serde_json::Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("{key} of {line}"))
}

#[test]
fn a_layer_is_launched_in_groups_of_each_size_and_capacity() {
    let Some(lines) = measure("qwen2moe", |model| settings(model, &[Part::Layer])) else { return };
    let lines = lines.unwrap();
    // Six experts: groups of sixty-four are none.
    let of = |capacity: u64| lines.iter().filter(move |line| line["capacity"].as_u64() == Some(capacity));
    for capacity in [16, 32] {
        let launches: Vec<u64> = of(capacity).map(|line| line["launches"].as_u64().unwrap()).collect();
        assert_eq!(launches, [6, 2]);
        for line in of(capacity) {
            assert_eq!(float(line, "rows"), 6.0 * capacity as f64 / 2.0);
            for key in ["compile_ms", "load_ms", "ms_per_token", "bytes"] {
                assert!(float(line, key) > 0.0, "{key} of {line}");
            }
        }
    }
    assert_eq!(lines.iter().filter(|line| line.get("launch_us").is_some()).count(), 2);
}

#[test]
fn the_steps_of_a_layer_are_told_apart() {
    let Some(lines) = measure("qwen2moe", |model| settings(model, &[Part::Breakdown])) else { return };
    let lines = lines.unwrap();
    assert_eq!(lines.len(), ExpertScheme::ALL.len() + 1);
    for line in &lines {
        for key in ["qkv_ms", "attention_ms", "routing_ms", "total_ms", "ms_per_token"] {
            assert!(float(line, key) > 0.0, "{key} of {line}");
        }
        let on_cpu = line["scheme"] == "cpu-only";
        for key in ["packing_ms", "experts_ms", "scatter_ms"] {
            assert_eq!(line.get(key).is_none(), on_cpu, "{key} of {line}");
        }
        assert_eq!(line["launches"] == 0, on_cpu, "{line}");
        assert_eq!(float(line, "on_device") > 0.0, !on_cpu, "{line}");
        assert_eq!(line.get("padding").is_none(), on_cpu, "{line}");
    }
    let launches = |scheme: &str| {
        lines.iter().find(|line| line["scheme"] == scheme).and_then(|line| line["launches"].as_u64()).unwrap()
    };
    // The expert that all rows go to is a launch, too.
    assert_eq!(launches("dense-only"), 1);
    assert!(launches("naive") > launches("groups"), "{lines:?}");
}

#[test]
fn a_prompt_is_answered_by_every_scheme_as_by_the_cpu() {
    let Some(lines) = measure("qwen2moe", |model| settings(model, &[Part::Schemes])) else { return };
    let lines = lines.unwrap();
    // All at the first chunk, one at the second, and the CPU alone at both.
    assert_eq!(lines.len(), ExpertScheme::ALL.len() + 1 + 2);
    for line in &lines {
        let (ttft, total) = (float(line, "ttft_ms"), float(line, "total_ms"));
        assert!(0.0 < ttft && ttft < total, "{line}");
        assert!((float(line, "ms_per_token") - ttft / f64::from(PROMPT)).abs() < 1e-9, "{line}");
        // By default nothing is dropped.
        assert_eq!((float(line, "dropped"), line["counts"].as_str()), (0.0, Some("shipped-text")), "{line}");
        if line["scheme"] == "cpu-only" {
            assert_eq!((float(line, "times_cpu_only"), line["same_tokens"].as_u64()), (1.0, Some(3)), "{line}");
            assert!(line.get("times_naive").is_none() && line.get("padding").is_none(), "{line}");
        } else {
            let padding = float(line, "padding");
            assert!((0.0..1.0).contains(&padding) && float(line, "times_naive") > 0.0, "{line}");
        }
        if line["scheme"] == "naive" {
            assert_eq!(float(line, "times_naive"), 1.0, "{line}");
        }
    }
}

#[test]
fn the_cpu_alone_has_a_rate_of_each_stage() {
    let Some(lines) = measure("qwen2moe", |model| settings(model, &[Part::Native])) else { return };
    let lines = lines.unwrap();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert!((float(line, "tok_s") * float(line, "ms_per_token") - 1e3).abs() < 1e-6, "{line}");
        assert!(line.get("llama_tok_s").is_none() && line.get("ratio").is_none(), "{line}");
    }
}

#[test]
fn a_model_whose_context_is_too_short_is_said_to_be() {
    for part in [Part::Breakdown, Part::Schemes, Part::Native] {
        let beyond = |model: &Model| {
            let length = vec![model.config().context];
            Settings { lengths: length.clone(), chunks: vec![length[0] + Tokens(1)], ..settings(model, &[part]) }
        };
        let Some(refused) = measure("qwen2moe", beyond) else { return };
        let error = refused.unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("context"), "{error}");
    }
}

#[test]
fn a_dense_model_is_told_where_experts_come_from() {
    let error = moe::check(&load("llama")).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("duet moefy"), "{error}");
}

#[test]
fn counts_beside_the_model_come_first() {
    let (model, folder) = (load("qwen2moe"), tempfile::tempdir().unwrap());
    let file = expert_file(&folder.path().join("model.gguf"));
    let own = Counts::of(&model, &file, 1).unwrap();
    assert_eq!(own.from, CountsFrom::ShippedText);
    write_experts(&file, &model, &own.calibration).unwrap();
    let found = Counts::of(&model, &file, 1).unwrap();
    assert_eq!((found.from, found.calibration), (CountsFrom::BesideModel, own.calibration));
}
