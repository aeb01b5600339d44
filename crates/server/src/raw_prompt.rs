//! Prompts as a client wrote them, without a conversation around them: texts, or token ids.

use crate::backend::Backend;
use crate::echo::Echo;
use crate::error::ApiError;
use crate::fields::Fields;
use duet_types::{TokenId, Tokens};
use serde_json::Value;

/// A prompt.
#[derive(Debug)]
pub(crate) enum RawPrompt {
    Text(String),
    Tokens(Vec<TokenId>),
}

impl RawPrompt {
    /// A text, token ids, or a list of such.
    pub(crate) fn take_all(fields: &mut Fields, name: &'static str, vocabulary: usize) -> Result<Vec<Self>, ApiError> {
        let Some(value) = fields.take(name) else {
            return Err(ApiError::Missing { param: name.to_owned() });
        };
        let items = match value {
            Value::String(text) => return Ok(vec![Self::Text(text)]),
            Value::Array(items) => items,
            other => return Err(fields.wrong_type(name, EXPECTED, &other)),
        };
        if !matches!(items.first(), Some(Value::String(_) | Value::Array(_))) {
            return Ok(vec![Self::from_tokens(fields, name, &items, vocabulary)?]);
        }
        let prompt = |(index, item): (usize, Value)| match item {
            Value::String(text) => Ok(Self::Text(text)),
            Value::Array(tokens) => Self::from_tokens(fields, &format!("{name}[{index}]"), &tokens, vocabulary),
            other => Err(fields.wrong_type(name, EXPECTED, &other)),
        };
        items.into_iter().enumerate().map(prompt).collect()
    }

    fn from_tokens(fields: &Fields, name: &str, tokens: &[Value], vocabulary: usize) -> Result<Self, ApiError> {
        let token = |(index, value): (usize, &Value)| {
            let path = format!("{name}[{index}]");
            if !value.is_i64() && !value.is_u64() {
                return Err(fields.wrong_type(&path, "a token id", value));
            }
            let token = value.as_u64().and_then(|token| u32::try_from(token).ok());
            let token = token.filter(|token| usize::try_from(*token).is_ok_and(|token| token < vocabulary));
            token
                .map(TokenId)
                .ok_or_else(|| fields.out_of_range(&path, format!("a token id below {vocabulary}"), value))
        };
        Ok(Self::Tokens(tokens.iter().enumerate().map(token).collect::<Result<_, _>>()?))
    }

    /// As it is repeated.
    pub(crate) fn echo(&self, backend: &dyn Backend) -> Echo {
        Echo::new(match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Tokens(tokens) => tokens.iter().flat_map(|token| backend.token_bytes(*token)).copied().collect(),
        })
    }

    /// Its tokens, at most so many. `name` is the field that it came in.
    pub(crate) fn encode(
        self,
        backend: &dyn Backend,
        most: Tokens,
        name: &'static str,
    ) -> Result<Vec<TokenId>, ApiError> {
        let exceeded = ApiError::ContextExceeded { prompt: name, context: backend.context() };
        match self {
            Self::Text(text) => backend.encode_text(&text, most).map_err(|_| exceeded),
            Self::Tokens(tokens) if tokens.len() > most.as_usize() => Err(exceeded),
            Self::Tokens(tokens) => Ok(tokens),
        }
    }

    /// The first of its tokens, at most so many. Of a text that is much longer, only as much is tokenised as brings them.
    pub(crate) fn encode_beginning(self, backend: &dyn Backend, most: Tokens) -> Vec<TokenId> {
        let mut tokens = match self {
            Self::Tokens(tokens) => tokens,
            Self::Text(text) => {
                let mut bytes = most.as_usize().saturating_mul(BYTES_PER_TOKEN);
                loop {
                    let beginning = &text[..text.floor_char_boundary(bytes)];
                    // No text has more tokens than bytes, but for those that stand before every prompt.
                    let tokens = backend.encode_text(beginning, Tokens(u32::MAX)).unwrap_or_default();
                    if tokens.len() >= most.as_usize() || beginning.len() == text.len() {
                        break tokens;
                    }
                    bytes = bytes.saturating_mul(2);
                }
            }
        };
        tokens.truncate(most.as_usize());
        tokens
    }
}

const EXPECTED: &str = "a string, an array of token ids, or an array of these";
/// Few texts have longer ones on average.
const BYTES_PER_TOKEN: usize = 8;
