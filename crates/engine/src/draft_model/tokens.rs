//! Whether a draft model speaks of the same tokens.

use crate::request::EngineError;
use duet_model::Model;
use duet_model::tokenizer::Tokenizer;
use duet_types::TokenId;

/// Refuses a draft model whose tokens are others. One vocabulary may be longer: it is padded, or has tokens that the other
/// never says; what the longer one says beyond the shorter is not drafted.
pub(crate) fn check_same_tokens(model: &Model, draft: &Model) -> Result<(), EngineError> {
    let (own, others) = (model.tokenizer(), draft.tokenizer());
    let shared = own.vocabulary().min(others.vocabulary());
    let different = (0..shared as u32).map(TokenId).find(|&token| spelled(own, token) != spelled(others, token));
    let [name, draft] = [model, draft].map(|model| &model.config().name);
    let longer = own.vocabulary().max(others.vocabulary());
    match different {
        Some(token) => Err(EngineError::Configuration(format!(
            "{draft} cannot draft for {name}: their tokens differ, token {token} is {:?} and {:?}; a draft model must have \
             the same tokenizer",
            shown(others, token),
            shown(own, token),
        ))),
        None if shared < longer - longer / PADDING => Err(EngineError::Configuration(format!(
            "{draft} cannot draft for {name}: it has {} tokens and {name} {}; a draft model must have the same tokenizer",
            others.vocabulary(),
            own.vocabulary(),
        ))),
        None => Ok(()),
    }
}

/// A vocabulary may be a sixteenth longer than the other: models of a family are padded to other multiples.
const PADDING: usize = 16;

fn spelled(tokenizer: &Tokenizer, token: TokenId) -> &[u8] {
    tokenizer.text_of_special(token).map_or_else(|| tokenizer.bytes(token), str::as_bytes)
}

fn shown(tokenizer: &Tokenizer, token: TokenId) -> String {
    String::from_utf8_lossy(spelled(tokenizer, token)).into_owned()
}
