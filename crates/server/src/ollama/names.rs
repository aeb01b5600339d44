//! Names of models. Ollama's have a tag after a colon, which is `latest` where nothing is said.

use crate::embeddings::Via;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::serve::App;

/// Takes `model`, or what older clients call it, and checks that it is the one that is served.
pub(super) fn take(fields: &mut Fields, app: &App) -> Result<String, ApiError> {
    let asked = asked(fields)?;
    check(&asked, app)?;
    Ok(asked)
}

/// Checks that it is the one that is served.
pub(super) fn check(name: &str, app: &App) -> Result<(), ApiError> {
    app.check_model(Some(untagged(name)))
}

/// The same where vectors are wanted, and which model makes them.
pub(super) fn take_for_vectors(fields: &mut Fields, app: &App) -> Result<(String, Via), ApiError> {
    let asked = asked(fields)?;
    let via = Via::for_vectors(app, Some(untagged(&asked)))?;
    Ok((asked, via))
}

/// Whether this is what the encoder is called.
pub(super) fn is_encoder(name: &str, app: &App) -> bool {
    app.backend.encoder().is_some_and(|encoder| untagged(name) == encoder.name())
}

/// What a request calls the model that it asks for.
pub(super) fn asked(fields: &mut Fields) -> Result<String, ApiError> {
    let model = fields.string("model")?;
    let name = fields.string("name")?;
    let asked = model.or(name).filter(|name| !name.is_empty());
    asked.ok_or_else(|| ApiError::Missing { param: "model".to_owned() })
}

/// The name as this server knows it.
fn untagged(name: &str) -> &str {
    name.strip_suffix(LATEST).unwrap_or(name)
}

/// The name as Ollama lists it.
pub(super) fn tagged(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { format!("{name}{LATEST}") }
}

const LATEST: &str = ":latest";
