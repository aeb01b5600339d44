//! A grammar at work: which tokens may come next.
//!
//! The mechanism is `llguidance`: an Earley parser over lexemes that are matched by derivatives, and a trie of the
//! vocabulary's tokens. This is its shell. What it adds:
//!
//! - a token that is not allowed is refused and changes nothing;
//! - the end of the answer is a state here, so that rolling back over it is as over any token;
//! - errors say what is wrong with a request, and a panic in the compiler is one of them.
//!
//! Whatever a client asks for, time and memory have the bounds of [`Limits`]; beyond them an automaton is [`Stuck`].

mod brief;
mod compile;
mod mask;
mod vocabulary;

use crate::grammar::Grammar;
use crate::refused::Refused;
use duet_types::TokenId;
use llguidance::Matcher;
use std::sync::Arc;

pub use compile::Limits;
pub use mask::Mask;
pub use vocabulary::{TokenText, Vocabulary};

use vocabulary::Shared;

/// Where an answer is in its grammar.
pub struct Automaton {
    matcher: Matcher,
    vocabulary: Arc<Shared>,
    /// Of the present state; absent until it is asked for.
    mask: Option<Mask>,
    /// Tokens that were committed and not rolled back.
    committed: usize,
    end: End,
}

/// Whether a token that ends the answer was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Ended,
}

/// A token that cannot come next. The state is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {0} cannot come next")]
pub struct NotAllowed(pub TokenId);

/// The grammar takes more time or memory than [`Limits`] allow, or nothing can follow. There is no way on but an end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer's grammar leads no further: {reason}")]
pub struct Stuck {
    /// What it ran into.
    pub reason: String,
}

impl Automaton {
    /// An automaton before the first token. Takes from a fraction of a millisecond to some hundred for the largest
    /// schemas, and a thread for that long.
    pub fn start(vocabulary: &Vocabulary, grammar: &Grammar, limits: Limits) -> Result<Self, Refused> {
        let vocabulary = Arc::clone(vocabulary.shared());
        let matcher = compile::matcher(&vocabulary, grammar, limits)?;
        Ok(Self { matcher, vocabulary, mask: None, committed: 0, end: End::Open })
    }

    /// The tokens that may come next; those that end are among them where the answer may end. Takes some ten to some
    /// thousand microseconds the first time after a change, and nothing after that.
    ///
    /// # Errors
    /// [`Stuck`], from then on.
    pub fn mask(&mut self) -> Result<&Mask, Stuck> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None if self.end == End::Ended => Mask::new(self.vocabulary.ends_set()),
            None => Mask::new(self.matcher.compute_mask_or_eos().map_err(stuck)?),
        };
        Ok(self.mask.insert(mask))
    }

    /// Takes the next token. Fast.
    ///
    /// # Errors
    /// [`NotAllowed`] if it cannot come; nothing has changed then.
    pub fn commit(&mut self, token: TokenId) -> Result<(), NotAllowed> {
        let refused = NotAllowed(token);
        if self.end == End::Ended {
            return Err(refused);
        }
        if self.vocabulary.is_end(token) {
            if !self.may_end() {
                return Err(refused);
            }
            self.end = End::Ended;
        } else {
            if self.accepts(&[token]) == 0 {
                return Err(refused);
            }
            self.matcher.consume_token(token.0).map_err(|_| refused)?;
        }
        self.committed += 1;
        self.mask = None;
        Ok(())
    }

    /// Takes back the last `tokens` tokens, or all if there were fewer.
    ///
    /// # Errors
    /// [`Stuck`] if it was before.
    pub fn rollback(&mut self, tokens: usize) -> Result<(), Stuck> {
        let mut tokens = tokens.min(self.committed);
        if tokens == 0 {
            return Ok(());
        }
        self.committed -= tokens;
        self.mask = None;
        if self.end == End::Ended {
            self.end = End::Open;
            tokens -= 1;
        }
        self.matcher.rollback(tokens).map_err(stuck)
    }

    /// The tokens that come next whatever the model would say, as the tokenizer spells them. Empty where there is a
    /// choice, and where only the end can come. While it is not empty, the mask is its first token alone.
    pub fn forced(&mut self) -> Vec<TokenId> {
        if self.end == End::Ended || self.matcher.is_stopped() {
            return Vec::new();
        }
        self.matcher.compute_ff_tokens().into_iter().map(TokenId).collect()
    }

    /// How many of these tokens, from the first, the grammar lets come. Changes nothing. Fast, and more lenient than
    /// masks in one thing: what is forced may be spelled in other tokens than the mask has.
    pub fn accepts(&mut self, tokens: &[TokenId]) -> usize {
        let known: Vec<u32> = tokens.iter().map(|token| token.0).take_while(|id| self.vocabulary.has(*id)).collect();
        let Some(first) = known.first() else { return 0 };
        if self.end == End::Ended {
            return 0;
        }
        if self.matcher.is_stopped() {
            return usize::from(!self.matcher.is_error() && self.vocabulary.is_end(TokenId(*first)));
        }
        self.matcher.validate_tokens(&known).unwrap_or(0)
    }

    /// Whether the answer may end here.
    pub fn is_accepting(&mut self) -> bool {
        self.end == End::Ended || self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether nothing but the end can come, or it has come.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.end == End::Ended || self.matcher.is_stopped()
    }

    /// The same automaton once more, which shares nothing that changes: the mask of a fork can be computed on another
    /// thread. Takes as long as copying what the grammar's lexer has learned, up to some megabytes.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            vocabulary: Arc::clone(&self.vocabulary),
            mask: self.mask.clone(),
            committed: self.committed,
            end: self.end,
        }
    }

    fn may_end(&mut self) -> bool {
        // A grammar can take the end as a part of its text without accepting before it.
        let vocabulary = Arc::clone(&self.vocabulary);
        self.is_accepting() || self.mask().is_ok_and(|mask| vocabulary.ends().iter().any(|end| mask.allows(*end)))
    }
}

impl std::fmt::Debug for Automaton {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Automaton").field("committed", &self.committed).field("end", &self.end).finish_non_exhaustive()
    }
}

fn stuck(error: impl std::fmt::Display) -> Stuck {
    Stuck { reason: brief::brief(&error.to_string()) }
}

#[cfg(test)]
mod tests;
