//! What requests are for: named, or by their instructions.

use crate::Server;
use duet_engine::{Remember, TaskName};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

async fn chat_task(server: &Server, messages: &[(&str, &str)], metadata: Value) -> TaskName {
    let messages: Vec<_> = messages.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    let response = server.post(CHAT, &json!({"messages": messages, "metadata": metadata, "max_tokens": 1})).await;
    assert_eq!(response.status, 200, "{}", response.body);
    server.last_request().task
}

#[tokio::test]
async fn the_task_is_what_metadata_says_or_the_instructions() {
    let server = Server::start().await;
    let user = ("user", "hi");
    let named = chat_task(&server, &[("system", "be brief"), user], json!({"task": "mail"})).await;
    assert_eq!(named, TaskName::named("mail"));
    let brief = TaskName::of_instructions("be brief");
    for (role, metadata) in [("system", Value::Null), ("developer", json!({})), ("system", json!({"task": null}))] {
        assert_eq!(chat_task(&server, &[(role, "be brief"), user], metadata).await, brief);
    }
    let more = chat_task(&server, &[("system", "be brief"), user, ("system", "be kind")], Value::Null).await;
    assert_eq!(more, TaskName::of_instructions("be brief\nbe kind"));
    assert_eq!(chat_task(&server, &[user], Value::Null).await, TaskName::default());
}

#[tokio::test]
async fn completions_have_the_task_that_metadata_says() {
    let server = Server::start().await;
    for (metadata, task) in [(json!({"task": "code"}), TaskName::named("code")), (json!({}), TaskName::default())] {
        let body = json!({"prompt": "hi", "metadata": metadata, "max_tokens": 1});
        assert_eq!(server.post(COMPLETIONS, &body).await.status, 200);
        assert_eq!(server.last_request().task, task);
    }
}

#[tokio::test]
async fn what_is_not_to_be_stored_is_not_remembered() {
    let server = Server::start().await;
    for (store, remember) in [(json!(false), Remember::Nothing), (Value::Null, Remember::Answer)] {
        let body = json!({"prompt": "hi", "store": store, "max_tokens": 1});
        assert_eq!(server.post(COMPLETIONS, &body).await.status, 200);
        assert_eq!(server.last_request().remember, remember);
    }
}

#[tokio::test]
async fn metadata_that_makes_no_sense_is_refused_by_name() {
    let server = Server::start().await;
    for (metadata, param) in [
        (json!("mail"), "metadata"),
        (json!([]), "metadata"),
        (json!({"task": 1}), "metadata.task"),
        (json!({"task": ""}), "metadata.task"),
        (json!({"task": "x".repeat(513)}), "metadata.task"),
    ] {
        let response = server.post(COMPLETIONS, &json!({"prompt": "hi", "metadata": metadata})).await;
        assert_eq!(response.status, 400, "{metadata}");
        assert_eq!(response.json()["error"]["param"], param, "{}", response.body);
    }
}
