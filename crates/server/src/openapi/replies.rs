//! What the server answers. Objects are closed: they have these fields and no others.

use super::schema::{
    any, boolean, closed, count, either, float, is, list, map, named, null, object, one_of, or_null, string,
};
use serde_json::{Map, Value, json};

/// All schemas, by their names.
pub(super) fn schemas() -> Value {
    let all = openai().into_iter().chain(others()).chain(ollamas());
    Value::Object(all.map(|(name, schema)| (name.to_owned(), schema)).collect::<Map<_, _>>())
}

fn openai() -> Vec<(&'static str, Value)> {
    let error = closed(
        [("message", string()), ("type", string()), ("param", or_null(string())), ("code", or_null(string()))],
        [],
    );
    let call = closed(
        [
            ("id", string()),
            ("type", is("function")),
            ("function", closed([("name", string()), ("arguments", string())], [])),
        ],
        [],
    );
    let message = closed(
        [
            ("role", is("assistant")),
            ("content", or_null(string())),
            ("refusal", null()),
            ("annotations", list(object())),
        ],
        [("reasoning_content", string()), ("tool_calls", list(call))],
    );
    let chosen = closed(
        [("index", count()), ("message", message), ("logprobs", or_null(object())), ("finish_reason", ended())],
        [],
    );
    let text = closed(
        [("text", string()), ("index", count()), ("logprobs", or_null(object())), ("finish_reason", ended())],
        [],
    );
    let model = closed([("id", string()), ("object", is("model")), ("created", count()), ("owned_by", string())], []);
    let embedding = closed(
        [("object", is("embedding")), ("index", count()), ("embedding", either(&[list(float()), string()]))],
        [],
    );
    let read = closed([("prompt_tokens", count()), ("total_tokens", count())], []);
    let document = closed([("text", string())], []);
    let ranked = closed([("index", count()), ("relevance_score", float())], [("document", document)]);
    let ranking = [
        ("id", string()),
        ("object", is("list")),
        ("model", string()),
        ("results", list(ranked)),
        ("usage", read.clone()),
    ];
    let embeddings = [("object", is("list")), ("data", list(embedding)), ("model", string()), ("usage", read)];
    vec![
        ("Error", closed([("error", error)], [])),
        ("Usage", usage()),
        ("ChatCompletion", completion("chat.completion", chosen)),
        ("TextCompletion", completion("text_completion", text)),
        ("Embeddings", closed(embeddings, [])),
        ("Ranking", closed(ranking, [])),
        ("Response", response()),
        ("ResponseDeleted", closed([("id", string()), ("object", is("response")), ("deleted", is_true())], [])),
        (
            "InputItems",
            closed(
                [
                    ("object", is("list")),
                    ("data", list(object())),
                    ("first_id", or_null(string())),
                    ("last_id", or_null(string())),
                    ("has_more", boolean()),
                ],
                [],
            ),
        ),
        ("Models", closed([("object", is("list")), ("data", list(named("Model"))), ("models", list(any()))], [])),
        ("Model", model),
    ]
}

fn completion(kind: &str, choice: Value) -> Value {
    closed(
        [
            ("id", string()),
            ("object", is(kind)),
            ("created", count()),
            ("model", string()),
            ("system_fingerprint", string()),
            ("service_tier", one_of(&["default", "flex", "priority"])),
            ("choices", list(choice)),
            ("usage", named("Usage")),
        ],
        [],
    )
}

fn usage() -> Value {
    let generated = closed(
        [("accepted_prediction_tokens", count()), ("rejected_prediction_tokens", count())],
        [("forced_tokens", count())],
    );
    let names = ["device", "cpu", "spilled", "dropped", "read", "read_bytes"];
    let experts = closed([], names.map(|name| (name, count())));
    closed(
        [
            ("prompt_tokens", count()),
            ("completion_tokens", count()),
            ("total_tokens", count()),
            ("prompt_tokens_details", closed([("cached_tokens", count())], [])),
            ("completion_tokens_details", generated),
        ],
        [("expert_details", experts)],
    )
}

fn response() -> Value {
    let read = closed([("cached_tokens", count()), ("cache_write_tokens", count())], []);
    let usage = closed(
        [
            ("input_tokens", count()),
            ("input_tokens_details", read),
            ("output_tokens", count()),
            ("output_tokens_details", closed([("reasoning_tokens", count())], [])),
            ("total_tokens", count()),
        ],
        [],
    );
    let error = closed([("code", string()), ("message", string())], []);
    closed(
        [
            ("id", string()),
            ("object", is("response")),
            ("created_at", count()),
            ("status", one_of(&["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"])),
            ("completed_at", or_null(count())),
            ("error", or_null(error)),
            ("incomplete_details", or_null(closed([("reason", string())], []))),
            ("model", string()),
            ("output", list(object())),
            ("service_tier", one_of(&["default", "flex", "priority"])),
            ("usage", or_null(usage)),
            ("background", boolean()),
            ("instructions", or_null(string())),
            ("frequency_penalty", float()),
            ("presence_penalty", float()),
            ("max_output_tokens", or_null(count())),
            ("max_tool_calls", or_null(count())),
            ("metadata", map(or_null(string()))),
            ("parallel_tool_calls", boolean()),
            ("previous_response_id", or_null(string())),
            ("prompt_cache_key", or_null(string())),
            ("reasoning", object()),
            ("safety_identifier", or_null(string())),
            ("store", boolean()),
            ("text", object()),
            ("tool_choice", either(&[string(), object()])),
            ("tools", list(object())),
            ("top_logprobs", count()),
            ("truncation", is("disabled")),
            ("user", or_null(string())),
            ("temperature", float()),
            ("top_p", float()),
        ],
        [],
    )
}

fn others() -> Vec<(&'static str, Value)> {
    let usage = closed(
        [
            ("input_tokens", count()),
            ("cache_creation_input_tokens", count()),
            ("cache_read_input_tokens", count()),
            ("output_tokens", count()),
            ("service_tier", one_of(&["batch", "priority", "standard"])),
            ("cache_creation", null()),
            ("inference_geo", null()),
            ("output_tokens_details", null()),
            ("server_tool_use", null()),
        ],
        [],
    );
    let message = [
        ("id", string()),
        ("type", is("message")),
        ("role", is("assistant")),
        ("model", string()),
        ("content", list(object())),
        ("stop_reason", one_of(&["end_turn", "max_tokens", "stop_sequence", "tool_use"])),
        ("stop_sequence", or_null(string())),
        ("stop_details", null()),
        ("container", null()),
        ("usage", usage),
    ];
    let noul = closed([("type", is("noul")), ("noul", float())], []);
    let choice =
        [("type", is("choice")), ("choice", string()), ("probabilities", map(float())), ("confidence", float())];
    let score = [
        ("type", is("score")),
        ("score", float()),
        ("legend", map(string())),
        ("probabilities", map(float())),
        ("confidence", float()),
    ];
    let answers = map(either(&[noul, closed(choice, []), closed(score, [])]));
    let spent = closed([("input_tokens", count()), ("output_tokens", count())], []);
    let refused = closed([("type", string()), ("message", string())], []);
    let tokenizer = [
        ("bos_token", or_null(string())),
        ("eos_token", or_null(string())),
        ("chat_template", string()),
        ("model_max_length", count()),
    ];
    vec![
        ("AnthropicError", closed([("type", is("error")), ("error", refused)], [])),
        ("Message", closed(message, [])),
        ("TokenCount", closed([("input_tokens", count())], [])),
        ("SystemOne", closed([("model", string()), ("answers", answers), ("usage", spent)], [])),
        ("Tokens", closed([("count", count()), ("tokens", list(count()))], [])),
        ("Detokenized", closed([("content", string()), ("prompt", string())], [])),
        ("TokenizerInfo", closed(tokenizer, [])),
        ("Flows", closed([("object", is("list")), ("data", list(flow()))], [])),
        ("Health", closed([("status", one_of(&["ok", "failed"]))], [])),
        ("Document", object()),
    ]
}

fn flow() -> Value {
    let request = closed(
        [
            ("id", count()),
            ("class", one_of(&["reactive", "proactive"])),
            ("status", one_of(&["queued", "waiting", "running"])),
            ("stage", or_null(one_of(&["prefill", "decode", "verify"]))),
            ("prompt_tokens", count()),
            ("computed_tokens", count()),
            ("generated_tokens", count()),
            ("node", count()),
            ("age_ms", float()),
        ],
        [],
    );
    let kept = closed([("tokens", count()), ("pages", count()), ("place", one_of(&["memory", "disk"]))], []);
    closed(
        [
            ("object", is("flow")),
            ("id", count()),
            ("key", or_null(string())),
            ("tenant", any()),
            ("requests", list(request)),
            ("kept", list(kept)),
        ],
        [],
    )
}

fn ollamas() -> Vec<(&'static str, Value)> {
    let call = closed(
        [("id", string()), ("function", closed([("index", count()), ("name", string()), ("arguments", object())], []))],
        [],
    );
    let message = closed(
        [("role", is("assistant")), ("content", string())],
        [("thinking", string()), ("tool_calls", list(call))],
    );
    let details = closed(
        [
            ("parent_model", string()),
            ("format", is("gguf")),
            ("family", string()),
            ("families", list(string())),
            ("parameter_size", string()),
            ("quantization_level", string()),
        ],
        [],
    );
    let listed = closed(
        [
            ("name", string()),
            ("model", string()),
            ("modified_at", string()),
            ("size", count()),
            ("digest", string()),
            ("details", details.clone()),
        ],
        [("expires_at", string()), ("size_vram", count()), ("context_length", count())],
    );
    let shown = [
        ("modelfile", string()),
        ("parameters", string()),
        ("template", string()),
        ("details", details),
        ("model_info", object()),
        ("capabilities", list(string())),
        ("modified_at", string()),
    ];
    let embeddings = [
        ("model", string()),
        ("embeddings", list(list(float()))),
        ("total_duration", count()),
        ("load_duration", count()),
        ("prompt_eval_count", count()),
    ];
    vec![
        ("OllamaError", closed([("error", string())], [])),
        ("OllamaChat", part("message", message)),
        ("OllamaText", part("response", string())),
        ("OllamaEmbeddings", closed(embeddings, [])),
        ("OllamaEmbedding", closed([("embedding", list(float()))], [])),
        ("OllamaModels", closed([("models", list(listed))], [])),
        ("OllamaModel", closed(shown, [])),
        ("OllamaStatus", closed([("status", is("success"))], [])),
        ("OllamaVersion", closed([("version", string())], [])),
    ]
}

/// A whole answer, or one to a request that asked for none.
fn part(name: &str, said: Value) -> Value {
    closed(
        [
            ("model", string()),
            ("created_at", string()),
            (name, said),
            ("done", is_true()),
            ("done_reason", one_of(&["stop", "length", "load", "unload"])),
        ],
        [
            ("thinking", string()),
            ("logprobs", list(object())),
            ("total_duration", count()),
            ("load_duration", count()),
            ("prompt_eval_count", count()),
            ("prompt_eval_duration", count()),
            ("eval_count", count()),
            ("eval_duration", count()),
        ],
    )
}

/// Why an answer ended.
fn ended() -> Value {
    one_of(&["stop", "length", "tool_calls"])
}

fn is_true() -> Value {
    json!({"const": true})
}
