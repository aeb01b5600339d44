//! What is kept of a finished request: the end of its prompt, and its answer.

use crate::key::TaskKey;
use crate::varint;
use duet_speculate::history::{CUE, add_interaction};
use duet_speculate::suffix_automaton::SuffixAutomaton;
use duet_types::{TokenId, Tokens};

/// A finished request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interaction {
    /// What it is kept under.
    pub key: TaskKey,
    /// What was said.
    pub text: Text,
}

/// The last tokens of a prompt, and all of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    cue: Vec<TokenId>,
    answer: Vec<TokenId>,
}

impl Interaction {
    /// Of a prompt, only its end is kept.
    #[must_use]
    pub fn new(key: TaskKey, prompt: &[TokenId], answer: &[TokenId]) -> Self {
        let cue = prompt[prompt.len().saturating_sub(CUE)..].to_vec();
        Self { key, text: Text { cue, answer: answer.to_vec() } }
    }
}

impl Text {
    /// The last tokens of the prompt.
    #[must_use]
    pub fn cue(&self) -> &[TokenId] {
        &self.cue
    }

    /// The answer.
    #[must_use]
    pub fn answer(&self) -> &[TokenId] {
        &self.answer
    }

    /// Tokens of both.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        Tokens(u32::try_from(self.cue.len() + self.answer.len()).unwrap_or(u32::MAX))
    }

    /// Keeps the first tokens of the answer only.
    pub(crate) fn truncate(&mut self, answer: Tokens) {
        self.answer.truncate(answer.as_usize());
    }

    /// Adds it to an automaton.
    pub(crate) fn add_to(&self, automaton: &mut SuffixAutomaton) {
        add_interaction(automaton, &self.cue, &self.answer);
    }

    /// As it is stored: the length of the cue, then all tokens.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + 2 * self.tokens().as_usize());
        varint::put(&mut bytes, self.cue.len() as u64);
        self.cue.iter().chain(&self.answer).for_each(|token| varint::put(&mut bytes, token.0.into()));
        bytes
    }

    /// Reads what [`Self::encode`] wrote; nothing from other bytes.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let cue_len = usize::try_from(varint::take(&mut bytes)?).ok()?;
        let mut cue = Vec::new();
        while !bytes.is_empty() {
            cue.push(TokenId(varint::take_u32(&mut bytes)?));
        }
        if cue_len > cue.len().min(CUE) {
            return None;
        }
        let answer = cue.split_off(cue_len);
        Some(Self { cue, answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{ModelFingerprint, TaskName, UserName};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(prompt: Vec<u32>, answer: Vec<u32>) {
            let tokens = |ids: Vec<u32>| ids.into_iter().map(TokenId).collect::<Vec<_>>();
            let (prompt, answer) = (tokens(prompt), tokens(answer));
            let key =
                TaskKey { user: UserName::default(), task: TaskName::default(), model: ModelFingerprint(0) };
            let text = Interaction::new(key, &prompt, &answer).text;
            prop_assert!(prompt.ends_with(text.cue()));
            prop_assert_eq!(text.cue().len(), prompt.len().min(CUE));
            prop_assert_eq!(Text::decode(&text.encode()), Some(text));
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            if let Some(text) = Text::decode(&bytes) {
                prop_assert!(text.cue().len() <= CUE);
            }
        }
    }
}
