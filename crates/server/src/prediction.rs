//! Predicted outputs: what a client expects as an answer, to be drafted. (OpenAI: `prediction`)

use crate::backend::Backend;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::messages::text_from;
use duet_engine::predicted_max;
use duet_types::{TokenId, Tokens};

/// The text that `prediction` holds: `{"type": "content", "content": …}`, a string or text parts.
pub(crate) fn take(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Option<String>, ApiError> {
    let Some(prediction) = fields.take("prediction") else { return Ok(None) };
    let mut prediction = Fields::nested(fields.path_of("prediction"), prediction)?;
    match prediction.take("type") {
        Some(kind) if kind == "content" => {}
        None => return Err(ApiError::Missing { param: prediction.path_of("type") }),
        Some(other) => return Err(prediction.out_of_range("type", "content", &other)),
    }
    let content = prediction.take("content");
    let content = content.ok_or_else(|| ApiError::Missing { param: prediction.path_of("content") })?;
    let text = text_from(&prediction, content, ignored)?;
    ignored.extend(prediction.rest());
    Ok(Some(text))
}

/// Its tokens, for an answer of at most so many. A text that no such answer could use is refused before it is read to
/// its end.
pub(crate) fn encode(backend: &dyn Backend, text: &str, answer: Tokens) -> Result<Vec<TokenId>, ApiError> {
    let most = predicted_max(answer);
    backend.encode_answer(text, most).map_err(|_| ApiError::OutOfRange {
        param: "prediction".to_owned(),
        expected: format!("of at most {most} tokens where the answer may have {answer}"),
        got: format!("{} bytes of text", text.len()),
    })
}
