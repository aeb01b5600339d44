//! Typed questions. The fake finds every token equally likely, but takes one that is wanted.

use crate::Server;
use crate::fake::Fake;
use crate::http::Connection;
use duet_server::ServerConfig;
use duet_types::{Class, Tokens};
use serde_json::{Value, json};

const PATH: &str = "/v1/systemone";

fn about_ticket(questions: Value) -> Value {
    json!({"model": "vendor/fake:latest", "state": "The shop is down.", "questions": questions})
}

#[tokio::test]
async fn each_type_has_its_answer() {
    let server = Server::start().await;
    let response = server
        .post(
            PATH,
            &about_ticket(json!({
                "label": {"type": "choice", "instructions": "Which?", "criteria": {"bug": "A fault", "sale": null}},
                "urgent": {"type": "noul", "instructions": "Is it urgent?"},
                "grade": {"type": "score", "instructions": "How bad?", "criteria": ["fine", "bad", "worse"]},
            })),
        )
        .await;
    assert_eq!(response.status, 200, "{}", response.body);
    let body = response.json();
    let close = |value: &Value, to: f64| value.as_f64().is_some_and(|value| (value - to).abs() < 1e-5);
    let answers = &body["answers"];
    assert_eq!((&answers["label"]["type"], &answers["label"]["choice"]), (&json!("choice"), &json!("bug")));
    assert!(close(&answers["label"]["probabilities"]["sale"], 0.5) && close(&answers["label"]["confidence"], 0.0));
    assert_eq!(answers["urgent"]["type"], "noul");
    assert!(close(&answers["urgent"]["noul"], 0.5), "{answers}");
    assert!(close(&answers["grade"]["score"], 1.0));
    assert_eq!(answers["grade"]["legend"], json!({"0": "fine", "1": "bad", "2": "worse"}));
    assert!(body["usage"]["input_tokens"].as_u64() > Some(100) && body["usage"]["output_tokens"].as_u64() > Some(0));
    let request = server.last_request();
    assert_eq!((request.stop.max_tokens, request.class), (Some(Tokens(1)), Class::Reactive));
}

/// They part at their second letter, where a step decides.
#[tokio::test]
async fn answers_that_begin_alike_are_decided_later() {
    let server = Server::start().await;
    let question = json!({"q": {"type": "choice", "instructions": "?", "criteria": ["aab", "aac", "b"]}});
    let answer = server.post(PATH, &about_ticket(question)).await.json();
    assert_eq!(answer["answers"]["q"]["probabilities"], json!({"aab": 0.25, "aac": 0.25, "b": 0.5}));
    let requests = server.fake.requests.lock().expect("no test panicked");
    let last: Vec<u8> = requests.last().expect("some").prompt.iter().map(|token| token.0 as u8).collect();
    assert!(last.ends_with(b"aa"), "what they share is not asked for");
}

#[tokio::test]
async fn lists_scales_and_conversations() {
    let server = Server::start().await;
    let messages = json!([{"role": "user", "content": "I am late."}, {"role": "assistant", "content": "Oh."}]);
    let questions = json!([
        {"id": "a", "type": "yes_no", "question": "Late?"},
        {"id": "b", "type": "choice", "question": "Who?", "choices": ["me", "you"]},
        {"id": "c", "type": "score", "question": "How late?", "min": 1, "max": 5},
        {"id": "d", "type": "yes_no", "question": "Sure?"},
    ]);
    let response = server.post(PATH, &json!({"messages": messages, "questions": questions})).await;
    let answers = &response.json()["answers"];
    assert_eq!(answers["c"]["score"], 3.0);
    assert_eq!(answers["b"]["type"], "choice");
    assert_eq!(server.last_request().class, Class::Proactive, "many questions are background work");
    let body = json!({"messages": messages, "questions": questions, "service_tier": "priority"});
    assert_eq!(server.post(PATH, &body).await.status, 200);
    assert_eq!(server.last_request().class, Class::Reactive);
}

#[tokio::test]
async fn what_is_no_question() {
    let server = Server::start().await;
    let many: Vec<String> = (0..65).map(|index| index.to_string()).collect();
    for (questions, param) in [
        (json!({}), "questions"),
        (json!("?"), "questions"),
        (json!({"q": {"instructions": "?"}}), "questions.q.type"),
        (json!({"q": {"type": "guess", "instructions": "?"}}), "questions.q.type"),
        (json!({"q": {"type": "noul"}}), "questions.q.instructions"),
        (json!({"q": {"type": "choice", "instructions": "?"}}), "questions.q.criteria"),
        (json!({"q": {"type": "choice", "instructions": "?", "criteria": ["one"]}}), "questions.q.criteria"),
        (json!({"q": {"type": "choice", "instructions": "?", "criteria": ["a", "a"]}}), "questions.q.criteria"),
        (json!({"q": {"type": "choice", "instructions": "?", "criteria": many}}), "questions.q.criteria"),
        (json!({"q": {"type": "score", "instructions": "?", "min": 0, "max": 1000}}), "questions.q.criteria"),
        (json!([{"type": "noul", "question": "?"}]), "questions[0].id"),
    ] {
        let response = server.post(PATH, &about_ticket(questions.clone())).await;
        assert_eq!((response.status, response.json()["error"]["param"].as_str()), (400, Some(param)), "{questions}");
    }
    let question = json!({"q": {"type": "noul", "instructions": "?"}});
    let long = json!({"state": "x".repeat(70_000), "questions": question});
    assert_eq!(server.post(PATH, &long).await.status, 413);
    let long = json!({"state": "x".repeat(5000), "questions": question});
    assert_eq!(server.post(PATH, &long).await.json()["error"]["code"], "context_length_exceeded");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_questions() {
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let server = Server::with(Fake { gate: Some(gate), ..Fake::default() }, ServerConfig::default()).await;
    let body = about_ticket(json!({"q": {"type": "noul", "instructions": "?"}})).to_string();
    let asking = Connection::send(server.address, &format!("POST {PATH}"), &[], Some(body.as_bytes())).await;
    while server.fake.requests.lock().expect("no test panicked").is_empty() {
        tokio::task::yield_now().await;
    }
    drop(asking);
    server.wait_for_cancelled(1).await;
}
