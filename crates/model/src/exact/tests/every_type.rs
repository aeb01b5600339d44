//! A part of the gate on the quality of answers: what the kernels lose in each type of weights and in each format of keys
//! and values, beside the same weights in plain floats, is what `every_type.json` says, on every instruction set of this
//! machine.
//!
//! The models are tiny and their weights are chance, so the figures tell types apart and changes of the arithmetic, not how
//! good answers are. They have hardly any tolerance: kernels compute the same bits everywhere. Whoever means to change them
//! records them anew (`scripts/quality-gate.sh --record`). They never pass a bound of their own, which is not recorded.

use super::{Golden, Rounding, by_kernels, by_reader, random_blocks};
use crate::kv::KvFormat;
use crate::{LoadOptions, Model};
use duet_kernels::isa::Isa;
use duet_types::TokenId;
use std::collections::BTreeMap;
use std::path::Path;

const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/exact/tests/every_type.json");

/// What libraries of mathematics may disagree on.
const TOLERANCE: f64 = 1e-6;

/// Nats that a figure counts for at least: what floats lose is not far above what doubles can tell.
const LEAST: f64 = 1e-6;

/// Nats that a type may lose on average.
const MOST: f64 = 0.006;
/// The same where values have four bits.
const MOST_INT4: f64 = 0.02;

/// The type whose weights are read with every format of keys and values; the others are with half precision.
const OF_ALL_FORMATS: &str = "Q8_0";

/// The mean divergence of a position, in nats, by the type's name and the format's.
type Figures = BTreeMap<String, f64>;

/// What a file's weights say of the tokens after these, in plain floats, and what the kernels lose of that on each
/// instruction set, by the name of each of `formats`.
fn lost(path: &Path, tokens: &[TokenId], isas: &[Isa], formats: &[KvFormat]) -> Vec<Vec<(&'static str, f64)>> {
    let expected = by_reader(path, tokens, Rounding::None);
    let on = |isa: &Isa| {
        let options = LoadOptions { isa: Some(*isa), ..LoadOptions::default() };
        let model = Model::load(path, &options, &mut |_| {}).unwrap();
        let with = |&format: &KvFormat| {
            let logits = by_kernels(&model, tokens, format);
            (format.name(), divergence(&logits, &expected, model.config().vocabulary))
        };
        formats.iter().map(with).collect()
    };
    isas.iter().map(on).collect()
}

/// Mean divergence of rows of logits.
fn divergence(logits: &[f32], expected: &[f32], vocabulary: usize) -> f64 {
    let rows = logits.chunks_exact(vocabulary).zip(expected.chunks_exact(vocabulary));
    let count = rows.len() as f64;
    let of_row = |(logits, expected): (&[f32], &[f32])| {
        let (found, expected) = (log_chances(logits), log_chances(expected));
        found.iter().zip(&expected).map(|(found, expected)| expected.exp() * (expected - found)).sum::<f64>()
    };
    rows.map(of_row).sum::<f64>() / count
}

fn log_chances(logits: &[f32]) -> Vec<f64> {
    let largest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let total = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum::<f64>().ln();
    logits.iter().map(|&logit| f64::from(logit) - largest - total).collect()
}

fn agree(one: &Figures, other: &Figures) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(LEAST);
    one.keys().eq(other.keys()) && one.values().zip(other.values()).all(|(&a, &b)| near(a, b))
}

#[test]
fn every_type_of_weights_loses_what_it_did() {
    let tokens = Golden::of("llama").tokens();
    let mut isas = Isa::available();
    isas.reverse();
    let mut found: Vec<Figures> = vec![Figures::new(); isas.len()];
    for (name, kind) in random_blocks::models() {
        let file = random_blocks::model_of(kind);
        let formats = if name == OF_ALL_FORMATS { &KvFormat::ALL[..] } else { &[KvFormat::F16] };
        for (figures, lost) in found.iter_mut().zip(lost(file.path(), &tokens, &isas, formats)) {
            figures.extend(lost.into_iter().map(|(format, lost)| (format!("{name}, {format}"), lost)));
        }
    }
    let now = &found[0];
    let most = |name: &str| if name.ends_with(KvFormat::Int4.name()) { MOST_INT4 } else { MOST };
    assert!(now.iter().all(|(name, &lost)| lost <= most(name)), "{now:#?}");
    for (isa, figures) in isas.iter().zip(&found) {
        assert!(agree(figures, now), "{isa}: {figures:#?}\n{}: {now:#?}", isas[0]);
    }
    if std::env::var_os("DUET_RECORD").is_some() {
        std::fs::write(FIGURES, serde_json::to_string_pretty(now).unwrap() + "\n").unwrap();
    }
    let recorded: Figures = serde_json::from_slice(&std::fs::read(FIGURES).unwrap()).unwrap();
    assert!(
        agree(now, &recorded),
        "{now:#?}\nrecorded: {recorded:#?}\nif that was meant: scripts/quality-gate.sh --record"
    );
}
