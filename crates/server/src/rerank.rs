//! `POST /v1/rerank`: which of some documents answer a query best, as Jina's and Cohere's clients ask for it.
//!
//! A model for scores reads query and document together and says how well they fit; its number is brought between 0 and 1 by the
//! logistic function. A model for vectors says it by the cosine of the two.

use crate::arrived::taken_apart;
use crate::auth::Caller;
use crate::body;
use crate::embeddings::encoding::{self, Asking, Encoded};
use crate::embeddings::{self, Overlong, Usage, Via};
use crate::error::ApiError;
use crate::fields::{Fields, Known};
use crate::reply::tell_ignored;
use crate::serve::App;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duet_model::encoder::{Encoder, Text};
use duet_types::Class;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let received = body::read(&app, request).await?;
    let (Asked { encoder, class, query, documents, top, returned, overlong, ignored }, arrived) =
        taken_apart(&app, received, KNOWN, take).await?;
    let documents = Arc::new(documents);
    let asking = Asking { tenant: caller.tenant, class, name: "documents" };
    let making = making(Arc::clone(&encoder), query, Arc::clone(&documents), overlong);
    let Encoded { results, tokens } = encoding::encode(&app, asking, arrived, making).await?;
    let scores =
        if encoder.pooling().embeds() { cosines(&results) } else { results.iter().map(|of| logistic(of)).collect() };
    let mut ranked: Vec<(usize, f64)> = scores.into_iter().enumerate().collect();
    // Of two that are equal, the first one comes first.
    ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    ranked.truncate(top);
    let document = |index: usize| returned.then(|| Document { text: documents[index].clone() });
    let results =
        ranked.into_iter().map(|(index, score)| Ranked { index, relevance_score: score, document: document(index) });
    let answer = Answer {
        id: app.ids.next("rerank-"),
        object: "list",
        model: encoder.name(),
        results: results.collect(),
        usage: Usage { prompt_tokens: tokens, total_tokens: tokens },
    };
    let mut response = Json(answer).into_response();
    tell_ignored(&mut response, &ignored);
    Ok(response)
}

pub(crate) const KNOWN: Known = Known(&[&[
    "background",
    "documents",
    "model",
    "priority",
    "query",
    "return_documents",
    "service_tier",
    "top_n",
    "truncate",
]]);

struct Asked {
    encoder: Arc<Encoder>,
    class: Class,
    query: String,
    documents: Vec<String>,
    /// How many are answered.
    top: usize,
    /// Whether they are repeated.
    returned: bool,
    overlong: Overlong,
    ignored: Vec<String>,
}

fn take(mut fields: Fields, headers: &HeaderMap, app: &App) -> Result<Asked, ApiError> {
    let encoder = Via::for_scores(app, fields.string("model")?.as_deref())?;
    let missing = |name: &str| ApiError::Missing { param: name.to_owned() };
    let query = fields.string("query")?.ok_or_else(|| missing("query"))?;
    if query.is_empty() {
        return Err(fields.out_of_range("query", "not empty", &Value::from("")));
    }
    let listed = match fields.take("documents") {
        None => return Err(missing("documents")),
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(fields.wrong_type("documents", "an array", &other)),
    };
    if listed.is_empty() || listed.len() > DOCUMENTS_MAX {
        let expected = format!("from 1 to {DOCUMENTS_MAX} documents");
        return Err(fields.out_of_range("documents", expected, &listed.len().into()));
    }
    // The model reads the query anew with each document.
    let most = QUERY_BYTES_MAX / listed.len();
    if query.len() > most {
        let expected = format!("of at most {most} bytes with so many documents");
        return Err(fields.out_of_range("query", expected, &query.len().into()));
    }
    let text = |(index, document): (usize, Value)| document_text(&fields, index, document);
    let documents: Vec<String> = listed.into_iter().enumerate().map(text).collect::<Result<_, _>>()?;
    let top = fields.integer("top_n", 1..=i64::MAX)?.and_then(|top| usize::try_from(top).ok());
    Ok(Asked {
        class: embeddings::class(&mut fields, headers, app, documents.len())?,
        top: top.unwrap_or(documents.len()),
        returned: fields.boolean("return_documents")?.unwrap_or(false),
        overlong: Overlong::cut_if(fields.boolean("truncate")?.unwrap_or(false)),
        encoder,
        query,
        documents,
        ignored: fields.rest().collect(),
    })
}

/// A document is a text, or an object with one.
fn document_text(fields: &Fields, index: usize, document: Value) -> Result<String, ApiError> {
    let path = format!("documents[{index}]");
    let text = match document {
        Value::String(text) => text,
        Value::Object(mut object) => match object.remove("text") {
            Some(Value::String(text)) => text,
            Some(other) => return Err(fields.wrong_type(&format!("{path}.text"), "a string", &other)),
            None => return Err(ApiError::Missing { param: format!("{path}.text") }),
        },
        other => return Err(fields.wrong_type(&path, "a string or an object with a text", &other)),
    };
    if text.is_empty() { Err(fields.out_of_range(&path, "not empty", &Value::from(""))) } else { Ok(text) }
}

/// The texts that are encoded: a pair for each document; or the query, and then each document.
fn making(
    encoder: Arc<Encoder>,
    query: String,
    documents: Arc<Vec<String>>,
    overlong: Overlong,
) -> impl Iterator<Item = Result<Text, ApiError>> {
    let queries = usize::from(encoder.pooling().embeds());
    (0..queries + documents.len()).map(move |number| match number.checked_sub(queries) {
        None => {
            let text = encoder.text(&query, overlong.of_encoders());
            text.map_err(|error| encoding::refused("query".to_owned(), error))
        }
        Some(index) => {
            let document = &documents[index];
            let text = if queries == 0 {
                encoder.pair(&query, document, overlong.of_encoders())
            } else {
                encoder.text(document, overlong.of_encoders())
            };
            text.map_err(|error| encoding::refused(format!("documents[{index}]"), error))
        }
    })
}

/// Of the first vector with each of the others, which have a length of 1.
fn cosines(vectors: &[Vec<f32>]) -> Vec<f64> {
    let Some((query, documents)) = vectors.split_first() else { return Vec::new() };
    let cosine = |of: &Vec<f32>| query.iter().zip(of).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    documents.iter().map(cosine).collect()
}

fn logistic(score: &[f32]) -> f64 {
    1.0 / (1.0 + (-f64::from(score.first().copied().unwrap_or(0.0))).exp())
}

#[derive(Serialize)]
struct Answer<'a> {
    id: String,
    object: &'static str,
    model: &'a str,
    results: Vec<Ranked>,
    usage: Usage,
}

#[derive(Serialize)]
struct Ranked {
    index: usize,
    relevance_score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Document>,
}

#[derive(Serialize)]
struct Document {
    text: String,
}

/// Of a query, times documents: as many as fill the longest context with each of a thousand.
const QUERY_BYTES_MAX: usize = 64 << 20;

/// Cohere's.
const DOCUMENTS_MAX: usize = 1000;
