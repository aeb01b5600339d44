//! Random walks under masks: whatever they write is what the request asked for.

use super::*;
use crate::calls::{CallParser, Piece};
use crate::format::ToolFormat;
use crate::grammar::{Calls, ResponseFormat, Thinking, Turn, constraint};
use crate::reasoning::{Begins, ReasoningFormat};
use crate::tool::{Parallel, Strictness, Tool, ToolChoice};
use serde_json::{Value, json};

const WORDS: [&str; 26] = [
    "name",
    "\"name\"",
    "arguments",
    "get_weather",
    "{\"",
    "\": ",
    "\": \"",
    "\"}",
    "}}",
    "},",
    "true",
    "city",
    "Paris",
    "unit",
    "celsius",
    "<tool_call>",
    "</tool_call>",
    "tool",
    "\n</",
    ", ",
    "  ",
    "é",
    "now",
    "[{",
    "}]",
    "())",
];
const SPECIAL: [&str; 6] = ["<|end|>", "<|stop|>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<special>"];
const END: TokenId = TokenId(256 + WORDS.len() as u32);

/// All bytes, some words, and special tokens. Texts are spelled by the longest words.
fn vocabulary() -> Vocabulary {
    let bytes = (0..=255).map(|byte| TokenText::Text(vec![byte]));
    let words = WORDS.iter().map(|word| TokenText::Text(word.as_bytes().to_vec()));
    let special = SPECIAL.iter().map(|name| TokenText::Special((*name).to_owned()));
    Vocabulary::new(bytes.chain(words).chain(special), &[END, TokenId(END.0 + 1)], spelled).unwrap()
}

fn spelled(text: &str) -> Vec<TokenId> {
    let mut tokens = Vec::new();
    let mut rest = text.as_bytes();
    while let Some(byte) = rest.first() {
        let words = WORDS.iter().zip(256..).filter(|(word, _)| rest.starts_with(word.as_bytes()));
        let (length, id) = words.map(|(word, id)| (word.len(), id)).max().unwrap_or((1, u32::from(*byte)));
        tokens.push(TokenId(id));
        rest = &rest[length..];
    }
    tokens
}

/// As a model's text reaches the parser: marks that are special tokens are there, ends are not.
fn text(tokens: &[TokenId]) -> String {
    let mut bytes = Vec::new();
    for token in tokens {
        let id = token.0 as usize;
        match id {
            0..256 => bytes.push(id as u8),
            _ if id < 256 + WORDS.len() => bytes.extend(WORDS[id - 256].bytes()),
            _ if id >= 258 + WORDS.len() => bytes.extend(SPECIAL[id - 256 - WORDS.len()].bytes()),
            _ => {}
        }
    }
    String::from_utf8(bytes).unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// Tokens as a sampler without a mind would choose them; the end more often than other tokens.
fn walk(vocabulary: &Vocabulary, grammar: &Grammar, seed: u64) -> Vec<TokenId> {
    let mut automaton = Automaton::start(vocabulary, grammar, Limits::default()).unwrap();
    let mut random = Random(seed);
    let mut tokens = Vec::new();
    for _ in 0..2000 {
        let mask = automaton.mask().unwrap().clone();
        let forced = automaton.forced();
        if let Some(first) = forced.first() {
            assert_eq!(mask.tokens().collect::<Vec<_>>(), [*first], "after {:?}", text(&tokens));
            assert_eq!(automaton.accepts(&forced), forced.len());
        }
        let allowed: Vec<TokenId> = mask.tokens().collect();
        let token = if mask.allows(END) && random.below(4) == 0 { END } else { allowed[random.below(allowed.len())] };
        assert_eq!(automaton.accepts(&[token]), 1, "{token} after {:?}", text(&tokens));
        automaton.commit(token).unwrap();
        tokens.push(token);
        if token == END || token.0 == END.0 + 1 {
            return tokens;
        }
        if random.below(8) == 0 {
            check_rollback(&mut automaton, &tokens, &mut random);
        }
    }
    panic!("no end: {:?}", text(&tokens));
}

/// Steps back and forth, or in a fork, lead to the same masks.
fn check_rollback(automaton: &mut Automaton, tokens: &[TokenId], random: &mut Random) {
    let before = automaton.mask().unwrap().clone();
    let mut fork = automaton.fork();
    let steps = 1 + random.below(tokens.len().min(5));
    for automaton in [&mut fork, automaton] {
        automaton.rollback(steps).unwrap();
        let _ = automaton.mask().unwrap();
        for token in &tokens[tokens.len() - steps..] {
            automaton.commit(*token).unwrap();
        }
        assert_eq!(automaton.mask().unwrap(), &before);
    }
}

fn weather() -> Tool {
    Tool {
        name: "get_weather".into(),
        description: String::new(),
        parameters: json!({
            "type": "object",
            "properties": {
                "city": {"$ref": "#/$defs/city"},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "wind": {"type": "boolean"}
            },
            "required": ["city", "days"],
            "$defs": {"city": {"type": "string", "maxLength": 6}}
        }),
        strict: Strictness::Strict,
    }
}

fn now() -> Tool {
    Tool { name: "now".into(), description: String::new(), parameters: Value::Null, strict: Strictness::Loose }
}

/// The same without arguments, so that a walk ends.
fn tools() -> Vec<Tool> {
    vec![weather(), Tool { parameters: json!({"type": "object", "properties": {}}), ..now() }]
}

fn check_arguments(name: &str, arguments: &str) {
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let object = arguments.as_object().unwrap();
    if name == "now" {
        assert!(object.is_empty());
        return;
    }
    assert!(object["city"].as_str().unwrap().chars().count() <= 6, "{arguments}");
    assert!((1..=14).contains(&object["days"].as_i64().unwrap()), "{arguments}");
    assert!(object.get("unit").is_none_or(|unit| unit == "celsius" || unit == "fahrenheit"), "{arguments}");
    assert!(object.get("wind").is_none_or(Value::is_boolean), "{arguments}");
    assert!(object.keys().all(|key| ["city", "days", "unit", "wind"].contains(&key.as_str())), "{arguments}");
}

const FORMATS: [ToolFormat; 9] = [
    ToolFormat::Hermes,
    ToolFormat::QwenXml,
    ToolFormat::GlmXml,
    ToolFormat::LfmPythonic,
    ToolFormat::Generic,
    ToolFormat::LlamaJson,
    ToolFormat::LlamaPythonic,
    ToolFormat::MistralList,
    ToolFormat::MistralArgs,
];

fn turn<'a>(calls: Option<Calls<'a>>, answer: &'a ResponseFormat) -> Turn<'a> {
    Turn { calls, answer, thinking: Thinking::Off }
}

fn grammar_of(vocabulary: &Vocabulary, turn: &Turn<'_>) -> Grammar {
    constraint(turn, &|name| vocabulary.special(name)).unwrap().unwrap()
}

fn pieces(format: ToolFormat, text: &str) -> Vec<Piece> {
    let mut parser = CallParser::new(format, &tools(), None, Begins::Outside);
    let mut pieces = parser.push(text);
    pieces.extend(parser.finish());
    pieces
}

#[test]
fn required_calls_are_valid_calls() {
    let vocabulary = vocabulary();
    for (format, parallel) in FORMATS.into_iter().flat_map(|format| [(format, Parallel::One), (format, Parallel::Many)])
    {
        let tools = tools();
        let calls = Calls { format, tools: &tools, choice: &ToolChoice::Required, parallel };
        let grammar = grammar_of(&vocabulary, &turn(Some(calls), &ResponseFormat::Text));
        for seed in 0..6 {
            let text = text(&walk(&vocabulary, &grammar, seed));
            let pieces = pieces(format, &text);
            assert!(!pieces.iter().any(|piece| matches!(piece, Piece::Text(_))), "{format:?} {text:?}: {pieces:?}");
            assert!(parallel == Parallel::Many || pieces.len() == 3, "{format:?} {text:?}");
            let mut called = String::new();
            for piece in pieces {
                match piece {
                    Piece::CallBegun { name, .. } => called = name,
                    Piece::Arguments { fragment, .. } => check_arguments(&called, &fragment),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_named_tool_is_called_once() {
    let vocabulary = vocabulary();
    let (tools, choice) = (tools(), ToolChoice::Named("now".into()));
    for format in FORMATS {
        let calls = Calls { format, tools: &tools, choice: &choice, parallel: Parallel::Many };
        let grammar = grammar_of(&vocabulary, &turn(Some(calls), &ResponseFormat::Text));
        let text = text(&walk(&vocabulary, &grammar, 1));
        let begun = Piece::CallBegun { index: 0, name: "now".into() };
        assert_eq!(pieces(format, &text)[0], begun, "{format:?} {text:?}");
        assert_eq!(pieces(format, &text).len(), 3, "{format:?} {text:?}");
    }
}

/// How much of a text the grammar lets come, in bytes, and whether it may end there.
fn taken(vocabulary: &Vocabulary, grammar: &Grammar, parts: &[&str]) -> (String, bool) {
    let mut automaton = Automaton::start(vocabulary, grammar, Limits::default()).unwrap();
    let mut taken = String::new();
    for part in parts {
        let tokens = vocabulary.special(part).map_or_else(|| spelled(part), |token| vec![token]);
        for token in tokens {
            if automaton.commit(token).is_err() {
                return (taken, automaton.is_accepting());
            }
            taken += &text(&[token]);
        }
    }
    (taken, automaton.is_accepting())
}

#[test]
fn offered_calls_are_text_until_they_begin() {
    let (vocabulary, tools) = (vocabulary(), tools());
    for (format, call) in [
        (ToolFormat::Hermes, vec!["<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"]),
        (ToolFormat::QwenXml, vec!["<tool_call>\n<function=now>\n</function>\n</tool_call>"]),
        (ToolFormat::GlmXml, vec!["<tool_call>now\n</tool_call>"]),
        (ToolFormat::LfmPythonic, vec!["<|tool_call_start|>[now()]<|tool_call_end|>"]),
        (ToolFormat::LlamaJson, vec!["{\"name\": \"now\", \"parameters\": {}}"]),
        (ToolFormat::LlamaPythonic, vec!["[now()]"]),
        (ToolFormat::MistralList, vec!["[TOOL_CALLS]", "[{\"name\": \"now\", \"arguments\": {}}]"]),
        (ToolFormat::MistralArgs, vec!["[TOOL_CALLS]", "now", "[ARGS]", "{}"]),
    ] {
        let calls = Calls { format, tools: &tools, choice: &ToolChoice::Auto, parallel: Parallel::Many };
        let grammar = grammar_of(&vocabulary, &turn(Some(calls), &ResponseFormat::Text));
        let takes = |parts: &[&str]| taken(&vocabulary, &grammar, parts);
        for answer in ["", "Hello.\nIt is 1 < 2 {\"a\": [1]}.", "{\"city\": 1}", "[1, 2]", "<tool", "\n\n<b>"] {
            assert_eq!(takes(&[answer]), (answer.to_owned(), true), "{format:?} {answer:?}");
        }
        assert_eq!(takes(&call), (call.concat(), true), "{format:?}");
        // Cut short it may not end, and nothing follows it but more calls.
        let cut = &call.concat()[..call.concat().len() - 1];
        if call.len() == 1 {
            assert_eq!(takes(&[cut]), (cut.to_owned(), false), "{format:?}");
        }
        let more = [call.clone(), vec![" and so on"]].concat();
        assert!(takes(&more).0.len() <= call.concat().len() + 1, "{format:?}: {:?}", takes(&more));
        // A tool that is not there cannot be called.
        let wrong: Vec<String> = call.iter().map(|part| part.replace("now", "nix")).collect();
        let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
        if format != ToolFormat::LlamaPythonic {
            assert!(!takes(&wrong).1, "{format:?}: {:?}", takes(&wrong));
        }
        if format.unmarked().is_none() {
            let after = [vec!["Well. "], call.clone()].concat();
            assert_eq!(takes(&after), (after.concat(), true), "{format:?}");
        }
    }
}

/// Small models leave the mark out: from where it is certain, such a call is held to its tool as well.
#[test]
fn calls_without_their_mark_are_held_to_their_tools() {
    let (vocabulary, tools) = (vocabulary(), tools());
    for format in [ToolFormat::Hermes, ToolFormat::Generic] {
        let calls = Calls { format, tools: &tools, choice: &ToolChoice::Auto, parallel: Parallel::Many };
        let grammar = grammar_of(&vocabulary, &turn(Some(calls), &ResponseFormat::Text));
        let begun = "{\"name\": \"now\", \"arguments\": ";
        for (text, whole) in
            [(format!("{begun}{{}}}}"), true), (format!("{begun}{{"), false), (begun.to_owned(), false)]
        {
            assert_eq!(taken(&vocabulary, &grammar, &[&text]), (text.clone(), whole));
        }
        assert_eq!(pieces(format, &format!("{begun}{{}}}}")).len(), 3);
        for wrong in ["1", "{]", "{}]", "{}} so", "<tool_call>"] {
            let text = format!("{begun}{wrong}");
            assert_ne!(taken(&vocabulary, &grammar, &[&text]).0, text);
        }
        for text in [
            "{\"name\": \"nix\", \"arguments\": 1}",
            "{\"name\": \"now\", \"a\": 1",
            "So: {\"name\": \"now\", \"arguments\": x",
        ] {
            assert_eq!(taken(&vocabulary, &grammar, &[text]), (text.to_owned(), true));
        }
        let marked = "Well.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
        assert_eq!(taken(&vocabulary, &grammar, &[marked]), (marked.to_owned(), true));
    }
}

#[test]
fn calls_or_an_answer_of_a_form() {
    let (vocabulary, tools) = (vocabulary(), tools());
    let answer = ResponseFormat::JsonSchema {
        schema: json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
        strict: Strictness::Strict,
    };
    for (format, call) in [
        (ToolFormat::Hermes, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"),
        (ToolFormat::LlamaJson, "{\"name\": \"now\", \"parameters\": {}}"),
        (ToolFormat::LlamaPythonic, "[now()]"),
    ] {
        let calls = Calls { format, tools: &tools, choice: &ToolChoice::Auto, parallel: Parallel::Many };
        let grammar = grammar_of(&vocabulary, &turn(Some(calls), &answer));
        for text in [call, "{\"city\": \"Paris\"}", "{\n  \"city\":\"\"}"] {
            assert_eq!(taken(&vocabulary, &grammar, &[text]), (text.to_owned(), true), "{format:?}");
        }
        assert_eq!(taken(&vocabulary, &grammar, &["Hello"]), (String::new(), false), "{format:?}");
    }
}

#[test]
fn reasoning_comes_before() {
    let (vocabulary, tools) = (vocabulary(), tools());
    let calls =
        Calls { format: ToolFormat::Hermes, tools: &tools, choice: &ToolChoice::Required, parallel: Parallel::One };
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let grammar = |begins| {
        let thinking = Thinking::On(ReasoningFormat::Think, begins);
        let turn = Turn { calls: Some(calls), answer: &ResponseFormat::Text, thinking };
        grammar_of(&vocabulary, &turn)
    };
    let whole = format!("<think>\nOr {{so}} <tool_call>?\n</think>\n\n{call}");
    assert_eq!(taken(&vocabulary, &grammar(Begins::Outside), &[&whole]), (whole.clone(), true));
    assert_eq!(taken(&vocabulary, &grammar(Begins::Outside), &[call]), (call.to_owned(), true));
    let rest = &whole["<think>".len()..];
    assert_eq!(taken(&vocabulary, &grammar(Begins::Inside), &[rest]), (rest.to_owned(), true));
}

#[test]
fn messages_in_channels_have_their_form() {
    let (vocabulary, tools) = (vocabulary(), tools());
    let calls = |choice| Calls { format: ToolFormat::Harmony, tools: &tools, choice, parallel: Parallel::One };
    let grammar = |calls, answer: &ResponseFormat, begins| {
        let thinking = Thinking::On(ReasoningFormat::Channel, begins);
        grammar_of(&vocabulary, &Turn { calls, answer, thinking })
    };
    let taken = |grammar: &Grammar, text: &str| taken(&vocabulary, grammar, &[text]) == (text.to_owned(), true);
    let thought = "<|channel|>analysis<|message|>Or {so}?<|end|><|start|>assistant";
    let aside = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
    let spoken = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}";
    let told = " to=functions.now<|channel|>commentary json<|message|>{}";
    let said = "<|channel|>final<|message|>Hello";
    let (text, object) = (ResponseFormat::Text, ResponseFormat::JsonObject);
    let auto = grammar(Some(calls(&ToolChoice::Auto)), &text, Begins::Outside);
    for turn in [spoken, told, said, &[thought, spoken].concat(), &[thought, thought, aside, told].concat()] {
        assert!(taken(&auto, turn), "{turn}");
    }
    let wrong = "<|channel|>commentary to=functions.bread <|constrain|>json<|message|>{}";
    for turn in ["Hello", wrong, &[spoken, said].concat()] {
        assert!(!taken(&auto, turn), "{turn}");
    }
    let required = grammar(Some(calls(&ToolChoice::Required)), &text, Begins::Inside);
    let rest = &thought["<|channel|>analysis<|message|>".len()..];
    assert!(taken(&required, &[rest, spoken].concat()) && !taken(&required, &[rest, said].concat()));
    let form = grammar(None, &object, Begins::Outside);
    let answer = "<|channel|>final<|message|>{\"a\": 1}";
    assert!(taken(&form, answer) && taken(&form, &[thought, answer].concat()));
    assert!(!taken(&form, said) && !taken(&form, "{\"a\": 1}"));
}

#[test]
fn answers_have_their_form() {
    let vocabulary = vocabulary();
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}}, "required": ["a"]});
    let check = |answer: ResponseFormat, right: &[&str], wrong: &[&str]| {
        let grammar = grammar_of(&vocabulary, &turn(None, &answer));
        for text in right {
            assert_eq!(taken(&vocabulary, &grammar, &[text]), ((*text).to_owned(), true), "{answer:?}");
        }
        for text in wrong {
            assert_ne!(taken(&vocabulary, &grammar, &[text]), ((*text).to_owned(), true), "{answer:?} {text}");
        }
    };
    check(ResponseFormat::JsonObject, &["{}", "{\"a\": {\"b\":[1,null]}}", "{\n  \"a\": 1\n}"], &["[]", "", "{}x"]);
    let strict = ResponseFormat::JsonSchema { schema, strict: Strictness::Strict };
    check(strict, &["{\"a\":[1, 2,3]}", "{ \"a\" : [] }"], &["{}", "{\"a\":[1,2,3,4]}", "{\"a\":[],\"b\":1}"]);
    check(ResponseFormat::Regex("^a/(b|c)+\\d$".into()), &["a/bc1", "a/c9"], &["a/", "xa/b1"]);
    check(ResponseFormat::Regex(String::new()), &[""], &["a"]);
    check(
        ResponseFormat::Choice(vec!["yes".into(), "yes, so".into(), "\"no\"\n".into()]),
        &["yes", "yes, so", "\"no\"\n"],
        &["ye", ""],
    );
    check(ResponseFormat::Lark("start: \"a\" [\"b\"] | \"c\" start".into()), &["a", "ab", "ccab"], &["", "b"]);
    // The longest first literal is not always the right one.
    check(
        ResponseFormat::Gbnf("root ::= (\"a\" | \"ab\") \"b\" [^x]*".into()),
        &["ab", "abb", "ab é\n"],
        &["a", "abx"],
    );
}

/// What JSON Schema says of numbers, expressions and alternatives, and the grammar's compiler says otherwise.
#[test]
fn schemas_mean_what_the_standard_says() {
    let vocabulary = vocabulary();
    let check = |schema: Value, right: &[&str], wrong: &[&str]| {
        let answer = ResponseFormat::JsonSchema { schema, strict: Strictness::Strict };
        let start = Automaton::start(&vocabulary, &grammar_of(&vocabulary, &turn(None, &answer)), Limits::default());
        let start = start.unwrap();
        for (text, expected) in right.iter().map(|text| (text, true)).chain(wrong.iter().map(|text| (text, false))) {
            let mut automaton = start.fork();
            let taken = spelled(text).into_iter().all(|token| automaton.commit(token).is_ok());
            assert_eq!(taken && automaton.is_accepting(), expected, "{answer:?} {text}");
        }
    };
    check(json!({"type": "string", "maxLength": 2.0}), &["\"ab\""], &["\"abc\""]);
    check(json!({"type": "string", "pattern": "^\\S$"}), &["\"a\""], &["\"\u{feff}\"", "\" \""]);
    check(json!({"type": "string", "pattern": "^a.c$"}), &["\"abc\""], &["\"a\\rc\"", "\"a\\nc\""]);
    check(
        json!({"type": "object", "patternProperties": {"^[[a]$": {"type": "null"}}, "additionalProperties": false}),
        &["{\"[\":null}"],
        &["{\"b\":null}"],
    );
    // As pydantic tells a union with a discriminator.
    let kind = |kind: &str| json!({"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]});
    check(
        json!({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "$defs": {"cat": kind("cat"), "dog": kind("dog")}}),
        &["{\"kind\":\"cat\"}", "{\"kind\": \"dog\"}"],
        &["{\"kind\":\"cow\"}", "{}"],
    );
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let vocabulary = vocabulary();
    let refused = |answer: ResponseFormat| {
        let grammar = constraint(&turn(None, &answer), &|name| vocabulary.special(name));
        match grammar.and_then(|grammar| Automaton::start(&vocabulary, &grammar.unwrap(), Limits::default())) {
            Ok(_) => panic!("{answer:?} is taken"),
            Err(refused) => refused.to_string(),
        }
    };
    let schema = |schema| ResponseFormat::JsonSchema { schema, strict: Strictness::Strict };
    let error = refused(schema(json!({"properties": {"a/b": {"type": "array", "uniqueItems": true}}})));
    assert!(error.contains("'uniqueItems' at '/properties/a~1b'"), "{error}");
    let error = refused(schema(json!({"properties": {"a": {"$ref": "http://elsewhere"}}})));
    assert!(error.contains("http://elsewhere"), "{error}");
    let two = json!([{"type": "object"}, {"type": "object", "properties": {"a": {}}}]);
    for (wrong, keyword) in [
        (json!({"oneOf": two}), "'oneOf'"),
        (json!({"maximum": 1e20}), "'maximum'"),
        (json!({"type": "string", "pattern": "(?=a)"}), "'pattern'"),
        (json!({"patternProperties": {"a": {"type": "null"}, "b": {"type": "string"}}}), "'patternProperties'"),
        (json!({"type": "array", "maxItems": 1.5}), "'maxItems'"),
    ] {
        let error = refused(schema(wrong));
        assert!(error.contains(keyword), "{error}");
    }
    for wrong in [
        json!(false),
        json!(1),
        json!({"type": "nothing"}),
        json!({"type": "string", "pattern": "("}),
        json!({"type": "integer", "minimum": 2, "maximum": 1}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"oneOf": [{"type": "object"}, {"type": "object", "properties": {"a": {}}}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        json!({"description": "a".repeat(1 << 20)}),
    ] {
        refused(schema(wrong));
    }
    for wrong in ["", "start: (", "begin: \"a\"", "start: start", "start: @missing", &"(".repeat(60_000)] {
        refused(ResponseFormat::Lark(wrong.into()));
    }
    refused(ResponseFormat::Regex("(".into()));
    refused(ResponseFormat::Choice(Vec::new()));
    refused(ResponseFormat::Gbnf("root ::= root".into()));
}

#[test]
fn what_nests_deep_does_not_overflow() {
    let vocabulary = vocabulary();
    let start = |answer: ResponseFormat| {
        let grammar = constraint(&turn(None, &answer), &|_| None)?.unwrap();
        Automaton::start(&vocabulary, &grammar, Limits::default())
    };
    let definitions: serde_json::Map<String, Value> = (0..1900)
        .map(|n| (format!("d{n}"), json!({"properties": {"n": {"$ref": format!("#/$defs/d{}", n + 1)}}})))
        .collect();
    let mut schema = json!({"$ref": "#/$defs/d0", "$defs": definitions});
    schema["$defs"]["d1900"] = json!({"type": "string"});
    let mut needed = schema.clone();
    for n in 0..1900 {
        needed["$defs"][format!("d{n}")]["type"] = json!("object");
        needed["$defs"][format!("d{n}")]["required"] = json!(["n"]);
    }
    let _ = start(ResponseFormat::JsonSchema { schema: needed, strict: Strictness::Strict });
    let _ = start(ResponseFormat::JsonSchema { schema, strict: Strictness::Strict });
    let chain: String = (0..3000).map(|n| format!("r{n}: \"a\" r{}\n", n + 1)).collect();
    let _ = start(ResponseFormat::Lark(format!("start: r0\n{chain}r3000: \"b\"\n")));
    let _ = start(ResponseFormat::Lark(format!("start: {}\"a\"{}", "(".repeat(4000), ")".repeat(90))));
    let _ = start(ResponseFormat::Regex("(".repeat(30_000) + &")".repeat(30_000)));
    // What calls itself and may end is no mistake.
    let list =
        json!({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["v"]});
    start(ResponseFormat::JsonSchema { schema: list, strict: Strictness::Strict }).unwrap();
}

#[test]
fn tools_of_all_kinds_are_taken() {
    let vocabulary = vocabulary();
    let loose = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "string", "format": "path"}, "uniqueItems": true},
            "b": {"oneOf": [{"type": "object"}, {"type": "object", "properties": {"x": {}}}]},
        },
        "if": {"required": ["a"]}, "then": {"required": ["b"]},
    });
    let tool = Tool { parameters: loose, ..now() };
    for format in FORMATS {
        let calls = Calls {
            format,
            tools: std::slice::from_ref(&tool),
            choice: &ToolChoice::Required,
            parallel: Parallel::One,
        };
        let grammar = grammar_of(&vocabulary, &turn(Some(calls), &ResponseFormat::Text));
        Automaton::start(&vocabulary, &grammar, Limits::default()).unwrap();
        let strict = [Tool { strict: Strictness::Strict, ..tool.clone() }];
        let calls = Calls { tools: &strict, ..calls };
        let error = constraint(&turn(Some(calls), &ResponseFormat::Text), &|_| None).unwrap_err();
        assert!(error.to_string().contains("schema of now uses"), "{error}");
    }
}

#[test]
fn the_end_can_be_taken_back() {
    let vocabulary = vocabulary();
    let grammar = grammar_of(&vocabulary, &turn(None, &ResponseFormat::Choice(vec!["yes".into()])));
    let mut automaton = Automaton::start(&vocabulary, &grammar, Limits::default()).unwrap();
    assert_eq!(automaton.forced(), spelled("yes"));
    assert_eq!(automaton.commit(END), Err(NotAllowed(END)));
    assert_eq!(automaton.commit(TokenId(u32::MAX)), Err(NotAllowed(TokenId(u32::MAX))));
    let mut tokens = spelled("yes");
    tokens.push(END);
    for token in &tokens {
        assert!(automaton.mask().unwrap().allows(*token));
        automaton.commit(*token).unwrap();
    }
    assert!(automaton.is_stopped());
    assert_eq!(automaton.commit(END), Err(NotAllowed(END)));
    automaton.rollback(2).unwrap();
    assert!(!automaton.is_stopped());
    assert_eq!(automaton.forced(), spelled("s"));
    automaton.commit(spelled("s")[0]).unwrap();
    assert_eq!(automaton.accepts(&[END]), 1);
    assert!(automaton.is_accepting());
    automaton.rollback(99).unwrap();
    assert_eq!(automaton.accepts(&tokens), tokens.len());
}

#[test]
fn what_takes_long_to_work_out_is_refused() {
    let vocabulary = vocabulary();
    for form in [
        ResponseFormat::Regex("(a{1000}){1000}".to_owned()),
        ResponseFormat::JsonSchema {
            schema: json!({"type": "string", "pattern": "^(a{1000}){1000}$"}),
            strict: Strictness::Strict,
        },
    ] {
        let limits = Limits { first_mask: std::time::Duration::from_millis(50), ..Limits::default() };
        let refused = constraint(&turn(None, &form), &|_| None)
            .and_then(|grammar| Automaton::start(&vocabulary, &grammar.expect("a form has a grammar"), limits));
        assert!(refused.is_err(), "{form:?}");
    }
}
