//! The routes, and what each takes and gives.

use super::schema;
use crate::fields::Known;
use crate::{anthropic, chat, completions, embeddings, ollama, rerank, responses, systemone, tokenize};
use serde_json::{Value, json};

/// One method of one path.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    /// Its body; absent if none is read.
    pub(super) takes: Option<Takes>,
    /// Parameters behind the path.
    pub(super) queries: &'static [Query],
    /// Nothing where it is always refused.
    pub(super) gives: &'static [Gives],
    /// The schema of its errors.
    pub(super) errors: &'static str,
    pub(super) refusals: Refusals,
}

/// A parameter's name, and what it may be.
pub(super) type Query = (&'static str, fn() -> Value);

/// A body.
pub(super) struct Takes {
    /// As it is taken apart by.
    pub(super) known: Known,
    /// Fields of lists that several routes share, which this one leaves alone.
    pub(super) leaves: &'static [&'static str],
    pub(super) required: &'static [&'static str],
    /// One that is answered.
    pub(super) example: fn() -> Value,
}

impl Takes {
    /// The fields that mean something.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.known.names().filter(|name| !self.leaves.contains(name))
    }
}

/// A form of the answer.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    /// An object of this schema.
    Json(&'static str),
    /// Server-sent events.
    Events,
    /// Lines of JSON.
    Lines,
    /// Text of this type.
    Text(&'static str),
}

/// How it may be refused.
#[derive(Clone, Copy)]
pub(super) enum Refusals {
    /// Its host or key is not let in.
    Stranger,
    /// That, and its address means nothing.
    Address,
    /// All that can be wrong with a body or its work.
    Body,
    /// As a stranger; or by an object of this schema, as the server is not well.
    NotWell(&'static str),
}

impl Refusals {
    pub(super) fn statuses(self) -> &'static [&'static str] {
        match self {
            Self::Stranger => &["401", "403", "503"],
            Self::NotWell(_) => &["403", "503"],
            Self::Address => &["400", "401", "403", "404", "503"],
            Self::Body => &["400", "401", "403", "404", "408", "413", "429", "500", "503"],
        }
    }
}

const fn get(path: &'static str, summary: &'static str, gives: &'static [Gives]) -> Operation {
    let refusals = Refusals::Stranger;
    Operation { method: "get", path, summary, takes: None, queries: &[], gives, errors: ERROR, refusals }
}

const fn post(path: &'static str, summary: &'static str, takes: Takes, gives: &'static [Gives]) -> Operation {
    let (takes, refusals) = (Some(takes), Refusals::Body);
    Operation { method: "post", path, summary, takes, queries: &[], gives, errors: ERROR, refusals }
}

/// With Ollama's errors.
const fn ollamas(operation: Operation) -> Operation {
    Operation { errors: "OllamaError", ..operation }
}

/// What this server of one model refuses.
const fn never(method: &'static str, path: &'static str) -> Operation {
    let summary = "Refused: the one model is served that the server was started with";
    Operation { method, refusals: Refusals::Address, ..ollamas(get(path, summary, &[])) }
}

/// OpenAI's shape of errors, which all routes have that nobody else's clients ask.
pub(super) const ERROR: &str = "Error";

pub(super) const OPERATIONS: &[Operation] = &[
    post(
        "/v1/chat/completions",
        "The next turn of a conversation",
        Takes { known: chat::KNOWN, leaves: &[], required: &["messages"], example: conversation },
        &[Gives::Json("ChatCompletion"), Gives::Events],
    ),
    post(
        "/v1/completions",
        "What follows a text",
        Takes {
            known: completions::KNOWN,
            leaves: &[],
            required: &["prompt"],
            example: || json!({"prompt": "Once upon a time", "max_tokens": 2}),
        },
        &[Gives::Json("TextCompletion"), Gives::Events],
    ),
    post(
        "/v1/embeddings",
        "Texts as vectors",
        Takes {
            known: embeddings::KNOWN,
            leaves: &[],
            required: &["input"],
            example: || json!({"input": ["a cat", "a dog"], "encoding_format": "float"}),
        },
        &[Gives::Json("Embeddings")],
    ),
    post(
        "/v1/rerank",
        "Which documents answer a query best",
        Takes { known: rerank::KNOWN, leaves: &[], required: &["query", "documents"], example: rerank_example },
        &[Gives::Json("Ranking")],
    ),
    post(
        "/rerank",
        "The same, as Jina's clients ask for it",
        Takes { known: rerank::KNOWN, leaves: &[], required: &["query", "documents"], example: rerank_example },
        &[Gives::Json("Ranking")],
    ),
    post(
        "/v1/responses",
        "What follows on items",
        Takes {
            known: responses::request::KNOWN,
            leaves: &["logprobs", "n", "prediction"],
            required: &[],
            example: || json!({"input": "Hello", "max_output_tokens": 2, "store": false}),
        },
        &[Gives::Json("Response"), Gives::Events],
    ),
    Operation {
        queries: &[("stream", || schema::is("false"))],
        refusals: Refusals::Address,
        ..get("/v1/responses/{id}", "A response that was stored", &[Gives::Json("Response")])
    },
    Operation {
        method: "delete",
        refusals: Refusals::Address,
        ..get("/v1/responses/{id}", "Forgets a response", &[Gives::Json("ResponseDeleted")])
    },
    Operation {
        method: "post",
        refusals: Refusals::Address,
        ..get("/v1/responses/{id}/cancel", "Ends work in the background", &[Gives::Json("Response")])
    },
    Operation {
        queries: &[
            ("limit", || schema::integer(1, 100)),
            ("order", || schema::one_of(&["asc", "desc"])),
            ("after", schema::string),
        ],
        refusals: Refusals::Address,
        ..get("/v1/responses/{id}/input_items", "What a response was asked with", &[Gives::Json("InputItems")])
    },
    Operation {
        errors: "AnthropicError",
        ..post(
            "/v1/messages",
            "The next turn of a conversation, as Anthropic has it",
            Takes {
                known: anthropic::asked::KNOWN,
                leaves: &[],
                required: &["max_tokens", "messages"],
                example: message,
            },
            &[Gives::Json("Message"), Gives::Events],
        )
    },
    Operation {
        errors: "AnthropicError",
        ..post(
            "/v1/messages/count_tokens",
            "How long a conversation is",
            Takes {
                known: anthropic::asked::KNOWN,
                leaves: &["max_tokens", "metadata", "stop_sequences", "stream", "temperature", "top_k", "top_p"],
                required: &["messages"],
                example: message,
            },
            &[Gives::Json("TokenCount")],
        )
    },
    get("/v1/models", "The model that is served, under its names", &[Gives::Json("Models")]),
    Operation {
        refusals: Refusals::Address,
        ..get("/v1/models/{name}", "The model under one of its names", &[Gives::Json("Model")])
    },
    post(
        "/v1/systemone",
        "Answers to typed questions, with their probabilities",
        Takes {
            known: systemone::KNOWN,
            leaves: &[],
            required: &["questions"],
            example: || json!({"state": "I am late.", "questions": {"late": {"type": "noul", "instructions": "Late?"}}}),
        },
        &[Gives::Json("SystemOne")],
    ),
    post(
        "/tokenize",
        "A text as tokens",
        Takes { known: tokenize::TEXT, leaves: &[], required: &[], example: || json!({"content": "Hello"}) },
        &[Gives::Json("Tokens")],
    ),
    post(
        "/detokenize",
        "Tokens as a text",
        Takes { known: tokenize::IDS, leaves: &[], required: &["tokens"], example: || json!({"tokens": [1, 2]}) },
        &[Gives::Json("Detokenized")],
    ),
    get("/tokenizer_info", "What prompts begin with, and how they are made", &[Gives::Json("TokenizerInfo")]),
    get("/v1/flows", "What runs, and what is kept", &[Gives::Json("Flows")]),
    get("/metrics", "Figures for Prometheus", &[Gives::Text(crate::flows::METRICS_TYPE)]),
    get("/openapi.json", "This document", &[Gives::Json("Document")]),
    Operation {
        refusals: Refusals::NotWell("Health"),
        ..get("/health", "Whether the server is well", &[Gives::Json("Health")])
    },
    ollamas(get("/", "That somebody is here", &[Gives::Text("text/plain; charset=utf-8")])),
    ollamas(post(
        "/api/chat",
        "The next turn of a conversation, as Ollama has it",
        Takes {
            known: ollama::chat::KNOWN,
            leaves: &[],
            required: &[],
            example: || {
                let messages = json!([{"role": "user", "content": "Hello"}]);
                json!({"model": "default", "messages": messages, "stream": false, "options": {"num_predict": 2}})
            },
        },
        &[Gives::Json("OllamaChat"), Gives::Lines],
    )),
    ollamas(post(
        "/api/generate",
        "What follows a text, as Ollama has it",
        Takes {
            known: ollama::generate::KNOWN,
            leaves: &[],
            required: &[],
            example: || json!({"model": "default", "prompt": "Hello", "stream": false, "options": {"num_predict": 2}}),
        },
        &[Gives::Json("OllamaText"), Gives::Lines],
    )),
    ollamas(post(
        "/api/embed",
        "Texts as vectors, as Ollama has it",
        Takes {
            known: ollama::embed::KNOWN,
            leaves: &[],
            required: &[],
            example: || json!({"model": "default", "input": ["a cat", "a dog"]}),
        },
        &[Gives::Json("OllamaEmbeddings")],
    )),
    ollamas(post(
        "/api/embeddings",
        "A text as a vector, as Ollama had it",
        Takes {
            known: ollama::embed::LEGACY,
            leaves: &[],
            required: &[],
            example: || json!({"model": "default", "prompt": "a cat"}),
        },
        &[Gives::Json("OllamaEmbedding")],
    )),
    ollamas(get("/api/tags", "The models that there are", &[Gives::Json("OllamaModels")])),
    ollamas(get("/api/ps", "The models that are loaded", &[Gives::Json("OllamaModels")])),
    ollamas(post(
        "/api/show",
        "A model",
        Takes { known: ollama::models::KNOWN, leaves: &[], required: &[], example: || json!({"model": "default"}) },
        &[Gives::Json("OllamaModel")],
    )),
    ollamas(post(
        "/api/pull",
        "That the model is there",
        Takes { known: ollama::others::KNOWN, leaves: &[], required: &[], example: || json!({"model": "default"}) },
        &[Gives::Json("OllamaStatus"), Gives::Lines],
    )),
    ollamas(get("/api/version", "The version of Ollama whose features are here", &[Gives::Json("OllamaVersion")])),
    never("post", "/api/create"),
    never("post", "/api/copy"),
    never("post", "/api/push"),
    never("delete", "/api/delete"),
    never("post", "/api/blobs/{digest}"),
];

fn conversation() -> Value {
    json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2})
}

fn rerank_example() -> Value {
    json!({"query": "pets", "documents": ["a cat", "a dog"]})
}

fn message() -> Value {
    json!({"model": "default", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]})
}
