//! Names of models. Ollama's have a tag after a colon, which is `latest` where nothing is said.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::serve::App;

/// Takes `model`, or what older clients call it, and checks that it is the one that is served.
pub(super) fn take(fields: &mut Fields, app: &App) -> Result<String, ApiError> {
    let model = fields.string("model")?;
    let name = fields.string("name")?;
    let asked = model.or(name).filter(|name| !name.is_empty());
    let asked = asked.ok_or_else(|| ApiError::Missing { param: "model".to_owned() })?;
    app.check_model(Some(untagged(&asked)))?;
    Ok(asked)
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
