//! What an encoder is asked for: some texts, read together in one pass, and a vector or a score of each.

use crate::request::EngineError;
use duet_model::encoder::Text;
use duet_types::{Class, TenantId, Tokens};
use std::sync::Arc;

/// Some texts for the encoder of an engine. What comes of it are as many [`GenerationEvent::Embedding`]s, in their order; of an
/// encoder for scores each has one number.
///
/// [`GenerationEvent::Embedding`]: crate::GenerationEvent::Embedding
#[derive(Clone, Debug)]
pub struct EncodeRequest {
    /// As [`Encoder::text`] makes them.
    ///
    /// [`Encoder::text`]: duet_model::encoder::Encoder::text
    pub texts: Arc<[Text]>,
    /// Who waits for it.
    pub class: Class,
    /// Whose it is.
    pub tenant: TenantId,
}

impl EncodeRequest {
    /// Rows of all texts.
    #[must_use]
    pub fn rows(&self) -> Tokens {
        self.texts.iter().map(Text::len).sum()
    }

    /// Refuses what cannot be served.
    pub(crate) fn validate(&self, encoder: Encodes) -> Result<(), EngineError> {
        match encoder {
            Encodes::Nothing => Err(EngineError::Configuration("the engine has no encoder".to_owned())),
            Encodes::Texts if self.texts.is_empty() || self.texts.iter().any(Text::is_empty) => {
                Err(EngineError::EmptyPrompt)
            }
            Encodes::Texts => Ok(()),
        }
    }
}

/// What an engine can encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encodes {
    Nothing,
    Texts,
}
