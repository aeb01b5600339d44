//! all-MiniLM-L6-v2, which makes vectors of texts: as floats and in eight bits.

use crate::reference::fixture;
use duet_kernels::crew::Scoped;
use duet_model::LoadOptions;
use duet_model::encoder::{Encoder, Overlong, Text};
use duet_testing::Need;
use serde::Deserialize;

#[derive(Deserialize)]
struct Reference {
    /// What the files' names begin with.
    file: String,
    texts: Vec<ReferenceText>,
}

#[derive(Deserialize)]
struct ReferenceText {
    text: String,
    tokens: Vec<u32>,
    vector: Vec<f64>,
}

fn is_near_transformers(kind: &str, least: f64) {
    let reference: Reference = fixture("real_models/minilm.json");
    let Some(folder) = duet_testing::path(Need::RealModels) else { return };
    let file = format!("{}-{kind}.gguf", reference.file);
    let path = folder.join(&file);
    if !path.exists() {
        return duet_testing::skip(Need::RealModels, format_args!("{file} is not there"));
    }
    let encoder = Encoder::load(&path, &LoadOptions::default()).unwrap();
    let texts: Vec<Text> =
        reference.texts.iter().map(|text| encoder.text(&text.text, Overlong::Refused).unwrap()).collect();
    for (text, expected) in texts.iter().zip(&reference.texts) {
        let tokens: Vec<u32> = text.tokens().iter().map(|token| token.0).collect();
        assert_eq!(tokens, expected.tokens, "{:?}", expected.text);
    }
    let mut pass = encoder.begin(texts.into()).unwrap();
    let rows = pass.rows();
    encoder.run(&mut pass, 0..encoder.order().count(), 0..rows, &Scoped { threads: 2 });
    let mut lowest = 1.0_f64;
    for (vector, expected) in encoder.results(&pass).iter().zip(&reference.texts) {
        let cosine: f64 = vector.iter().zip(&expected.vector).map(|(a, b)| f64::from(*a) * b).sum();
        println!("{file}: {} tokens, cosine {cosine:.7}", expected.tokens.len());
        lowest = lowest.min(cosine);
    }
    assert!(lowest >= least, "{file}: {lowest}");
}

#[test]
fn floats_are_those_of_transformers() {
    is_near_transformers("f16", 0.9999);
}

#[test]
fn eight_bits_are_near_transformers() {
    is_near_transformers("q8_0", 0.998);
}
