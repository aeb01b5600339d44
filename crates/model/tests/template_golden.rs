//! Prompts are those of Jinja2 with Hugging Face's settings. The fixture and its maker: `scripts/golden/templates.py`.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use duet_model::template::{ChatMessage, ChatTemplate, TemplateError, Turn};
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn messages(conversation: &Value) -> Vec<ChatMessage> {
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let messages = conversation.as_array().expect("messages").iter();
    messages
        .map(|message| ChatMessage {
            tool_calls: message.get("tool_calls").cloned(),
            tool_call_id: message.get("tool_call_id").cloned(),
            name: message.get("name").cloned(),
            ..ChatMessage::new(text(&message["role"]), text(&message["content"]))
        })
        .collect()
}

fn template(name: &str, now: u64) -> ChatTemplate {
    let template = if name == "chatml" {
        ChatTemplate::chatml()
    } else {
        ChatTemplate::new(&read(path(&format!("templates/{name}.jinja"))), "<s>", "</s>").expect(name)
    };
    template.at(UNIX_EPOCH + Duration::from_secs(now)).expect(name)
}

#[test]
fn template_renders_as_jinja2_does() {
    let fixture: Value = serde_json::from_str(&read(path("templates.json"))).expect("JSON");
    let now = fixture["now"].as_u64().expect("a time");
    let mut wrong = Vec::new();
    for case in fixture["cases"].as_array().expect("cases") {
        let (name, conversation) = (case["template"].as_str(), case["conversation"].as_str());
        let (name, conversation) = (name.expect("a name"), conversation.expect("a name"));
        let tools = Some(&fixture["tools"]).filter(|_| case["tools"] == true);
        let turn = if case["generate"] == true { Turn::Generate } else { Turn::Complete };
        let rendered = template(name, now).render(&messages(&fixture["conversations"][conversation]), tools, turn);
        let expected = (case["text"].as_str(), case["raised"].as_str());
        let same = match &rendered {
            Ok(text) => expected.0 == Some(text),
            Err(TemplateError::Raised(words)) => expected.1 == Some(words),
            Err(TemplateError::Render(_)) => case["failed"].is_string(),
            Err(_) => false,
        };
        if !same {
            wrong.push(format!("{name}, {conversation}, {turn:?}\n  expected {expected:?}\n  actual   {rendered:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong, of which the first\n{}", wrong.len(), wrong[0]);
}
