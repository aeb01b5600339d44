//! A model for embeddings beside one that answers, both tiny, through the real engine and server; and `duet embed`.

#![cfg(unix)]

mod support;

use duet_model::LoadOptions;
use duet_model::encoder::{Encoder, Overlong, Text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::server::Server;
use support::{duet, run, run_with_input};

fn fixture(name: &str) -> String {
    fixture_file(&format!("{name}.gguf"))
}

fn fixture_file(name: &str) -> String {
    format!("{}/../model/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Only the profile of this machine is kept there.
fn cache() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn post(server: &Server, route: &str, body: &Value) -> (u16, Value) {
    let response = server.post(route, &body.to_string());
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}")))
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().expect("a vector").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

/// What the encoder makes of a text with nothing beside it.
fn vector(encoder: &Encoder, text: &str) -> Vec<f32> {
    let text: Text = encoder.text(text, Overlong::Refused).unwrap();
    encoder.encode_alone([text].into()).unwrap().remove(0)
}

fn encoder(name: &str) -> Encoder {
    Encoder::load(fixture(name).as_ref(), &LoadOptions::default()).unwrap()
}

#[test]
fn vectors_are_the_same_to_the_bit_beside_answers() {
    let mut server =
        Server::start_with(cache(), &fixture("golden_llama"), &["--embeddings", &fixture("golden_bert_mean")]);
    let encoder = encoder("golden_bert_mean");
    let texts: Vec<String> = (0..300).map(|index| "there will be more ".repeat(1 + index % 20)).collect();
    let expected: Vec<Vec<f32>> = texts.iter().map(|text| vector(&encoder, text)).collect();
    std::thread::scope(|scope| {
        let embedding = scope.spawn(|| post(&server, "/v1/embeddings", &json!({"input": texts})));
        let answers: Vec<_> = (0..4)
            .map(|index| {
                let body = json!({"prompt": [10 + index, 20, 30], "max_tokens": 20, "temperature": 0});
                let server = &server;
                scope.spawn(move || [(); 2].map(|()| post(server, "/v1/completions", &body)))
            })
            .collect();
        for answer in answers {
            let [first, second] = answer.join().unwrap();
            assert_eq!(first.0, 200, "{}", first.1);
            assert_eq!(first.1["choices"], second.1["choices"]);
        }
        let (status, answer) = embedding.join().unwrap();
        assert_eq!((status, answer["model"].as_str()), (200, Some("bert_mean")));
        for (index, expected) in expected.iter().enumerate() {
            assert_eq!(floats(&answer["data"][index]["embedding"]), *expected, "{index}");
        }
    });
    let (status, refused) = post(&server, "/v1/embeddings", &json!({"input": "the ".repeat(200)}));
    assert_eq!((status, refused["error"]["code"].as_str()), (400, Some("context_length_exceeded")));
    assert_eq!(server.terminate(), Some(0));
}

/// What the encoder read is in the log: it is decided again, and simulated with all else.
#[test]
fn a_recorded_load_of_both_is_replayed_and_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("events.log");
    let log = log.to_str().unwrap();
    let arguments = ["--embeddings", &fixture("golden_bert_mean"), "--event-log", log];
    let mut server = Server::start_with(cache(), &fixture("golden_llama"), &arguments);
    for index in 0..3 {
        let texts = vec!["there will be more"; 1 + 8 * index];
        assert_eq!(post(&server, "/v1/embeddings", &json!({"input": texts})).0, 200);
        assert_eq!(post(&server, "/v1/completions", &json!({"prompt": [10, 20], "max_tokens": 8})).0, 200);
    }
    assert_eq!(server.terminate(), Some(0));
    let encoded = fs::read_to_string(log).unwrap().matches("\"net\":\"Encoder\"").count();
    assert!(encoded >= 3, "{encoded}");
    for (arguments, says) in
        [(vec!["replay", log], "commands"), (vec!["simulate", "--replay", log, "--json"], "reactive")]
    {
        let done = run(&mut duet(cache(), &arguments));
        assert_eq!(done.status, 0, "{done:#?}");
        assert!(done.stdout.contains(says), "{done:#?}");
    }
    let simulated = run(&mut duet(cache(), &["simulate", "--replay", log, "--in-flight", "--json"]));
    let simulated: Value = serde_json::from_str(&simulated.stdout).unwrap();
    let answered = |class: &str| simulated[class]["n"].as_u64().unwrap();
    // One text alone is what a person looks for.
    assert_eq!((answered("reactive"), answered("proactive")), (4, 2), "{simulated}");
}

#[test]
fn documents_are_ranked_beside_a_model_that_answers() {
    let mut server =
        Server::start_with(cache(), &fixture("golden_llama"), &["--embeddings", &fixture("golden_bert_rank")]);
    let encoder = encoder("golden_bert_rank");
    let documents = ["not what they said", "there will be more", "the one"];
    let score = |document: &str| {
        let pair = encoder.pair("who is there?", document, Overlong::Refused).unwrap();
        1.0 / (1.0 + (-f64::from(encoder.encode_alone([pair].into()).unwrap()[0][0])).exp())
    };
    let (status, ranked) = post(&server, "/v1/rerank", &json!({"query": "who is there?", "documents": documents}));
    assert_eq!(status, 200, "{ranked}");
    let results = ranked["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for result in results {
        let document = documents[result["index"].as_u64().unwrap() as usize];
        assert_eq!(result["relevance_score"].as_f64().unwrap(), score(document), "{document}");
    }
    assert!(results.is_sorted_by(|a, b| a["relevance_score"].as_f64() >= b["relevance_score"].as_f64()));
    assert_eq!(server.terminate(), Some(0));
}

/// A decoder that answers "yes" or "no", as Qwen3-Reranker does: in the words of its file, over HTTP, and with the scores that
/// `transformers` has for what they come to.
#[test]
fn a_decoder_ranks_with_the_scores_of_transformers() {
    let mut server =
        Server::start_with(cache(), &fixture("golden_llama"), &["--embeddings", &fixture("golden_qwen3_rank")]);
    let golden: Value = serde_json::from_slice(&fs::read(fixture_file("golden_qwen3_rank.json")).unwrap()).unwrap();
    let pairs = golden["pairs"].as_array().unwrap();
    let query = pairs[0]["query"].as_str().unwrap();
    let documents: Vec<&str> = pairs.iter().map(|pair| pair["document"].as_str().unwrap()).collect();
    assert!(documents.len() > 2 && pairs.iter().all(|pair| pair["query"] == query));
    let (status, ranked) = post(&server, "/v1/rerank", &json!({"query": query, "documents": documents}));
    assert_eq!(status, 200, "{ranked}");
    let results = ranked["results"].as_array().unwrap();
    assert_eq!(results.len(), documents.len());
    for result in results {
        let pair = &pairs[result["index"].as_u64().unwrap() as usize];
        let (score, expected) = (result["relevance_score"].as_f64().unwrap(), pair["probability"].as_f64().unwrap());
        assert!((score - expected).abs() < 1e-3, "{score} for {expected}: {pair}");
    }
    let order: Vec<u64> = results.iter().map(|result| result["index"].as_u64().unwrap()).collect();
    let mut expected: Vec<u64> = (0..documents.len() as u64).collect();
    expected.sort_by(|&a, &b| {
        let probability = |index: u64| pairs[index as usize]["probability"].as_f64().unwrap();
        probability(b).total_cmp(&probability(a))
    });
    assert_eq!(order, expected);
    let tokens: usize = pairs.iter().map(|pair| pair["tokens"].as_array().unwrap().len()).sum();
    assert_eq!(ranked["usage"]["prompt_tokens"], tokens);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_decoder_with_last_pooling_embeds() {
    let mut server =
        Server::start_with(cache(), &fixture("golden_llama"), &["--embeddings", &fixture("golden_qwen3_last")]);
    let encoder = encoder("golden_qwen3_last");
    let inputs = [vec![1, 2, 3], (0..130).collect::<Vec<u32>>()];
    let (status, answer) = post(&server, "/v1/embeddings", &json!({"input": inputs}));
    assert_eq!(status, 200, "{answer}");
    for (index, tokens) in inputs.iter().enumerate() {
        let tokens = tokens.iter().map(|&token| duet_types::TokenId(token)).collect();
        let text = encoder.tokens(tokens, Overlong::Refused).unwrap();
        let expected = encoder.encode_alone([text].into()).unwrap().remove(0);
        assert_eq!(floats(&answer["data"][index]["embedding"]), expected);
    }
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn models_in_each_others_place_are_refused() {
    let (answers, embeds) = (fixture("golden_llama"), fixture("golden_bert_mean"));
    run(&mut duet(cache(), &["serve", &answers, "--port", "0", "--embeddings", &answers]))
        .assert_refused(&["golden_llama.gguf", "is no model for embeddings"]);
    run(&mut duet(cache(), &["serve", &embeds, "--port", "0"]))
        .assert_refused(&["golden_bert_mean.gguf", "--embeddings"]);
    run(&mut duet(cache(), &["embed", &answers, "text"])).assert_refused(&["is no model for embeddings"]);
    run(&mut duet(cache(), &["embed", &fixture("golden_bert_rank"), "text"])).assert_refused(&["scores"]);
}

#[test]
fn embed_prints_a_vector_for_each_text() {
    let encoder = encoder("golden_bert_mean");
    let model = fixture("golden_bert_mean");
    let printed = run(&mut duet(cache(), &["embed", &model, "the people", "who is there?"]));
    assert_eq!(printed.status, 0, "{printed:?}");
    let vectors: Vec<Vec<f32>> =
        printed.stdout.lines().map(|line| floats(&serde_json::from_str(line).unwrap())).collect();
    assert_eq!(vectors, ["the people", "who is there?"].map(|text| vector(&encoder, text)));
    let piped = run_with_input(&mut duet(cache(), &["embed", &model, "-"]), "the people\nwho is there?\n");
    assert_eq!(piped.stdout, printed.stdout);
    let long = "the ".repeat(200);
    run(&mut duet(cache(), &["embed", &model, &long])).assert_refused(&["more than 96 tokens", "--truncate"]);
    assert_eq!(run(&mut duet(cache(), &["embed", &model, &long, "--truncate"])).status, 0);
}

/// A decoder's weights are packed at its first start, and mapped by later ones: the default model as one that makes vectors.
#[test]
fn a_decoders_weights_are_packed_once() {
    let Some(answers) = duet_testing::path(duet_testing::Need::Model) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (model, cache) = (folder.path().join("pooled.gguf"), folder.path().join("cache"));
    fs::write(&model, with_pooling(&fs::read(answers).unwrap())).unwrap();
    let embed = || run(&mut duet(&cache, &["embed", model.to_str().unwrap(), "the people"]));
    let packed = || {
        let files = fs::read_dir(cache.join("weights")).unwrap().map(Result::unwrap);
        files.map(|file| (file.file_name(), file.metadata().unwrap().ino())).collect::<Vec<_>>()
    };
    let first = embed();
    assert_eq!(first.status, 0, "{first:?}");
    let kept = packed();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(embed().stdout, first.stdout);
    assert_eq!(packed(), kept, "it is the same file");
}

/// A Llama's file that says that its last token counts.
fn with_pooling(file: &[u8]) -> Vec<u8> {
    const COUNT: std::ops::Range<usize> = 16..24;
    const NUMBER: u32 = 4;
    const STRING: u32 = 8;
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let mut settings =
        [string("llama.pooling_type"), NUMBER.to_le_bytes().to_vec(), 3_u32.to_le_bytes().to_vec()].concat();
    // Of 64 bytes, so that tensors are aligned as before.
    settings.extend([string("x"), STRING.to_le_bytes().to_vec(), string("nine more")].concat());
    assert_eq!(settings.len(), 64);
    let (head, rest) = file.split_at(COUNT.end);
    let mut made = head.to_vec();
    let count = u64::from_le_bytes(head[COUNT].try_into().unwrap()) + 2;
    made[COUNT].copy_from_slice(&count.to_le_bytes());
    [made, settings, rest.to_vec()].concat()
}
