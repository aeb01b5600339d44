//! A model's tokens, as grammars need them.

use duet_agents::{TokenText, Vocabulary};
use duet_model::Model;
use duet_model::tokenizer::SpecialTokens;
use duet_types::TokenId;
use std::sync::Arc;

pub(crate) fn vocabulary(model: &Arc<Model>) -> Vocabulary {
    let tokenizer = model.tokenizer();
    let all = (0..tokenizer.vocabulary() as u32).map(TokenId);
    let ends: Vec<TokenId> = all.clone().filter(|token| tokenizer.is_end_of_generation(*token)).collect();
    let text = |token| match tokenizer.text_of_special(token) {
        Some(name) => TokenText::Special(name.to_owned()),
        None => TokenText::Text(tokenizer.bytes(token).to_vec()),
    };
    let spelled = Arc::clone(model);
    Vocabulary::new(all.map(text), &ends, move |text| spelled.tokenizer().encode(text, SpecialTokens::AsText)).unwrap()
}
