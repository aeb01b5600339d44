//! The gate on the quality of answers: what the kernels lose on a fixed text, beside the same weights in plain floats, is
//! what `figures.json` says, with every format of keys and values and on every instruction set of this machine.
//!
//! Kernels compute the same bits everywhere, so the figures have hardly any tolerance: whatever changes a rounding changes
//! them. Whoever means to records them anew (`scripts/quality-gate.sh --record`), and the change says what it costs. They
//! never pass bounds of their own, which are not recorded.

use duet_bench::quality::{BaseFile, BaseWriter, Chunks, ExactReference, Kernels, Quality, divergence};
use duet_kernels::crew::Scoped;
use duet_kernels::isa::Isa;
use duet_model::exact::{ExactReader, Rounding};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use serde_json::{Value, json};
use std::path::Path;

const TEXT: &str = include_str!("../../../model/tests/fixtures/wonderland.txt");
const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/quality_gate/figures.json");
/// Long enough for two pages and a part of one, short enough to be read in plain floats in seconds.
const CONTEXT: usize = 136;
const CHUNKS: usize = 1;
/// What libraries of mathematics may disagree on.
const TOLERANCE: f64 = 1e-6;
/// Nats that half precision may lose on average, and how many times as much eight bits may.
const MOST: f64 = 0.006;
const EIGHT_BITS_MOST: f64 = 1.3;

fn loaded(path: &Path, isa: Isa) -> Model {
    let options = LoadOptions { isa: Some(isa), ..LoadOptions::default() };
    Model::load(path, &options, &mut |_| {}).unwrap()
}

fn crew() -> Scoped {
    Scoped { threads: std::thread::available_parallelism().map_or(1, usize::from) }
}

/// Writes down what the weights say in plain floats.
fn write_base(path: &Path, base: &Path) {
    let model = loaded(path, Isa::best());
    let chunks = Chunks::of_text(&model, TEXT, CONTEXT, Some(CHUNKS)).unwrap();
    let reader = ExactReader::open(path, Rounding::None).unwrap();
    let mut writer = BaseWriter::begin(base, CONTEXT, chunks.vocabulary(), chunks.text()).unwrap();
    let crew = crew();
    let mut kernels = Kernels::new(&model, None, &crew, KvFormat::F16, CONTEXT);
    divergence(&mut kernels, &mut ExactReference::new(&reader), Some(&mut writer), &chunks, &mut |_, _, _| {}).unwrap();
    writer.commit().unwrap();
}

fn measured(model: &Model, kv: KvFormat, base: &Path) -> Quality {
    let mut base = BaseFile::open(base, model.config().vocabulary).unwrap();
    let chunks = Chunks::of_tokens(model, base.tokens.clone(), base.context, None).unwrap();
    let crew = crew();
    let mut kernels = Kernels::new(model, None, &crew, kv, CONTEXT);
    divergence(&mut kernels, &mut base, None, &chunks, &mut |_, _, _| {}).unwrap()
}

fn figures(quality: &Quality) -> Value {
    let found = quality.divergence.as_ref().expect("there is a reference");
    json!({
        "n": quality.n,
        "perplexity": quality.perplexity,
        "base_perplexity": found.base_perplexity,
        "kld_mean": found.kld_mean,
        "kld_max": found.kld_max,
        "same_top": found.same_top,
    })
}

/// Whether two objects of numbers are the same but for the tolerance.
fn agree(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return false };
    let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
    one.len() == other.len()
        && one.iter().all(|(name, a)| {
            let numbers = a.as_f64().zip(other.get(name).and_then(Value::as_f64));
            numbers.is_some_and(|(a, b)| near(a, b))
        })
}

#[test]
fn answers_are_as_good_as_they_were() {
    let Some(path) = duet_testing::path(Need::Model) else { return };
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    write_base(&path, &base);
    let best = loaded(&path, Isa::best());
    let now: Value =
        KvFormat::ALL.iter().map(|&kv| (kv.name().to_owned(), figures(&measured(&best, kv, &base)))).collect();
    let lost = |format: &str| now[format]["kld_mean"].as_f64().unwrap();
    assert!(lost("f16") <= MOST && lost("int8") <= EIGHT_BITS_MOST * lost("f16"), "{now:#}");
    if std::env::var_os("DUET_RECORD").is_some() {
        std::fs::write(FIGURES, format!("{now:#}\n")).unwrap();
    }
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(FIGURES).unwrap()).unwrap();
    for format in KvFormat::ALL.map(KvFormat::name) {
        assert!(
            agree(&now[format], &recorded[format]),
            "{format} keys and values: {:#}\nrecorded: {:#}\nif that was meant: scripts/quality-gate.sh --record",
            now[format],
            recorded[format]
        );
    }
    for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::best()) {
        let model = loaded(&path, isa);
        for kv in KvFormat::ALL {
            let format = kv.name();
            let here = figures(&measured(&model, kv, &base));
            assert!(agree(&here, &now[format]), "{isa}, {format}: {here:#}\n{}: {:#}", Isa::best(), now[format]);
        }
    }
}
