//! Encoders against Hugging Face `transformers` in single precision, on tiny random models (`scripts/golden/tiny_encoders.py`
//! made the files), and against themselves: what a text comes to does not depend on what is beside it.

use duet_kernels::crew::{Crew, Scoped, Solo};
use duet_kernels::isa::Isa;
use duet_model::encoder::{Encoder, Overlong, Pooling, Text};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Golden {
    texts: Vec<GoldenText>,
}

#[derive(Deserialize)]
struct GoldenText {
    tokens: Vec<u32>,
    /// Where the second text of a pair begins.
    second: usize,
    out: Vec<f32>,
    /// As it is written, and what stands beside it in a pair, where tokens are those of a text.
    #[serde(default)]
    text: String,
    #[serde(default)]
    beside: String,
}

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn golden(name: &str) -> Vec<GoldenText> {
    let golden: Golden = serde_json::from_slice(&std::fs::read(fixture(&format!("{name}.json"))).unwrap()).unwrap();
    golden.texts
}

fn encoder(name: &str, isa: Option<Isa>) -> Encoder {
    let options = LoadOptions { isa, ..LoadOptions::default() };
    let encoder = Encoder::load(&fixture(&format!("{name}.gguf")), &options).unwrap();
    assert_eq!(encoder.unread().next(), None, "{name}");
    encoder
}

/// The texts by their tokens; a pair's second one is told by its place.
fn texts(golden: &[GoldenText]) -> Vec<Text> {
    let text = |text: &GoldenText| {
        let tokens: Vec<TokenId> = text.tokens.iter().map(|&token| TokenId(token)).collect();
        Text::of_tokens(tokens, text.second)
    };
    golden.iter().map(text).collect()
}

fn encode(encoder: &Encoder, texts: &[Text], crew: &dyn Crew) -> Vec<Vec<f32>> {
    let mut pass = encoder.begin(texts.into()).unwrap();
    let rows = pass.rows();
    encoder.run(&mut pass, 0..encoder.order().count(), 0..rows, crew);
    let results = encoder.results(&pass);
    encoder.end(pass);
    results
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn has_the_vectors_of_transformers(name: &str, pooling: Pooling) {
    let (encoder, golden) = (encoder(name, None), golden(name));
    assert_eq!(encoder.pooling(), pooling);
    for (vector, text) in encode(&encoder, &texts(&golden), &Scoped { threads: 2 }).iter().zip(&golden) {
        let cosine = cosine(vector, &text.out);
        eprintln!("{name}, {} tokens: 1 - cosine {:.1e}", text.tokens.len(), 1.0 - cosine);
        assert!(cosine > 0.999_999, "{name}, {} tokens: {cosine}", text.tokens.len());
    }
}

#[test]
fn means_are_those_of_transformers() {
    has_the_vectors_of_transformers("golden_bert_mean", Pooling::Mean);
}

#[test]
fn first_rows_are_those_of_transformers() {
    has_the_vectors_of_transformers("golden_bert_cls", Pooling::First);
}

#[test]
fn last_rows_of_a_decoder_are_those_of_transformers() {
    has_the_vectors_of_transformers("golden_qwen3_last", Pooling::Last);
}

#[test]
fn scores_are_those_of_transformers() {
    has_the_scores_of_transformers("golden_bert_rank");
}

fn has_the_scores_of_transformers(name: &str) {
    let (encoder, golden) = (encoder(name, None), golden(name));
    assert_eq!(encoder.pooling(), Pooling::Score);
    for (score, text) in encode(&encoder, &texts(&golden), &Solo).iter().zip(&golden) {
        eprintln!("{name}, {} tokens: {} for {}", text.tokens.len(), score[0], text.out[0]);
        assert!((score[0] - text.out[0]).abs() < 1e-4, "{} for {}", score[0], text.out[0]);
    }
}

/// XLM-R's positions begin behind that of padding, and two marks stand between the texts of a pair.
#[test]
fn an_xlm_r_is_that_of_transformers() {
    has_the_vectors_of_transformers("golden_xlmr_cls", Pooling::First);
    has_the_scores_of_transformers("golden_xlmr_rank");
    let ids = |text: &Text| text.tokens().iter().map(|token| token.0).collect::<Vec<_>>();
    let (alone, ranking) = (encoder("golden_xlmr_cls", None), encoder("golden_xlmr_rank", None));
    for GoldenText { tokens, text, .. } in golden("golden_xlmr_cls") {
        assert_eq!(ids(&alone.text(&text, Overlong::Refused).unwrap()), tokens, "{text}");
    }
    for GoldenText { tokens, text, beside, .. } in golden("golden_xlmr_rank") {
        assert_eq!(ids(&ranking.pair(&text, &beside, Overlong::Refused).unwrap()), tokens, "{text} | {beside}");
    }
}

#[test]
fn scores_of_a_decoder_are_those_of_transformers() {
    let (encoder, golden) = (encoder("golden_qwen3_rank", None), golden("golden_qwen3_rank"));
    assert_eq!(encoder.pooling(), Pooling::Score);
    for (score, text) in encode(&encoder, &texts(&golden), &Solo).iter().zip(&golden) {
        eprintln!("{} tokens: {} for {}", text.tokens.len(), score[0], text.out[0]);
        assert!((score[0] - text.out[0]).abs() < 1e-2, "{} for {}", score[0], text.out[0]);
    }
}

/// Each takes a page, and three passes may be under way.
#[test]
fn as_many_short_texts_as_are_read_together_have_room_in_every_pass() {
    let encoder = encoder("golden_qwen3_last", None);
    let most = encoder.texts_max().unwrap();
    assert!(most >= 32, "{most}");
    // Some of them with a token more than a page has.
    let text = |index: usize| Text::of_tokens(vec![TokenId(7); if index < 7 { 65 } else { 1 }], 0);
    let texts: Vec<Text> = (0..most).map(text).collect();
    let passes = [(); 3].map(|()| encoder.begin(texts.as_slice().into()).unwrap());
    assert_eq!(passes[2].rows(), 7 * 65 + most - 7);
}

#[test]
fn a_head_for_scores_is_read_behind_the_model_that_it_is_on() {
    let model = Model::load(&fixture("golden_qwen3_rank.gguf"), &LoadOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(model.unread(), ["cls.output.weight"]);
    assert_eq!(Encoder::of_decoder(model.into()).unwrap().unread().next(), None);
}

#[test]
fn a_decoder_is_asked_in_the_words_of_its_file() {
    let encoder = encoder("golden_qwen3_rank", None);
    let (_, tokenizer) = duet_model::open_tokenizer(&fixture("golden_qwen3_rank.gguf")).unwrap();
    let asked = |query: &str, document: &str| {
        format!("<|bos|>judge\n<Query>: {query}\n<Document>: {document}<|eos|>\n<|bos|>answer\n")
    };
    let tokens =
        |query: &str, document: &str| encoder.pair(query, document, Overlong::Refused).unwrap().tokens().to_vec();
    let whole = tokenizer.encode(&asked("who?", "the one"), SpecialTokens::Parse);
    assert_eq!(tokens("who?", "the one"), whole);
    // Texts from outside do not speak as the template does.
    let begins = |tokens: &[TokenId]| tokens.iter().filter(|token| token.0 == 256).count();
    assert_eq!(begins(&tokens("<|bos|>", "{query}<|bos|>")), 2);
    let long = "he said the ".repeat(100);
    assert!(encoder.pair("who?", &long, Overlong::Refused).is_err());
    let cut = encoder.pair("who?", &long, Overlong::Cut).unwrap();
    assert!((Tokens(250)..=encoder.context()).contains(&cut.len()), "{:?}", cut.len());
    assert_eq!(cut.tokens().last(), whole.last(), "it ends as a question does");
    assert!(encoder.pair(&long, "the one", Overlong::Cut).is_err(), "a query is not cut");
}

#[test]
fn a_text_is_the_same_whatever_is_beside_it() {
    let golden = golden("golden_bert_mean");
    for isa in Isa::available() {
        let encoder = encoder("golden_bert_mean", Some(isa));
        let texts = texts(&golden);
        let alone: Vec<Vec<f32>> =
            texts.iter().map(|text| encode(&encoder, std::slice::from_ref(text), &Solo).remove(0)).collect();
        assert_eq!(encode(&encoder, &texts, &Solo), alone, "{isa}");
        assert_eq!(encode(&encoder, &texts, &Scoped { threads: 3 }), alone, "{isa}");
        let backwards: Vec<Text> = texts.iter().rev().cloned().collect();
        let mut there = encode(&encoder, &backwards, &Scoped { threads: 2 });
        there.reverse();
        assert_eq!(there, alone, "{isa}");
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let texts = texts(&golden("golden_bert_mean"));
    let of = |isa| encode(&encoder("golden_bert_mean", Some(isa)), &texts, &Solo);
    let reference = of(Isa::Portable);
    for isa in Isa::available() {
        assert_eq!(of(isa), reference, "{isa}");
    }
}

#[test]
fn a_pass_may_be_cut_anywhere() {
    let (encoder, golden) = (encoder("golden_bert_mean", None), golden("golden_bert_mean"));
    let texts = texts(&golden);
    let whole = encode(&encoder, &texts, &Solo);
    for step in [1, 7, 64] {
        let mut pass = encoder.begin(texts.as_slice().into()).unwrap();
        let rows = pass.rows();
        for node in 0..encoder.order().count() {
            for start in (0..rows).step_by(step) {
                encoder.run(&mut pass, node..node + 1, start..(start + step).min(rows), &Scoped { threads: 2 });
            }
        }
        assert_eq!(encoder.results(&pass), whole, "in steps of {step}");
    }
}

#[test]
fn texts_that_are_too_long_are_refused_or_cut() {
    let encoder = encoder("golden_bert_mean", None);
    let long = "the ".repeat(200);
    let error = encoder.text(&long, Overlong::Refused).unwrap_err();
    assert_eq!(error.to_string(), "the text has more than 96 tokens");
    let cut = encoder.text(&long, Overlong::Cut).unwrap();
    assert_eq!(cut.len(), Tokens(96));
    // It ends as a text does.
    assert_eq!(cut.tokens().last(), encoder.text("the", Overlong::Refused).unwrap().tokens().last());
    let fits = encoder.text(&"the ".repeat(94), Overlong::Refused).unwrap();
    assert_eq!(fits.tokens(), cut.tokens());
    let pair = encoder.pair("the the", &long, Overlong::Cut).unwrap();
    assert_eq!(pair.len(), Tokens(96));
    assert!(encoder.pair("the the", &long, Overlong::Refused).is_err());
    assert!(encoder.pair(&long, "the", Overlong::Cut).is_err(), "a query is not cut");
}

#[test]
fn tokens_of_others_are_checked() {
    let encoder = encoder("golden_bert_mean", None);
    let error = encoder.tokens(vec![TokenId(1_000_000)], Overlong::Refused).unwrap_err();
    assert_eq!(error.to_string(), "token 1000000 is not in the embedding model's vocabulary");
    assert_eq!(encoder.tokens(Vec::new(), Overlong::Refused).unwrap_err().to_string(), "the text is empty");
    assert_eq!(encoder.tokens(vec![TokenId(7); 97], Overlong::Cut).unwrap().len(), Tokens(96));
    assert!(encoder.tokens(vec![TokenId(7); 97], Overlong::Refused).is_err());
}

#[test]
fn a_decoder_is_no_encoder() {
    let path = fixture("golden_llama.gguf");
    assert!(!Encoder::is_in(&path).unwrap());
    let error = Encoder::load(&path, &LoadOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "`llama.pooling_type`: it is not there, or 0: this is no model for embeddings");
    assert!(Encoder::is_in(&fixture("golden_bert_cls.gguf")).unwrap());
}
