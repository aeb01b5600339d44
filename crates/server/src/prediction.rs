//! Predicted outputs: what a client expects as an answer, to be drafted. (OpenAI: `prediction`)

use crate::error::ApiError;
use crate::fields::Fields;
use crate::messages::text_from;

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
