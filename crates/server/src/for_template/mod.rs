//! A conversation as the model's template wants it.
//!
//! OpenAI sends the arguments of calls as a text of JSON; templates write them down as JSON, so they are given what the
//! text holds. Where a template knows no tools, the system message tells of them, calls of the past are written as the
//! model is told to write them, and results are given to it as what the user says. What an assistant thought is given to all
//! templates: those that know of thoughts say themselves for how long they are shown.

mod call_ids;
mod one_call;
pub(crate) mod rules;

use crate::backend::Chat;
use crate::messages::{ChatMessage, Role};
use duet_agents::{Tool, ToolFormat};
use duet_model::template;
use serde_json::{Value, json};

/// Messages and tools for a template of this family.
pub(crate) fn for_template(chat: &Chat<'_>, family: ToolFormat) -> (Vec<template::ChatMessage>, Option<Value>) {
    let told = family.instructions(chat.tools);
    if family != ToolFormat::Generic {
        let tools = (!chat.tools.is_empty()).then(|| chat.tools.iter().map(schema).collect());
        return (with_calls(chat.messages, family), tools);
    }
    let mut messages: Vec<template::ChatMessage> = chat.messages.iter().map(written_out).collect();
    if let Some(told) = told {
        match messages.first_mut().filter(|first| first.role == Role::System.name()) {
            Some(system) => system.content = format!("{}\n\n{told}", system.content),
            None => messages.insert(0, template::ChatMessage::new(Role::System.name(), told)),
        }
    }
    (messages, None)
}

/// Messages for a template that has a way to write calls.
fn with_calls(messages: &[ChatMessage], family: ToolFormat) -> Vec<template::ChatMessage> {
    match family {
        ToolFormat::MistralList | ToolFormat::MistralArgs => {
            let mut messages: Vec<_> = messages.iter().map(message).collect();
            call_ids::make_fit(&mut messages);
            messages
        }
        ToolFormat::LlamaJson => one_call::at_a_time(messages).iter().map(message).collect(),
        ToolFormat::Harmony => messages.iter().map(of_harmony).collect(),
        _ => messages.iter().map(message).collect(),
    }
}

/// Its template knows thoughts by another name, and takes either them or a text beside calls.
fn of_harmony(said: &ChatMessage) -> template::ChatMessage {
    let mut message = message(said);
    if message.tool_calls.is_some()
        && let Some(thought) = message.reasoning_content.take()
    {
        message.thinking = Some(thought);
        message.content.clear();
    }
    message
}

fn schema(tool: &Tool) -> Value {
    let parameters = match &tool.parameters {
        Value::Null => json!({"type": "object", "properties": {}}),
        parameters => parameters.clone(),
    };
    let function = json!({"name": tool.name, "description": tool.description, "parameters": parameters});
    json!({"type": "function", "function": function})
}

fn message(message: &ChatMessage) -> template::ChatMessage {
    template::ChatMessage {
        role: message.role.name().to_owned(),
        content: message.content.clone(),
        reasoning_content: message.reasoning.clone(),
        thinking: None,
        tool_calls: message.tool_calls.as_ref().map(with_arguments),
        tool_call_id: message.tool_call_id.clone().map(Value::String),
        name: message.name.clone().map(Value::String),
    }
}

/// Calls whose arguments are what their text holds.
fn with_arguments(calls: &Value) -> Value {
    let mut calls = calls.clone();
    for call in calls.as_array_mut().into_iter().flatten() {
        if let Some(Value::Object(function)) = call.get_mut("function") {
            let arguments = function.entry("arguments").or_insert(Value::Null);
            *arguments = parsed(arguments);
        }
    }
    calls
}

/// Clients write down in several ways that a call has none.
fn parsed(arguments: &Value) -> Value {
    match arguments {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => arguments.clone(),
        },
        other => other.clone(),
    }
}

/// A message for a template that knows of no calls.
fn written_out(message: &ChatMessage) -> template::ChatMessage {
    let plain = template::ChatMessage {
        reasoning_content: message.reasoning.clone(),
        ..template::ChatMessage::new(message.role.name(), message.content.clone())
    };
    match (message.role, &message.tool_calls) {
        (Role::Tool, _) => {
            let content = format!("<tool_response>\n{}\n</tool_response>", message.content);
            template::ChatMessage::new(Role::User.name(), content)
        }
        (_, Some(Value::Array(calls))) => {
            let call = |call: &Value| {
                let function = &call["function"];
                let written = json!({"name": function["name"], "arguments": parsed(&function["arguments"])});
                format!("<tool_call>\n{written}\n</tool_call>")
            };
            let said = (!message.content.is_empty()).then(|| message.content.clone());
            let lines: Vec<String> = said.into_iter().chain(calls.iter().map(call)).collect();
            template::ChatMessage { content: lines.join("\n"), ..plain }
        }
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn said(role: Role, content: &str) -> ChatMessage {
        ChatMessage::said(role, content.to_owned())
    }

    fn conversation() -> Vec<ChatMessage> {
        let calls = json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]);
        vec![
            said(Role::System, "Be brief."),
            ChatMessage { tool_calls: Some(calls), ..said(Role::Assistant, "") },
            said(Role::Tool, "7"),
        ]
    }

    fn tool() -> Tool {
        Tool { name: "f".to_owned(), description: String::new(), parameters: Value::Null, strict: Default::default() }
    }

    #[test]
    fn a_template_with_tools_is_given_them_and_arguments_as_they_are() {
        let (messages, tools) = (conversation(), [tool()]);
        let chat = Chat { messages: &messages, tools: &tools, told: &Map::new() };
        let (given, tools) = for_template(&chat, ToolFormat::Hermes);
        assert_eq!(given[1].tool_calls.as_ref().unwrap()[0]["function"]["arguments"], json!({"a": 1}));
        assert_eq!(tools.unwrap()[0]["function"]["name"], "f");
    }

    #[test]
    fn a_call_without_arguments_has_none_however_that_is_said() {
        for function in [
            json!({"name": "f", "arguments": ""}),
            json!({"name": "f", "arguments": null}),
            json!({"name": "f"}),
            json!({"name": "f", "arguments": "{}"}),
        ] {
            let mut messages = conversation();
            messages[1].tool_calls = Some(json!([{"id": "1", "type": "function", "function": function}]));
            let chat = Chat { messages: &messages, tools: &[tool()], told: &Map::new() };
            let (given, _) = for_template(&chat, ToolFormat::Hermes);
            assert_eq!(given[1].tool_calls.as_ref().unwrap()[0]["function"]["arguments"], json!({}), "{function}");
            assert!(written_out(&messages[1]).content.contains(r#""arguments":{}"#), "{function}");
        }
    }

    #[test]
    fn gpt_oss_is_given_thoughts_beside_calls_by_its_name_for_them() {
        let mut messages = conversation();
        messages[1].reasoning = Some("It wants f.".to_owned());
        let (given, _) =
            for_template(&Chat { messages: &messages, tools: &[tool()], told: &Map::new() }, ToolFormat::Harmony);
        assert_eq!((given[1].thinking.as_deref(), &given[1].reasoning_content), (Some("It wants f."), &None));
        let (given, _) =
            for_template(&Chat { messages: &messages, tools: &[tool()], told: &Map::new() }, ToolFormat::Hermes);
        assert_eq!((given[1].reasoning_content.as_deref(), &given[1].thinking), (Some("It wants f."), &None));
    }

    /// Templates of our own with the rules that the makers' have.
    #[test]
    fn strict_templates_take_what_any_client_sends() {
        let source = |name: &str| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/templates");
            std::fs::read_to_string(format!("{folder}/{name}.jinja")).unwrap()
        };
        let mistral = source("mistral").replace("!= 6", "!= 9");
        let calls = json!([
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"type": "function", "function": {"name": "f", "arguments": {}}},
        ]);
        let messages = [
            said(Role::User, "hi"),
            ChatMessage { tool_calls: Some(calls), ..said(Role::Assistant, "") },
            ChatMessage { tool_call_id: Some("call_1".to_owned()), ..said(Role::Tool, "7") },
            said(Role::Tool, "8"),
        ];
        let tools = [tool()];
        for (source, family) in [(mistral, ToolFormat::MistralList), (source("llama3"), ToolFormat::LlamaJson)] {
            assert_eq!(ToolFormat::of_template(&source), family);
            let template = template::ChatTemplate::new(&source, "<s>", "</s>").unwrap();
            let chat = Chat { messages: &messages, tools: &tools, told: &Map::new() };
            let (given, tools) = for_template(&chat, family);
            let text = template.render(&given, tools.as_ref(), template::Turn::Generate).unwrap();
            assert!(text.contains('7') && text.contains('8'), "{text}");
        }
    }

    #[test]
    fn a_template_without_tools_is_told_in_words() {
        let (messages, tools) = (conversation(), [tool()]);
        let chat = Chat { messages: &messages, tools: &tools, told: &Map::new() };
        let (given, tools) = for_template(&chat, ToolFormat::Generic);
        assert!(tools.is_none() && given.iter().all(|message| message.tool_calls.is_none()));
        assert!(given[0].content.starts_with("Be brief.\n\n") && given[0].content.contains("<tools>"));
        assert_eq!(given[1].content, "<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>");
        assert_eq!(
            (given[2].role.as_str(), given[2].content.as_str()),
            ("user", "<tool_response>\n7\n</tool_response>")
        );
    }
}
