//! Which model makes the vectors.

use crate::error::ApiError;
use crate::serve::App;
use duet_model::encoder::Encoder;
use std::sync::Arc;

/// A model that texts go through.
#[derive(Clone, Debug)]
pub(crate) enum Via {
    /// The one that answers, whose vectors are what it has beside.
    Decoder,
    /// The one that was made for it.
    Encoder(Arc<Encoder>),
}

impl Via {
    /// The one for vectors that a request names. Where it names none, it is the one that was made for it, if there is one.
    pub(crate) fn for_vectors(app: &App, model: Option<&str>) -> Result<Self, ApiError> {
        let Some(encoder) = app.backend.encoder() else {
            return app.check_model(model).map(|()| Self::Decoder);
        };
        let embeds = encoder.pooling().embeds();
        match model {
            None | Some("default") if embeds => Ok(Self::Encoder(Arc::clone(encoder))),
            Some(model) if model == encoder.name() && embeds => Ok(Self::Encoder(Arc::clone(encoder))),
            Some(model) if model == encoder.name() => Err(ApiError::Unsupported {
                param: "model".to_owned(),
                why: "it makes scores of pairs of texts, for /v1/rerank, and no vectors",
            }),
            other => app.check_model(other).map(|()| Self::Decoder),
        }
    }

    /// The one for scores that a request names.
    pub(crate) fn for_scores(app: &App, model: Option<&str>) -> Result<Arc<Encoder>, ApiError> {
        let Some(encoder) = app.backend.encoder() else {
            app.check_model(model)?;
            return Err(ApiError::Unsupported { param: "model".to_owned(), why: NO_ENCODER });
        };
        match model {
            None | Some("default") => Ok(Arc::clone(encoder)),
            Some(model) if model == encoder.name() => Ok(Arc::clone(encoder)),
            other => {
                app.check_model(other)?;
                Err(ApiError::Unsupported { param: "model".to_owned(), why: "it answers, and scores nothing" })
            }
        }
    }

    /// What clients know it by.
    pub(crate) fn name<'a>(&'a self, app: &'a App) -> &'a str {
        match self {
            Self::Decoder => app.backend.model_name(),
            Self::Encoder(encoder) => encoder.name(),
        }
    }

    /// How many token ids exist.
    pub(crate) fn vocabulary(&self, app: &App) -> usize {
        match self {
            Self::Decoder => app.backend.vocabulary(),
            Self::Encoder(encoder) => encoder.vocabulary(),
        }
    }

    /// Floats of a vector.
    pub(crate) fn width(&self, app: &App) -> usize {
        match self {
            Self::Decoder => app.backend.embedding_width(),
            Self::Encoder(encoder) => encoder.width(),
        }
    }
}

const NO_ENCODER: &str = "scores need a model for them: `duet serve --embeddings MODEL`";
