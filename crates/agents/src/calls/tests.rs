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
fn harmony() {
    let check = |text: &str, expected: &[&str]| {
        let mut parser = CallParser::new(Harmony, &tools(), Some(ReasoningFormat::Channel), Begins::Outside);
        let mut pieces = parser.push(text);
        pieces.extend(parser.finish());
        let line = |piece: &Piece| match piece {
            Piece::Text(text) => format!("text {text}"),
            Piece::Reasoning(text) => format!("thought {text}"),
            Piece::CallBegun { index, name } => format!("{index} {name}"),
            Piece::Arguments { fragment, .. } => fragment.clone(),
            Piece::CallEnded { .. } | Piece::CallCut { .. } => "end".to_owned(),
        };
        assert_eq!(pieces.iter().map(line).collect::<Vec<_>>(), expected, "{text}");
    };
    let header = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>";
    let thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
    check(
        &format!("{thought}{header}{{\"city\": \"Paris\"}}<|call|>"),
        &["thought Hm.", "0 get_weather", r#"{"city":"Paris"}"#, "end"],
    );
    check(header, &["0 get_weather", "{}", "end"]);
    check(&format!("{header}Paris"), &[&format!("text {header}Paris")]);
    check(&format!("{thought}<|channel|>final<|message|>Sunny."), &["thought Hm.", "text Sunny."]);
}

#[test]
fn qwen3_coder() {
    let call = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>";
    check(QwenXml, call, &[WEATHER]);
    let two = format!("So:\n{call}\n<tool_call>\n<function=now>\n</function>\n</tool_call>");
    check(QwenXml, &two, &["text \"So:\"", WEATHER, "1 now {}"]);
    let lines = "<tool_call><function=now><parameter=a>\n if (x) {\n  <b>\n\n</parameter></function></tool_call>";
    check(QwenXml, lines, &[r#"0 now {"a":" if (x) {\n  <b>\n"}"#]);
    let marked = "<tool_call><function=now><parameter=a></tool_call></parameter></function></tool_call>";
    check(QwenXml, marked, &[r#"0 now {"a":"</tool_call>"}"#]);
    // The end of the turn closes what is whole.
    check(QwenXml, "<tool_call>\n<function=now>\n</function>\n</tool", &["0 now {}"]);
    for text in [
        "<tool_call>\n<function=now>\n<parameter=a>\n1",
        "<tool_call>{\"name\": \"now\"}</tool_call>",
        "<tool_call><function=>\n</function></tool_call>",
        "<tool_call><function=now> so </function></tool_call>",
        "<function=now></function>",
    ] {
        unchanged(QwenXml, text);
    }
}

#[test]
fn glm() {
    let call = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>";
    check(GlmXml, call, &[WEATHER]);
    check(GlmXml, &call.replace('\n', ""), &[WEATHER]);
    let two = format!("<think>Hm.</think>\nSo:\n{call}\n<tool_call>now\n</tool_call>");
    check(GlmXml, &two, &["thought \"Hm.\"", "text \"So:\"", WEATHER, "1 now {}"]);
    let lines = "<tool_call>now\n<arg_key>a</arg_key>\n<arg_value>\n if (x) </tool_call>\n</arg_value>\n</tool_call>";
    check(GlmXml, lines, &[r#"0 now {"a":"\n if (x) </tool_call>\n"}"#]);
    // The end of the turn closes what is whole.
    check(GlmXml, "<tool_call>now", &["0 now {}"]);
    check(GlmXml, &call[..call.len() - 3], &[WEATHER]);
    for text in [
        "<tool_call>now\n<arg_key>a</arg_key>\n<arg_value>1",
        "<tool_call>{\"name\": \"now\"}</tool_call>",
        "<tool_call>now so</tool_call>",
        "<tool_call>now\n<arg_value>1</arg_value></tool_call>",
        "<arg_key>a</arg_key>",
    ] {
        unchanged(GlmXml, text);
    }
}

#[test]
fn lfm2() {
    let call = "<|tool_call_start|>[get_weather(city=\"Paris\")]<|tool_call_end|>";
    check(LfmPythonic, call, &[WEATHER]);
    check(LfmPythonic, &call.replace('"', "'"), &[WEATHER]);
    check(LfmPythonic, &format!("{call}I asked."), &[WEATHER, "text \"I asked.\""]);
    let two = "Well.\n<|tool_call_start|>[get_weather(city=\"Paris\"), now(a=\"]<|tool_call_end|>\")]<|tool_call_end|>";
    check(LfmPythonic, two, &["text \"Well.\"", WEATHER, r#"1 now {"a":"]<|tool_call_end|>"}"#]);
    let json = r#"<|tool_call_start|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]<|tool_call_end|>"#;
    check(LfmPythonic, json, &[WEATHER]);
    check(LfmPythonic, &call[..call.len() - 5], &[WEATHER]);
    for text in [
        "[get_weather(city=\"Paris\")]",
        "<|tool_call_start|>get_weather<|tool_call_end|>",
        "<|tool_call_start|>[1, 2]<|tool_call_end|>",
        "<|tool_call_start|>[now()] so",
    ] {
        unchanged(LfmPythonic, text);
    }
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

/// The parser's pieces of `texts`, calls told as soon as they are certain.
fn told(format: ToolFormat, texts: &[&str]) -> Vec<Piece> {
    let parser = CallParser::new(format, &tools(), Some(ReasoningFormat::Think), Begins::Outside);
    let mut parser = parser.by_pieces(Certain::Spelled);
    let mut pieces: Vec<Piece> = texts.iter().flat_map(|text| parser.push(text)).collect();
    pieces.extend(parser.finish());
    pieces
}

#[test]
fn certain_calls_come_as_they_are_written() {
    let city = |index, fragment: &str| Piece::Arguments { index, fragment: fragment.into() };
    let begun = |index| Piece::CallBegun { index, name: "get_weather".into() };
    for (format, texts) in [
        (
            Hermes,
            ["<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci", "ty\": \"Pa", "ris\"}}\n</tool_call>"],
        ),
        (Hermes, ["{\"name\": \"get_weather\", \"arguments\": {\"ci", "ty\": \"Pa", "ris\"}}"]),
        (LlamaJson, ["{\"name\": \"get_weather\", \"parameters\": {\"ci", "ty\": \"Pa", "ris\"}}"]),
        (MistralList, ["[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"ci", "ty\": \"Pa", "ris\"}}]"]),
        (MistralArgs, ["[TOOL_CALLS]get_weather[ARGS]{\"ci", "ty\": \"Pa", "ris\"}"]),
    ] {
        let parts = ["{\"ci", "ty\":\"Pa", "ris\"}"].map(|part| city(0, part));
        let [first, second, third] = parts;
        let expected = [begun(0), first, second, third, Piece::CallEnded { index: 0 }];
        assert_eq!(told(format, &texts), expected, "{format:?}");
        assert_eq!(told(format, &texts[..2])[..3], expected[..3], "{format:?}");
        assert_eq!(told(format, &texts[..2])[3..], [Piece::CallCut { index: 0 }], "{format:?}: it was cut");
    }
    // Spelled otherwise, or of no tool, it may still be text.
    for text in [
        "{ \"name\": \"now\", \"arguments\": {",
        "{\"name\": \"nix\", \"arguments\": {",
        " {\"name\": \"now\", \"arguments\": {",
    ] {
        assert_eq!(told(Hermes, &[text]), [Piece::Text(text.into())]);
    }
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

const FORMATS: [ToolFormat; 7] = [Hermes, QwenXml, LlamaJson, LlamaPythonic, MistralList, MistralArgs, Generic];

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
        "<function=now>",
        "</function>",
        "<parameter=a>",
        "</parameter>",
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

    /// All pieces of a call together are what it is as a whole, wherever the text is cut.
    #[test]
    fn pieces_make_the_whole(
        values in prop::collection::vec(("[a-z]{1,3}", "\\PC{0,8}", any::<f64>()), 0..4),
        pretty in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let arguments: serde_json::Map<_, _> =
            values.into_iter().map(|(key, text, number)| (key, serde_json::json!([text, number, {"é\n\"": null}]))).collect();
        let spelled = if pretty { serde_json::to_string_pretty(&arguments) } else { serde_json::to_string(&arguments) }.unwrap();
        for (format, call) in [
            (Hermes, format!("So:\n<tool_call>\n{{\"name\": \"now\", \"arguments\": {spelled}}}\n</tool_call>")),
            (LlamaJson, format!("{{\"name\": \"now\", \"parameters\": {spelled}}}")),
            (MistralList, format!("[TOOL_CALLS] [{{\"name\": \"now\", \"arguments\": {spelled}}}]")),
            (MistralArgs, format!("[TOOL_CALLS]now[ARGS]{spelled}")),
        ] {
            let mut at: Vec<usize> = cuts.iter().map(|cut| call.floor_char_boundary(cut.index(call.len()))).collect();
            at.sort_unstable();
            let ends = at.iter().copied().chain([call.len()]);
            let begins = [0].into_iter().chain(at.iter().copied());
            let texts: Vec<&str> = begins.zip(ends).map(|(begin, end)| &call[begin..end]).collect();
            let mut joined = Vec::new();
            told(format, &texts).into_iter().for_each(|piece| emit(&mut joined, piece));
            prop_assert_eq!(joined, pieces(format, &[&call]));
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
