//! What models write, as their makers document it, and what becomes of it.

use super::*;
use ToolFormat::*;
use proptest::prelude::*;

fn tools() -> Vec<Tool> {
    let tool = |name: &str| Tool {
        name: name.into(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
        strict: Default::default(),
    };
    vec![tool("get_weather"), tool("now")]
}

fn pieces(format: ToolFormat, texts: &[&str]) -> Vec<Piece> {
    let mut parser = CallParser::new(format, &tools(), Some(ReasoningFormat::Think), Begins::Outside);
    let mut pieces = Vec::new();
    for text in texts {
        parser.push(text).into_iter().for_each(|piece| emit(&mut pieces, piece));
    }
    parser.finish().into_iter().for_each(|piece| emit(&mut pieces, piece));
    pieces
}

/// One line for each piece; a call is one line, `name arguments`.
fn check(format: ToolFormat, text: &str, expected: &[&str]) {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces(format, &[text]) {
        match piece {
            Piece::Text(text) => lines.push(format!("text {text:?}")),
            Piece::Reasoning(text) => lines.push(format!("thought {text:?}")),
            Piece::CallBegun { index, name } => lines.push(format!("{index} {name} ")),
            Piece::Arguments { fragment, .. } => lines.last_mut().unwrap().push_str(&fragment),
            Piece::CallEnded { .. } | Piece::CallCut { .. } => {}
        }
    }
    assert_eq!(lines, expected, "{format:?} {text:?}");
}

/// Whatever is no call comes out as it went in.
fn unchanged(format: ToolFormat, text: &str) {
    assert_eq!(pieces(format, &[text]), [Piece::Text(text.into())], "{format:?}");
}

const WEATHER: &str = r#"0 get_weather {"city":"Paris"}"#;

#[test]
fn hermes_and_qwen() {
    let call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
    check(Hermes, call, &[WEATHER]);
    check(Hermes, &format!("Let me see.\n\n{call}\n"), &["text \"Let me see.\"", WEATHER]);
    let two = format!("{call}\n<tool_call>\n{{\"name\": \"now\", \"arguments\": {{}}}}\n</tool_call>");
    check(Hermes, &two, &[WEATHER, "1 now {}"]);
    check(Hermes, &format!("<think>\nHm.\n</think>\n\n{call}"), &["thought \"Hm.\"", WEATHER]);
    // Small models leave the marks out. Only a call of a tool that there is can be told from text.
    for format in [Hermes, Generic] {
        check(format, r#"{"name": "get_weather", "arguments": {"city": "Paris"}}"#, &[WEATHER]);
        unchanged(format, r#"{"name": "get_bread", "arguments": {}}"#);
        unchanged(format, r#"So: {"name": "get_weather", "arguments": {}}"#);
    }
    // The end of the turn closes.
    check(Hermes, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool", &["0 now {}"]);
    // A closing mark in a string closes nothing.
    let marked = r#"<tool_call>{"name": "now", "arguments": {"a": "</tool_call>}"}}</tool_call>"#;
    check(Hermes, marked, &[r#"0 now {"a":"</tool_call>}"}"#]);
}

#[test]
fn smollm2() {
    let call = r#"<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now"}]</tool_call>"#;
    check(Generic, call, &[WEATHER, "1 now {}"]);
}

#[test]
fn llama_json() {
    let call = r#"{"name": "get_weather", "parameters": {"city": "Paris"}}"#;
    check(LlamaJson, call, &[WEATHER]);
    check(LlamaJson, &format!("\n<|python_tag|>{call}"), &[WEATHER]);
    check(LlamaJson, &format!("{call}; {call}"), &[WEATHER, &WEATHER.replace("0 ", "1 ")]);
    let typed = r#"{"type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Paris\"}"}}"#;
    check(LlamaJson, typed, &[WEATHER]);
    unchanged(LlamaJson, r#"{"name": "Bob", "parameters": {}}"#);
    unchanged(LlamaJson, r#"{"city": "Paris"}"#);
    unchanged(LlamaJson, &format!("So: {call}"));
    unchanged(LlamaJson, "<|python_tag|>print(1)");
}

#[test]
fn llama_pythonic() {
    check(LlamaPythonic, r#"[get_weather(city="Paris"), now()]"#, &[WEATHER, "1 now {}"]);
    check(LlamaPythonic, "<|python_start|>[get_weather(city='Paris')]", &[WEATHER]);
    unchanged(LlamaPythonic, "[1, 2] is a list (of numbers)");
    unchanged(LlamaPythonic, "[get_weather(city=x)]");
    unchanged(LlamaPythonic, "[other()]");
}

#[test]
fn mistral() {
    let list = r#"[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}, "id": "VvvODy9mT"}]"#;
    check(MistralList, &format!("[TOOL_CALLS] {list}"), &[WEATHER, "1 now {}"]);
    check(MistralList, &format!("Well.[TOOL_CALLS]{list}"), &["text \"Well.\"", WEATHER, "1 now {}"]);
    let args = r#"[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]now[CALL_ID]a1b2c3d4e[ARGS]{}"#;
    check(MistralArgs, args, &[WEATHER, "1 now {}"]);
    check(MistralArgs, r#"[TOOL_CALLS]get_weather{"city": "Paris"}"#, &[WEATHER]);
    check(MistralArgs, &format!("[TOOL_CALLS]{list}"), &[WEATHER, "1 now {}"]);
}

#[test]
fn malformed_calls_are_text_as_written() {
    for text in [
        "<tool_call>",
        "  <tool_call>\n not json",
        "a <tool_call>\n{\"name\": \"now\"",
        "<tool_call>{\"name\": \"now\"}} </tool_call> ",
        "<tool_call>{\"nme\": \"now\"}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>\n",
        "<tool_call>[]</tool_call>",
        "1 < 2 <tool",
    ] {
        unchanged(Hermes, text);
    }
    for text in ["[TOOL_CALLS] x y", "[TOOL_CALLS]now[ARGS]{]", "[TOOL_CALLS][ARGS]{}", "[TOOL_CALLS]now"] {
        unchanged(MistralArgs, text);
    }
    let call = r#"<tool_call>{"name": "now"}</tool_call>"#;
    check(Hermes, &format!("<tool_call>{call}"), &["text \"<tool_call>\"", "0 now {}"]);
}

#[test]
fn without_tools_nothing_is_a_call() {
    let text = r#"<tool_call>{"name": "now"}</tool_call>"#;
    let mut parser = CallParser::new(Hermes, &[], None, Begins::Outside);
    assert_eq!(parser.push(text), [Piece::Text(text.into())]);
}

#[test]
fn what_is_held_is_bounded() {
    let mut parser = CallParser::new(Hermes, &tools(), None, Begins::Outside);
    let mut text = parser.push("<tool_call>{\"name\": \"");
    for _ in 0..HELD_MAX / 1024 + 1 {
        text.extend(parser.push(&"a".repeat(1024)));
    }
    assert!(!text.is_empty());
}

const FORMATS: [ToolFormat; 6] = [Hermes, LlamaJson, LlamaPythonic, MistralList, MistralArgs, Generic];

/// Texts that are nearly calls.
fn near() -> impl Strategy<Value = Vec<String>> {
    let parts = [
        "<tool_call>",
        "</tool_call>",
        "<tool",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[TOOL",
        "<|python_tag|>",
        "now",
        "get_weather",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "\"",
        "'",
        "\\",
        ",",
        ":",
        "=",
        ";",
        " ",
        "\n",
        "1",
        "\"name\"",
        "\"arguments\"",
        "\"now\"",
        "{\"name\": \"now\", \"arguments\": {}}",
        "now(a=1)",
        "[now()]",
        "<think>",
        "</think>",
        "é",
        "😀",
    ];
    prop::collection::vec(
        prop_oneof![4 => prop::sample::select(parts.to_vec()).prop_map(str::to_owned), 1 => "\\PC{1,3}"],
        0..16,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn cuts_change_nothing(texts in near()) {
        let whole = texts.concat();
        let characters: Vec<String> = whole.chars().map(String::from).collect();
        for format in FORMATS {
            let expected = pieces(format, &[&whole]);
            let cut: Vec<&str> = texts.iter().map(String::as_str).collect();
            prop_assert_eq!(&pieces(format, &cut), &expected);
            let cut: Vec<&str> = characters.iter().map(String::as_str).collect();
            prop_assert_eq!(&pieces(format, &cut), &expected);
        }
    }

    #[test]
    fn what_has_no_call_is_unchanged(texts in near()) {
        let whole = texts.concat();
        for format in FORMATS {
            let mut parser = CallParser::new(format, &tools(), None, Begins::Outside);
            let mut found = parser.push(&whole);
            found.extend(parser.finish());
            if parser.calls() == 0 {
                let text: String = found.into_iter().map(|piece| match piece {
                    Piece::Text(text) => text,
                    other => panic!("{other:?}"),
                }).collect();
                prop_assert_eq!(text, whole.clone());
            }
        }
    }

    #[test]
    fn a_call_between_texts_is_found(before in "[a-z .\n]{0,20}", value in "\\PC{0,20}") {
        let arguments = serde_json::json!({ "city": value }).to_string();
        let text = format!("{before}<tool_call>\n{{\"name\": \"now\", \"arguments\": {arguments}}}\n</tool_call>");
        let found = pieces(Hermes, &[&text]);
        let expected = Piece::Arguments { index: 0, fragment: arguments };
        prop_assert!(found.contains(&expected), "{:?}", found);
    }
}
