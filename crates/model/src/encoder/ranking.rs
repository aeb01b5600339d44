//! Scores by decoders that were trained to answer "yes" or "no" (Qwen3-Reranker): the file says in which words a query and a
//! document are put to the model, and has the two rows of its head.

use crate::gguf::Metadata;
use crate::load::{LoadError, Model};
use crate::tokenizer::{SpecialTokens, Tokenizer};
use duet_kernels::rows::dots;
use duet_types::TokenId;

/// What a file says of scores.
#[derive(Debug)]
pub(super) struct Ranking {
    /// With `{query}` and `{document}` in it.
    template: String,
    /// Of "yes", less that of "no".
    weight: Vec<f32>,
}

const TEMPLATE: &str = "tokenizer.chat_template.rerank";
const HEAD: &str = "cls.output.weight";
const QUERY: &str = "{query}";
const DOCUMENT: &str = "{document}";
const ANSWERS: [&str; 2] = ["yes", "no"];

impl Ranking {
    /// Reads it from a model's file.
    pub(super) fn of(model: &Model) -> Result<Self, LoadError> {
        let metadata = model.file().metadata();
        Ok(Self { template: template(metadata)?, weight: weight(model)? })
    }

    /// What a final hidden state says: how much likelier "yes" is than "no", as the difference of their logits, whose logistic
    /// function is the probability of "yes" among the two.
    pub(super) fn score(&self, model: &Model, hidden: &[f64]) -> f32 {
        let hidden: Vec<f32> = hidden.iter().map(|x| *x as f32).collect();
        let mut score = [0.0];
        dots(model.isa(), &hidden, &self.weight, &mut score);
        score[0]
    }

    /// The tokens that ask of a query and a document. Special tokens are the template's alone.
    pub(super) fn question(&self, tokenizer: &Tokenizer, query: &str, document: &str) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        for (special, text) in tokenizer.parts(&self.template) {
            tokens.extend(special);
            tokens.extend(tokenizer.encode(&filled(text, query, document), SpecialTokens::AsText));
        }
        tokens
    }
}

fn template(metadata: &Metadata) -> Result<String, LoadError> {
    let refuse = |problem: &str| LoadError::Setting { key: TEMPLATE.to_owned(), problem: problem.to_owned() };
    let template = metadata.opt_str(TEMPLATE)?;
    let template =
        template.ok_or_else(|| refuse("it is not there, and says how a query and a document are asked of"))?;
    if template.matches(QUERY).count() == 1 && template.matches(DOCUMENT).count() == 1 {
        return Ok(template.to_owned());
    }
    Err(refuse("it has not one place for a query, `{query}`, and one for a document, `{document}`"))
}

fn weight(model: &Model) -> Result<Vec<f32>, LoadError> {
    let architecture = &model.config().architecture;
    let key = format!("{architecture}.classifier.output_labels");
    let answers = model.file().metadata().strings(&key)?;
    if !answers.iter().eq(ANSWERS) {
        let problem = format!("{answers:?}; supported: {ANSWERS:?}");
        return Err(LoadError::Setting { key, problem });
    }
    let tensor = model.file().tensor(HEAD).ok_or_else(|| LoadError::MissingTensor { name: HEAD.to_owned() })?;
    let hidden = model.blueprint().hidden;
    if tensor.info.rows() != ANSWERS.len() || tensor.info.row_len() != hidden {
        let found = tensor.info.shape.clone();
        return Err(LoadError::Shape { tensor: HEAD.to_owned(), expected: vec![hidden, ANSWERS.len()], found });
    }
    let [mut yes, mut no] = [vec![0.0; hidden], vec![0.0; hidden]];
    tensor.dequantize_row(0, &mut yes);
    tensor.dequantize_row(1, &mut no);
    yes.iter_mut().zip(&no).for_each(|(yes, no)| *yes -= no);
    if yes.iter().all(|x| x.is_finite()) {
        return Ok(yes);
    }
    Err(LoadError::Values { tensor: HEAD.to_owned(), problem: "it holds infinities or NaN".to_owned() })
}

/// A part of the template with what is asked of in its places; what looks like a place in them is none.
fn filled(text: &str, query: &str, document: &str) -> String {
    let mut places: Vec<(usize, &str, &str)> = [(QUERY, query), (DOCUMENT, document)]
        .into_iter()
        .filter_map(|(place, with)| Some((text.find(place)?, place, with)))
        .collect();
    places.sort_unstable_by_key(|place| place.0);
    let (mut filled, mut end) = (String::new(), 0);
    for (at, place, with) in places {
        filled.push_str(&text[end..at]);
        filled.push_str(with);
        end = at + place.len();
    }
    filled.push_str(&text[end..]);
    filled
}

#[cfg(test)]
mod tests {
    use super::filled;

    #[test]
    fn what_looks_like_a_place_in_a_text_is_none() {
        let text = filled("q: {query}, d: {document}.", "{document}", "{query}");
        assert_eq!(text, "q: {document}, d: {query}.");
        assert_eq!(filled("neither", "a", "b"), "neither");
    }
}
