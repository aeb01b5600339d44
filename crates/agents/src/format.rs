//! How families of models write their calls.
//!
//! A family is recognised by what its chat template writes for calls in the past. A template that has nothing of the
//! kind tells the model no tools either: then [`ToolFormat::instructions`] are to stand in the system message.

use crate::tool::Tool;
use serde_json::json;

/// How a family of models writes its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// Hermes, Qwen and Granite 4: `<tool_call>\n{"name": .., "arguments": {..}}\n</tool_call>`, once for each call.
    Hermes,
    /// Qwen3-Coder and Qwen3.5: `<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>`, once for each
    /// call.
    QwenXml,
    /// GLM 4.5 and later: `<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>`, once for each call.
    GlmXml,
    /// LFM 2: `<|tool_call_start|>[f(a=1, b="x"), g()]<|tool_call_end|>`, or JSON between its marks.
    LfmPythonic,
    /// Llama 3: `{"name": .., "parameters": {..}}` instead of text, perhaps after `<|python_tag|>`.
    LlamaJson,
    /// Llama 3.2 and 4: `[f(a=1, b="x"), g()]` instead of text.
    LlamaPythonic,
    /// Mistral until 2024: `[TOOL_CALLS] [{"name": .., "arguments": {..}}, ..]`.
    MistralList,
    /// Mistral since 2025: `[TOOL_CALLS]name[ARGS]{..}`, once for each call.
    MistralArgs,
    /// gpt-oss: a message for `functions.f`, `<|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}`.
    Harmony,
    /// The template has no tools: the model is told, in [`Self::instructions`], to write as [`Self::Hermes`]. What
    /// small models were trained on alike, and its marks do not begin any other text.
    Generic,
}

impl ToolFormat {
    /// The family of a chat template, by the template's source.
    #[must_use]
    pub fn of_template(source: &str) -> Self {
        let has = |text: &str| source.contains(text);
        if has("<|channel|>commentary") {
            Self::Harmony
        } else if has("[TOOL_CALLS]") {
            if has("[ARGS]") { Self::MistralArgs } else { Self::MistralList }
        } else if has("<|tool_call_start|>") || has("<|tool_list_start|>") {
            Self::LfmPythonic
        } else if has("<tool_call>") && has("<arg_key>") {
            Self::GlmXml
        } else if has("<tool_call>") && has("<function=") && has("<parameter=") {
            Self::QwenXml
        } else if has("<tool_call>") && has("arguments") {
            Self::Hermes
        } else if has("<|python_start|>") || has("func_name1(") {
            Self::LlamaPythonic
        } else if has("\"parameters\": ") && (has("ipython") || has("<|python_tag|>")) {
            Self::LlamaJson
        } else {
            Self::Generic
        }
    }

    /// What to add to the system message so that the model knows its tools. `None` where the template tells it.
    #[must_use]
    pub fn instructions(self, tools: &[Tool]) -> Option<String> {
        if self != Self::Generic || tools.is_empty() {
            return None;
        }
        let mut text = String::from(
            "You may call functions to help with the request. The functions, as JSON schemas, within <tools></tools>:\n<tools>",
        );
        for tool in tools {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
            text.push('\n');
            text.push_str(&json!({"type": "function", "function": function}).to_string());
        }
        text.push_str(
            "\n</tools>\n\nTo call a function, write a JSON object with its name and arguments within \
             <tool_call></tool_call>, and nothing after it:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": \
             <args-json-object>}\n</tool_call>\nIf no function helps, answer as usual.",
        );
        Some(text)
    }

    /// Marks that are special tokens in some vocabularies: their text is to reach the parser all the same.
    #[must_use]
    pub fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::QwenXml | Self::Generic => &[TOOL_CALL, TOOL_CALL_END],
            Self::GlmXml => &[TOOL_CALL, TOOL_CALL_END, ARG_KEY, ARG_KEY_END, ARG_VALUE, ARG_VALUE_END],
            Self::LfmPythonic => &[LIST_START, LIST_END],
            Self::MistralList | Self::MistralArgs => &[TOOL_CALLS, ARGS, CALL_ID],
            Self::LlamaJson => &[PYTHON_TAG],
            Self::LlamaPythonic => &[PYTHON_START],
            // Its marks are those of its reasoning.
            Self::Harmony => &[],
        }
    }

    /// What begins calls, wherever it stands. A family without it calls only instead of text.
    pub(crate) fn opening(self) -> Option<&'static str> {
        match self {
            Self::Hermes | Self::QwenXml | Self::GlmXml | Self::Generic => Some(TOOL_CALL),
            Self::LfmPythonic => Some(LIST_START),
            Self::MistralList | Self::MistralArgs => Some(TOOL_CALLS),
            Self::LlamaJson => Some(PYTHON_TAG),
            Self::LlamaPythonic => Some(PYTHON_START),
            // Headers tell.
            Self::Harmony => None,
        }
    }

    /// What begins calls at the beginning of a turn without any mark.
    pub(crate) fn unmarked(self) -> Option<char> {
        match self {
            // Small models of these families often leave the mark out.
            Self::LlamaJson | Self::Hermes | Self::Generic => Some('{'),
            Self::LlamaPythonic => Some('['),
            Self::QwenXml
            | Self::GlmXml
            | Self::LfmPythonic
            | Self::MistralList
            | Self::MistralArgs
            | Self::Harmony => None,
        }
    }
}

pub(crate) const TOOL_CALL: &str = "<tool_call>";
pub(crate) const TOOL_CALL_END: &str = "</tool_call>";
pub(crate) const TOOL_CALLS: &str = "[TOOL_CALLS]";
pub(crate) const ARGS: &str = "[ARGS]";
pub(crate) const CALL_ID: &str = "[CALL_ID]";
pub(crate) const ARG_KEY: &str = "<arg_key>";
pub(crate) const ARG_KEY_END: &str = "</arg_key>";
pub(crate) const ARG_VALUE: &str = "<arg_value>";
pub(crate) const ARG_VALUE_END: &str = "</arg_value>";
pub(crate) const FUNCTION: &str = "<function=";
pub(crate) const FUNCTION_END: &str = "</function>";
pub(crate) const PARAMETER: &str = "<parameter=";
pub(crate) const PARAMETER_END: &str = "</parameter>";
pub(crate) const LIST_START: &str = "<|tool_call_start|>";
pub(crate) const LIST_END: &str = "<|tool_call_end|>";
pub(crate) const PYTHON_TAG: &str = "<|python_tag|>";
pub(crate) const PYTHON_START: &str = "<|python_start|>";

/// Characters of a tool's name. OpenAI's bound is 64; tools of several servers are joined with their servers' names.
pub(crate) const NAME_MAX: usize = 128;

/// Whether a parameter of this name can be written as in Python, so that where it ends is seen.
pub(crate) fn is_key(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| "=()[]{},\"'".contains(c) || c.is_control())
}

/// Whether `c` may stand in a tool's name.
pub(crate) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

#[cfg(test)]
mod tests {
    use super::ToolFormat::{self, *};
    use crate::tool::Tool;

    #[test]
    fn templates_are_recognised() {
        let of = ToolFormat::of_template;
        assert_eq!(of(include_str!("../../model/tests/fixtures/templates/qwen25.jinja")), Hermes);
        assert_eq!(of(include_str!("../../model/tests/fixtures/templates/qwen3.jinja")), Hermes);
        assert_eq!(of(include_str!("../../model/tests/fixtures/templates/llama3.jinja")), LlamaJson);
        assert_eq!(of(include_str!("../../model/tests/fixtures/templates/mistral.jinja")), MistralList);
        assert_eq!(of(include_str!("../../model/tests/fixtures/templates/smollm2.jinja")), Generic);
        assert_eq!(of(include_str!("../../model/tests/fixtures/templates/gemma3.jinja")), Generic);
        assert_eq!(
            of("{{ '<tool_call>\n<function=' + tool_call.name }}{{ '<parameter=' }}{{ tool_call.arguments }}"),
            QwenXml
        );
        assert_eq!(of("{{ '\\n<tool_call>' + tc.name }}<arg_key>{{ k }}</arg_key>{{ tc.arguments }}"), GlmXml);
        assert_eq!(of("{{ '<|tool_call_start|>[' + calls + ']<|tool_call_end|>' }}"), LfmPythonic);
        assert_eq!(of("{{ 'List of tools: <|tool_list_start|>[' }}"), LfmPythonic);
        assert_eq!(of("{{ '<tool_call>\\n{\"name\": \"' }}{{ '\", \"arguments\": ' }}"), Hermes, "Granite 4's");
        assert_eq!(of("{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"), MistralArgs);
        assert_eq!(of("{{ '<|python_start|>[' }}{{ ipython }}"), LlamaPythonic);
        assert_eq!(
            of("{{ '<|start|>assistant to=functions.' + name + '<|channel|>commentary json<|message|>' }}"),
            Harmony
        );
        assert_eq!(of(""), Generic);
    }

    #[test]
    fn only_templates_without_tools_need_instructions() {
        let tool = Tool {
            name: "f".into(),
            description: "does".into(),
            parameters: serde_json::json!({"type": "object"}),
            strict: Default::default(),
        };
        assert_eq!(Hermes.instructions(std::slice::from_ref(&tool)), None);
        assert_eq!(Generic.instructions(&[]), None);
        let text = Generic.instructions(&[tool]).unwrap();
        assert!(text.contains(r#"{"type":"function","function":{"name":"f","description":"does""#), "{text}");
    }
}
