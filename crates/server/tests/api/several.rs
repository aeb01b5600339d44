//! Several answers to one prompt, which is read once for all of them.

use super::{Server, chunks};
use crate::fake::{Fake, Fault};
use duet_engine::{EngineError, Output};
use duet_server::ServerConfig;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn asking(n: usize) -> Value {
    json!({"messages": [{"role": "user", "content": "hello"}], "n": n, "seed": 5, "temperature": 1})
}

fn outputs(server: &Server) -> Vec<Output> {
    server.fake.requests.lock().expect("no test panicked").iter().map(|request| request.output).collect()
}

fn contents(answer: &Value) -> Vec<String> {
    let choices = answer["choices"].as_array().expect("choices");
    choices.iter().map(|choice| choice["message"]["content"].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn the_prompt_is_read_first_and_counted_once() {
    let server = Server::start().await;
    let answer = server.post(CHAT, &asking(3)).await.json();
    assert_eq!(outputs(&server), [Output::KeptPrompt, Output::Answer, Output::Answer, Output::Answer]);
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["prompt_tokens_details"]["cached_tokens"]), (&json!(11), &json!(3)));
    for (index, content) in contents(&answer).into_iter().enumerate() {
        let mut alone = asking(1);
        alone["seed"] = (5 + index).into();
        assert_eq!(contents(&server.post(CHAT, &alone).await.json()), [content]);
    }
    assert!(outputs(&server)[4..].iter().all(|output| *output == Output::Answer), "one answer reads for itself");
}

#[tokio::test]
async fn each_prompt_has_a_reading_and_a_stream_tells_of_it() {
    let server = Server::start().await;
    server.post(COMPLETIONS, &json!({"prompt": ["ab", "c", "def"], "n": 2})).await;
    let read = outputs(&server).iter().filter(|output| **output == Output::KeptPrompt).count();
    assert_eq!(read, 2, "of a prompt of one token there is nothing to share");
    let mut streamed = asking(2);
    streamed["stream"] = true.into();
    streamed["return_progress"] = true.into();
    let chunks = chunks(&server.events(CHAT, &streamed).await);
    let told: Vec<&Value> = chunks.iter().filter(|chunk| chunk.get("prompt_progress").is_some()).collect();
    assert!(!told.is_empty() && told[0]["prompt_progress"]["cache"] == 3, "{chunks:?}");
}

#[tokio::test]
async fn all_answers_have_the_scores_of_one_reading() {
    let server = Server::start().await;
    let body = json!({"prompt": "abcdefgh", "n": 3, "echo": true, "logprobs": 2, "max_tokens": 1});
    let answer = server.post(COMPLETIONS, &body).await.json();
    for choice in answer["choices"].as_array().expect("choices") {
        assert_eq!(choice["logprobs"]["tokens"].as_array().map(Vec::len), Some(9));
    }
    let requests = server.fake.requests.lock().expect("no test panicked");
    let scored: Vec<bool> = requests.iter().map(|request| request.prompt_logprobs.is_some()).collect();
    assert_eq!(scored, [true, false, false, false]);
}

#[tokio::test]
async fn what_fails_is_said_and_who_goes_takes_the_reading_along() {
    let refusing = Fake { fault: Fault::Refuse(EngineError::Busy { queued: 9 }), ..Fake::default() };
    let server = Server::with(refusing, ServerConfig::default()).await;
    assert_eq!(server.post(CHAT, &asking(2)).await.status, 429);
    let failing = Fake { fault: Fault::Fail(0, EngineError::Internal("no".to_owned())), ..Fake::default() };
    let server = Server::with(failing, ServerConfig::default()).await;
    assert_eq!(server.post(CHAT, &asking(2)).await.status, 500);
    let gated = Fake { gate: Some(Arc::new(Semaphore::new(0))), ..Fake::default() };
    let server = Server::with(gated, ServerConfig::default()).await;
    let mut streamed = asking(2);
    streamed["stream"] = true.into();
    drop(server.stream(CHAT, &streamed).await);
    // Both answers: their prompt was read.
    server.wait_for_cancelled(2).await;
}
