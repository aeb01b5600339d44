//! What each field of a request may be. Most mean the same on every route; the others stand first.

use super::schema::{any, at_least, boolean, either, integer, is, list, number, object, one_of, refused, string};
use serde_json::{Value, json};

/// The schema of a route's field.
pub(super) fn of(path: &str, name: &str) -> Option<Value> {
    own(path, name).or_else(|| common(name))
}

fn own(path: &str, name: &str) -> Option<Value> {
    Some(match (path, name) {
        ("/v1/completions", "logprobs") => integer(0, 5),
        ("/v1/chat/completions", "echo") => {
            json!({"const": false, "description": "only completions repeat their prompt"})
        }
        ("/v1/completions", "max_completion_tokens" | "max_tokens") => at_least(0),
        ("/v1/completions", "prompt") | ("/v1/embeddings", "input") => prompts(),
        ("/v1/responses", "prompt") => refused("no prompts are stored here"),
        ("/v1/responses", "input") => either(&[string(), list(object())]),
        ("/v1/messages" | "/v1/messages/count_tokens", "service_tier") => {
            one_of(&["auto", "default", "standard_only", "flex", "priority"])
        }
        ("/v1/messages" | "/v1/messages/count_tokens", "tool_choice") => object(),
        ("/v1/messages", "top_k") => integer(0, i64::from(u32::MAX)),
        ("/v1/systemone", "prompt" | "state") => any(),
        ("/api/chat" | "/api/generate", "logprobs") => boolean(),
        ("/api/chat", "tools") => list(object()),
        ("/api/embed", "input") => either(&[string(), list(string())]),
        ("/tokenize" | "/api/generate" | "/api/embeddings", "prompt") => string(),
        ("/api/generate", "context") => refused("send the conversation to /api/chat"),
        _ => return None,
    })
}

fn common(name: &str) -> Option<Value> {
    Some(match name {
        "add_special"
        | "add_special_tokens"
        | "background"
        | "echo"
        | "enable_thinking"
        | "ignore_eos"
        | "logprobs"
        | "parallel_tool_calls"
        | "raw"
        | "return_documents"
        | "return_progress"
        | "store"
        | "stream"
        | "truncate" => boolean(),
        "content"
        | "grammar"
        | "guided_grammar"
        | "guided_regex"
        | "instructions"
        | "model"
        | "name"
        | "previous_response_id"
        | "query"
        | "safety_identifier"
        | "suffix"
        | "template"
        | "user" => string(),
        "chat_template_kwargs"
        | "metadata"
        | "options"
        | "output_config"
        | "output_format"
        | "prediction"
        | "reasoning"
        | "response_format"
        | "stream_options"
        | "structured_outputs"
        | "text"
        | "thinking" => object(),
        "cache_control" | "format" | "guided_json" | "images" | "json_schema" | "keep_alive" => any(),
        "best_of" => integer(1, 1),
        "documents" => either(&[list(string()), list(object())]),
        "dimensions" | "top_n" | "max_completion_tokens" | "max_output_tokens" | "max_tokens" | "max_tool_calls" => {
            at_least(1)
        }
        "encoding_format" => one_of(&["float", "base64"]),
        "frequency_penalty" | "presence_penalty" => number(-2.0, 2.0),
        "guided_choice" => list(string()),
        "include" => list(string()),
        "logit_bias" => json!({"type": "object", "additionalProperties": number(-100.0, 100.0)}),
        "messages" => list(object()),
        "min_p" | "top_p" => number(0.0, 1.0),
        "modalities" => json!({"const": ["text"]}),
        "n" => integer(1, 16),
        "priority" | "seed" => at_least(i64::MIN),
        "prompt_cache_key" => json!({"type": "string", "minLength": 1, "maxLength": 256}),
        "questions" => either(&[object(), list(object())]),
        "reasoning_effort" => one_of(&["none", "minimal", "low", "medium", "high", "xhigh"]),
        "repeat_penalty" | "repetition_penalty" => number(0.01, 10.0),
        "service_tier" => one_of(&["auto", "default", "flex", "priority"]),
        "stop" | "stop_sequences" => {
            let one = json!({"type": "string", "minLength": 1, "maxLength": 1024});
            either(&[one.clone(), json!({"type": "array", "items": one, "maxItems": 16})])
        }
        "system" => either(&[string(), list(object())]),
        "temperature" => number(0.0, 2.0),
        "thinking_budget" => at_least(-1),
        "think" => either(&[boolean(), one_of(&["low", "medium", "high"])]),
        "tokens" => list(at_least(0)),
        "tool_choice" => either(&[string(), object()]),
        "tools" => list(object()),
        "top_k" => integer(-1, i64::from(u32::MAX)),
        "top_logprobs" => integer(0, 20),
        "truncation" => is("disabled"),
        "functions" => json!({"type": ["array", "null"], "maxItems": 0, "description": FUNCTIONS}),
        "function_call" => json!({"enum": ["auto", "none", null], "description": FUNCTIONS}),
        "min_tokens" => either(&[integer(0, 0), refused("not implemented")]),
        "audio" | "conversation" | "prompt_logprobs" | "web_search_options" => refused("not implemented"),
        _ => return None,
    })
}

/// Of the fields that have become `tools`.
const FUNCTIONS: &str = "functions are called as `tools`";

/// A text or token ids, or several of either.
fn prompts() -> Value {
    let ids = list(at_least(0));
    either(&[string(), ids.clone(), list(string()), list(ids)])
}
