//! Completions that repeat their prompt with the log probability of each of its tokens, as evaluation harnesses ask.

use crate::fake::Fake;
use crate::{Server, chunks};
use duet_types::{Class, Tokens};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";

fn scored(prompt: &Value, max_tokens: u32) -> Value {
    json!({"prompt": prompt, "echo": true, "logprobs": 2, "max_tokens": max_tokens})
}

/// What a list of a choice's `logprobs` has.
fn list<'a>(choice: &'a Value, name: &str) -> &'a [Value] {
    choice["logprobs"][name].as_array().expect("a list")
}

#[tokio::test]
async fn a_prompt_is_scored_and_nothing_is_generated() {
    let server = Server::start().await;
    let answer = server.post(COMPLETIONS, &scored(&json!("naïve €!"), 0)).await.json();
    let choice = &answer["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("naïve €!"), &json!("length")));
    // A byte is a token here; a character counts where it begins.
    assert_eq!(list(choice, "text_offset"), [0, 1, 2, 3, 3, 4, 5, 6, 7, 7, 7].map(Value::from));
    assert_eq!(list(choice, "tokens")[..2], ["n", "a"]);
    let logprobs = list(choice, "token_logprobs");
    assert_eq!((logprobs.len(), &logprobs[0], &logprobs[1]), (11, &Value::Null, &json!(-2.5)));
    let top = list(choice, "top_logprobs");
    assert_eq!((top.len(), &top[0]), (11, &Value::Null));
    // The two likeliest, and the token that stands there.
    assert_eq!((top[1].as_object().map(|top| top.len()), &top[1]["a"]), (Some(3), &json!(-2.5)));
    assert_eq!(answer["usage"]["prompt_tokens"], 11);
    assert_eq!((&answer["usage"]["completion_tokens"], &answer["usage"]["total_tokens"]), (&json!(0), &json!(11)));
    let request = server.last_request();
    assert_eq!(
        (request.prompt_logprobs, request.logprobs, request.stop.max_tokens),
        (Some(2), Some(2), Some(Tokens(0)))
    );
}

#[tokio::test]
async fn generated_tokens_follow_those_of_the_prompt() {
    let server = Server::start().await;
    let answer = server.post(COMPLETIONS, &scored(&json!("go"), 3)).await.json();
    let choice = &answer["choices"][0];
    let tokens: Vec<&str> = list(choice, "tokens").iter().filter_map(Value::as_str).collect();
    assert_eq!((tokens.len(), Value::from(tokens.concat())), (5, choice["text"].clone()));
    assert_eq!(list(choice, "token_logprobs")[1..], [json!(-2.5), json!(-0.5), json!(-0.5), json!(-0.5)]);
    let mut offset = 0;
    for (token, begins) in tokens.iter().zip(list(choice, "text_offset")) {
        assert_eq!(*begins, offset);
        offset += token.chars().count();
    }
    let plain = server.post(COMPLETIONS, &json!({"prompt": "go", "logprobs": 2, "max_tokens": 3})).await.json();
    assert_eq!(list(&plain["choices"][0], "text_offset")[0], 0);
    assert_eq!(server.last_request().prompt_logprobs, None);
}

#[tokio::test]
async fn a_stream_has_the_same_in_pieces() {
    let server = Server::start().await;
    for max_tokens in [0, 3] {
        let mut body = scored(&json!("once upon a time"), max_tokens);
        let whole = server.post(COMPLETIONS, &body).await.json()["choices"][0].clone();
        body["stream"] = true.into();
        let chunks = chunks(&server.events(COMPLETIONS, &body).await);
        let choices: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]).collect();
        let text: String = choices.iter().map(|choice| choice["text"].as_str().expect("a text")).collect();
        assert_eq!(text, whole["text"]);
        assert!(choices[0]["text"] == "once upon a time", "the prompt comes first");
        assert_eq!(choices.last().expect("chunks")["finish_reason"], whole["finish_reason"]);
        for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let pieces = choices.iter().filter_map(|choice| choice["logprobs"][name].as_array());
            assert_eq!(Value::from_iter(pieces.flatten().cloned()), whole["logprobs"][name], "{name}");
        }
    }
}

#[tokio::test]
async fn each_prompt_of_any_form_has_its_own_choices() {
    let server = Server::start().await;
    for (prompt, texts) in [
        (json!(["go", "stop"]), vec!["go", "stop"]),
        (json!([103, 111]), vec!["go"]),
        (json!([[103, 111], [115, 116]]), vec!["go", "st"]),
        (json!([[103, 111], "stop"]), vec!["go", "stop"]),
    ] {
        let answer = server.post(COMPLETIONS, &scored(&prompt, 0)).await.json();
        let choices = answer["choices"].as_array().expect("choices");
        let said: Vec<&str> = choices.iter().filter_map(|choice| choice["text"].as_str()).collect();
        assert_eq!(said, texts);
        for (index, choice) in choices.iter().enumerate() {
            assert_eq!((&choice["index"], list(choice, "tokens").len()), (&json!(index), texts[index].len()));
        }
        assert_eq!(answer["usage"]["prompt_tokens"], texts.concat().len());
    }
    let mut several = scored(&json!(["go", "stop"]), 1);
    several["n"] = 2.into();
    let answer = server.post(COMPLETIONS, &several).await.json();
    let lengths: Vec<usize> =
        answer["choices"].as_array().expect("choices").iter().map(|choice| list(choice, "tokens").len()).collect();
    assert_eq!(lengths, [3, 3, 5, 5]);
    assert_eq!(answer["usage"]["prompt_tokens"], 6, "a prompt counts once for all its answers");
}

/// Nobody reads along with an answer to many prompts.
#[tokio::test]
async fn many_prompts_are_background_work_unless_the_client_says_otherwise() {
    let server = Server::start().await;
    let prompts = |count| json!({"prompt": vec!["go"; count], "max_tokens": 1});
    for (count, class, tier) in [(3, Class::Reactive, "default"), (4, Class::Proactive, "flex")] {
        let answer = server.post(COMPLETIONS, &prompts(count)).await.json();
        assert_eq!((server.last_request().class, &answer["service_tier"]), (class, &json!(tier)));
    }
    let mut said = prompts(4);
    said["service_tier"] = "priority".into();
    server.post(COMPLETIONS, &said).await;
    assert_eq!(server.last_request().class, Class::Reactive);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_its_field() {
    let server = Server::with(Fake::default(), duet_server::ServerConfig::default()).await;
    let nothing = json!({"prompt": "go", "max_tokens": 0});
    let unscored = json!({"prompt": "go", "max_tokens": 0, "echo": true});
    let chat = json!({"messages": [{"role": "user", "content": "go"}], "max_tokens": 0});
    let long = scored(&json!(vec!["x".repeat(4000); 17]), 0);
    let vllm = json!({"prompt": "go", "prompt_logprobs": 1});
    for (route, body, param) in [
        (COMPLETIONS, &nothing, "max_tokens"),
        (COMPLETIONS, &unscored, "max_tokens"),
        ("/v1/chat/completions", &chat, "max_tokens"),
        (COMPLETIONS, &long, "prompt"),
        (COMPLETIONS, &vllm, "prompt_logprobs"),
    ] {
        let reply = server.post(route, body).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)));
    }
    let mut unscored = long;
    unscored["logprobs"] = Value::Null;
    unscored["max_tokens"] = 1.into();
    assert_eq!(server.post(COMPLETIONS, &unscored).await.status, 200);
}
