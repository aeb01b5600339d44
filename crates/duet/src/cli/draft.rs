//! `--draft`: a smaller model that drafts.

use crate::bad_input::BadInput;
use clap::Args;
use duet_engine::Method;

/// A model that drafts.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DraftArgs {
    /// A smaller model with the same tokenizer, which drafts for the model where that is faster; it changes no token
    #[arg(long = "draft", value_name = "MODEL")]
    pub(crate) draft_model: Option<String>,
}

impl DraftArgs {
    /// The way to draft with it, if `--speculate` says `method`.
    ///
    /// # Errors
    /// If one is without the other.
    pub(crate) fn method(&self, method: Method) -> Result<Method, BadInput> {
        match (&self.draft_model, method) {
            (None, method) if method.has_model() => {
                Err(BadInput(format!("--speculate {method} needs a draft model: --draft MODEL")))
            }
            (None, method) => Ok(method),
            (Some(_), Method::Duet) => Ok(Method::DuetDraft),
            (Some(_), method) if method.has_model() => Ok(method),
            (Some(_), Method::None) => Err(BadInput("--draft drafts nothing with --speculate off".into())),
            (Some(_), method) => Err(BadInput(format!(
                "--draft has no part in --speculate {method}; there are on, {} and {}",
                Method::DraftModel,
                Method::DuetDraft
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_model_is_one_more_drafter_and_there_is_no_such_method_without_one() {
        let [without, with] = [None, Some("small".to_owned())].map(|draft_model| DraftArgs { draft_model });
        assert_eq!(without.method(Method::Duet), Ok(Method::Duet));
        assert_eq!(with.method(Method::Duet), Ok(Method::DuetDraft));
        assert_eq!(with.method(Method::DraftModel), Ok(Method::DraftModel));
        assert!(without.method(Method::DuetDraft).is_err());
        assert!(with.method(Method::None).is_err() && with.method(Method::Pld).is_err());
    }
}
