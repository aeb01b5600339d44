//! `POST /v1/embeddings`, Ollama's routes and `POST /v1/rerank` with a real encoder, a tiny one, beside the fake model.

use crate::Server;
use crate::fake::{Fake, embedding, encoder};
use duet_model::encoder::{Encoder, Overlong, Text};
use duet_server::ServerConfig;
use duet_types::{Class, TokenId};
use serde_json::{Value, json};

const PATH: &str = "/v1/embeddings";
const RERANK: &str = "/v1/rerank";

async fn server(name: &str) -> Server {
    Server::with(Fake { encoder: Some(encoder(name)), ..Fake::default() }, ServerConfig::default()).await
}

/// What the encoder itself makes of some texts.
fn results(encoder: &Encoder, texts: &[Text]) -> Vec<Vec<f32>> {
    encoder.encode_alone(texts.into()).unwrap()
}

fn vector(encoder: &Encoder, text: &str) -> Vec<f32> {
    results(encoder, &[encoder.text(text, Overlong::Cut).unwrap()]).remove(0)
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().expect("a vector").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

#[tokio::test]
async fn vectors_are_the_encoders() {
    let server = server("golden_bert_mean").await;
    let encoder = encoder("golden_bert_mean");
    for model in [json!(null), json!("default"), json!("bert_mean")] {
        let body = json!({"model": model, "input": ["the people", "so what is it?"]});
        let response = server.post(PATH, &body).await;
        assert_eq!(response.status, 200, "{}", response.body);
        let answer = response.json();
        assert_eq!(answer["model"], "bert_mean");
        assert_eq!(floats(&answer["data"][0]["embedding"]), vector(&encoder, "the people"));
        assert_eq!(floats(&answer["data"][1]["embedding"]), vector(&encoder, "so what is it?"));
    }
    // The model that answers still has its own.
    let answer = server.post(PATH, &json!({"model": "vendor/fake", "input": [104, 105]})).await.json();
    assert_eq!(floats(&answer["data"][0]["embedding"]), embedding(&[TokenId(104), TokenId(105)]));
    assert_eq!(answer["model"], "vendor/fake");
}

#[tokio::test]
async fn many_texts_go_together_in_the_background() {
    let server = server("golden_bert_mean").await;
    let encoder = encoder("golden_bert_mean");
    let texts: Vec<String> = (0..200).map(|index| "the will ".repeat(1 + index % 7)).collect();
    let answer = server.post(PATH, &json!({"input": texts, "dimensions": 8})).await.json();
    for (index, text) in texts.iter().enumerate() {
        let whole = vector(&encoder, text);
        let length = whole[..8].iter().map(|x| x * x).sum::<f32>().sqrt();
        let found = floats(&answer["data"][index]["embedding"]);
        assert!(found.iter().zip(&whole).all(|(a, b)| (a - b / length).abs() < 1e-6), "{index}");
    }
    let encodings = server.fake.encodings.lock().unwrap();
    assert!(encodings.len() < 10 && encodings.iter().all(|request| request.rows().0 <= 512), "{}", encodings.len());
    assert!(encodings.iter().all(|request| request.class == Class::Proactive));
}

#[tokio::test]
async fn what_is_too_long_is_refused_or_cut() {
    let server = server("golden_bert_mean").await;
    let encoder = encoder("golden_bert_mean");
    let long = "the ".repeat(300);
    let refused = server.post(PATH, &json!({"input": ["is", long]})).await;
    assert_eq!(refused.status, 400);
    let error = &refused.json()["error"];
    assert_eq!((&error["param"], &error["code"]), (&json!("input[1]"), &json!("context_length_exceeded")));
    let words = "'input[1]' has more than the 96 tokens that the model reads at once; `truncate` cuts it";
    assert_eq!(error["message"], words);
    let cut = server.post(PATH, &json!({"input": long, "truncate": true})).await.json();
    assert_eq!(floats(&cut["data"][0]["embedding"]), vector(&encoder, &long));
    assert_eq!(cut["usage"]["prompt_tokens"], 96);
    // Ollama cuts, unless it is told not to.
    let body = json!({"model": "bert_mean:latest", "input": long});
    assert_eq!(floats(&server.post("/api/embed", &body).await.json()["embeddings"][0]), vector(&encoder, &long));
    let body = json!({"model": "bert_mean", "input": long, "truncate": false});
    assert_eq!(server.post("/api/embed", &body).await.status, 400);
    let legacy = server.post("/api/embeddings", &json!({"model": "bert_mean", "prompt": "the"})).await.json();
    assert_eq!(floats(&legacy["embedding"]), vector(&encoder, "the"));
}

#[tokio::test]
async fn what_cannot_be_encoded_is_named() {
    let server = server("golden_bert_mean").await;
    for (body, param, code) in [
        (json!({"input": ["a", ""]}), "input[1]", "invalid_value"),
        (json!({"input": [1, 9999]}), "input[1]", "invalid_value"),
        (json!({"input": "a", "dimensions": 49}), "dimensions", "invalid_value"),
        (json!({"input": "a", "model": "text-embedding-3-small"}), "model", "model_not_found"),
        (json!({"input": vec!["the ".repeat(90); 3400]}), "input", "invalid_value"),
    ] {
        let response = server.post(PATH, &body).await;
        assert_eq!(response.status, if code == "model_not_found" { 404 } else { 400 }, "{}", response.body);
        let error = &response.json()["error"];
        assert_eq!((&error["param"], &error["code"]), (&json!(param), &json!(code)), "{error}");
    }
}

#[tokio::test]
async fn documents_are_ranked_by_a_model_for_scores() {
    let server = server("golden_bert_rank").await;
    let encoder = encoder("golden_bert_rank");
    let documents = ["there will be more", "not what they said", "the one", "her people are out"];
    let query = "who is there?";
    let pairs: Vec<Text> =
        documents.iter().map(|document| encoder.pair(query, document, Overlong::Refused).unwrap()).collect();
    let tokens: u32 = pairs.iter().map(|pair| pair.len().0).sum();
    let scores = results(&encoder, &pairs).into_iter().map(|score| 1.0 / (1.0 + (-f64::from(score[0])).exp()));
    let mut expected: Vec<(usize, f64)> = scores.enumerate().collect();
    expected.sort_by(|a, b| b.1.total_cmp(&a.1));
    for path in [RERANK, "/rerank"] {
        let answer = server.post(path, &json!({"query": query, "documents": documents})).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = answer.json();
        let found = answer["results"].as_array().unwrap().iter();
        let found: Vec<(usize, f64)> = found
            .map(|one| (one["index"].as_u64().unwrap() as usize, one["relevance_score"].as_f64().unwrap()))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(answer["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
        assert!(answer["results"][0].get("document").is_none());
    }
    let body = json!({
        "model": "bert_rank", "query": query, "top_n": 1, "return_documents": true,
        "documents": documents.map(|text| json!({"text": text})),
    });
    let results = server.post(RERANK, &body).await.json()["results"].clone();
    assert_eq!(results.as_array().unwrap().len(), 1);
    assert_eq!(results[0]["document"]["text"], documents[expected[0].0]);
    // It has no vectors; the model that answers has.
    let refused = server.post(PATH, &json!({"model": "bert_rank", "input": "a"})).await;
    assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some("model")));
    assert_eq!(server.post(PATH, &json!({"input": "a"})).await.json()["model"], "vendor/fake");
}

#[tokio::test]
async fn documents_are_ranked_by_the_cosine_of_vectors() {
    let server = server("golden_bert_cls").await;
    let encoder = encoder("golden_bert_cls");
    let documents = ["there will be more", "who is there?", "the one"];
    let answer = server.post(RERANK, &json!({"query": "who is there?", "documents": documents})).await.json();
    assert_eq!(answer["results"][0]["index"], 1);
    assert!((answer["results"][0]["relevance_score"].as_f64().unwrap() - 1.0).abs() < 1e-6);
    let query = vector(&encoder, "who is there?");
    for result in answer["results"].as_array().unwrap() {
        let of = vector(&encoder, documents[result["index"].as_u64().unwrap() as usize]);
        let cosine: f64 = query.iter().zip(of).map(|(a, b)| f64::from(*a) * f64::from(b)).sum();
        assert!((result["relevance_score"].as_f64().unwrap() - cosine).abs() < 1e-6);
    }
}

#[tokio::test]
async fn what_cannot_be_ranked_is_named() {
    let server = server("golden_bert_rank").await;
    let long = "the ".repeat(300);
    for (body, param, code) in [
        (json!({"documents": ["a"]}), "query", "missing_required_parameter"),
        (json!({"query": "a"}), "documents", "missing_required_parameter"),
        (json!({"query": "", "documents": ["a"]}), "query", "invalid_value"),
        (json!({"query": "a", "documents": []}), "documents", "invalid_value"),
        (json!({"query": "a", "documents": "b"}), "documents", "invalid_type"),
        (json!({"query": "a", "documents": ["b", 7]}), "documents[1]", "invalid_type"),
        (json!({"query": "a", "documents": ["b", ""]}), "documents[1]", "invalid_value"),
        (json!({"query": "a", "documents": [{"title": "b"}]}), "documents[0].text", "missing_required_parameter"),
        (json!({"query": "a", "documents": ["b", long]}), "documents[1]", "context_length_exceeded"),
        (json!({"query": long, "documents": ["b"], "truncate": true}), "documents[0]", "context_length_exceeded"),
        // Read anew with each of these it would be a hundred megabytes.
        (json!({"query": "a ".repeat(50_000), "documents": vec!["b"; 1000]}), "query", "invalid_value"),
        (json!({"query": "a", "documents": ["b"], "top_n": 0}), "top_n", "invalid_value"),
        (json!({"query": "a", "documents": ["b"], "model": "vendor/fake"}), "model", "unsupported_parameter"),
    ] {
        let response = server.post(RERANK, &body).await;
        assert_eq!(response.status, 400, "{}", response.body);
        let error = &response.json()["error"];
        assert_eq!((&error["param"], &error["code"]), (&json!(param), &json!(code)), "{error}");
    }
    let cut = server.post(RERANK, &json!({"query": "a", "documents": [long], "truncate": true})).await;
    assert_eq!(cut.json()["usage"]["prompt_tokens"], 96);
    let without = Server::start().await.post(RERANK, &json!({"query": "a", "documents": ["b"]})).await;
    assert_eq!(without.status, 400);
    let words = "'model' is not supported: scores need a model for them: `duet serve --embeddings MODEL`";
    assert_eq!(without.json()["error"]["message"], words);
}

#[tokio::test]
async fn an_encoder_is_listed_beside_the_model() {
    let server = server("golden_bert_mean").await;
    let listed = server.get("/v1/models").await.json();
    let names: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["vendor/fake", "bert_mean"]);
    assert_eq!(server.get("/v1/models/bert_mean").await.json()["id"], "bert_mean");
    let tags = server.get("/api/tags").await.json();
    assert_eq!(tags["models"][1]["name"], "bert_mean:latest");
    assert_eq!(tags["models"][1]["details"]["family"], "bert");
    let shown = server.post("/api/show", &json!({"model": "bert_mean"})).await.json();
    assert_eq!(shown["capabilities"], json!(["embedding"]));
    assert_eq!(shown["model_info"]["bert.embedding_length"], 48);
    // It answers nothing.
    let body = json!({"model": "bert_mean", "messages": [{"role": "user", "content": "Hello"}]});
    assert_eq!(server.post("/v1/chat/completions", &body).await.status, 404);
}
