//! A bound on a model's reasoning: after so many tokens the closing mark is written for it, and it answers.
//!
//! The answer's text tells where the reasoning is ([`ReasoningSplit`], by which clients get it apart). Within it tokens are
//! counted; when there were enough, the tokens of the closing mark are chosen, one after the other, whatever the logits
//! say. They are generated tokens like any other: the model reads them, clients get and pay them, penalties count them.
//!
//! A character or a closing mark that the model has begun is left to it to end, for a few tokens, so that neither is cut.
//! Where a grammar does not let a token of the mark come, its reading of where the reasoning is goes before this one, and
//! nothing is forced.
//!
//! What is forced follows from the tokens before it, so drafts change nothing here either, and nothing is drawn for it. What is
//! left of the mark is drafted ([`ClosingGuide`]).

mod guide;

pub(crate) use guide::ClosingGuide;

use duet_agents::{Begins, Place, ReasoningFormat, ReasoningSplit};
use duet_types::{TokenId, Tokens};

/// A bound on a generation's reasoning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThoughtBound {
    /// How the model marks its reasoning. Marks that are special tokens have to be among the request's.
    pub format: ReasoningFormat,
    /// Where its turn begins.
    pub begins: Begins,
    /// Tokens between the marks; a few more may complete a character.
    pub max: Tokens,
    /// The closing mark, as the tokenizer spells it.
    pub closing: Vec<TokenId>,
}

/// A generation's bounded reasoning.
#[derive(Debug)]
pub(crate) struct Thought {
    split: ReasoningSplit,
    closing: Vec<TokenId>,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// So many tokens may come.
    Open { left: Tokens },
    /// None, but so many may end what was begun.
    Ending { left: usize },
    /// The mark is written; so many of its tokens were.
    Closing { written: usize },
    /// The answer has begun.
    Over,
}

impl Thought {
    /// Of a generation that has not begun.
    pub(crate) fn new(ThoughtBound { format, begins, max, closing }: ThoughtBound) -> Self {
        let split = ReasoningSplit::new(Some(format), begins);
        let mut thought = Self { split, closing, state: State::Open { left: max } };
        thought.settle(None);
        thought
    }

    /// The token that is to come next, if it is not for the model to say.
    pub(crate) fn closing(&self) -> Option<TokenId> {
        self.to_close().first().copied()
    }

    /// All such tokens, as far as they are known.
    pub(crate) fn to_close(&self) -> &[TokenId] {
        match self.state {
            State::Closing { written } => self.closing.get(written..).unwrap_or_default(),
            State::Open { .. } | State::Ending { .. } | State::Over => &[],
        }
    }

    /// A token was chosen, and with it this text became certain.
    pub(crate) fn goes_on(&mut self, token: TokenId, text: &str) {
        let was_within = matches!(self.split.place(), Place::Reasoning | Place::Closing);
        let was_expected = self.closing() == Some(token);
        self.split.push(text);
        self.state = match self.state {
            _ if self.split.place() == Place::Answer => State::Over,
            State::Open { left } if was_within => State::Open { left: left.saturating_sub(Tokens(1)) },
            State::Ending { left } => State::Ending { left: left.saturating_sub(1) },
            State::Closing { written } if was_expected && written + 1 < self.closing.len() => {
                State::Closing { written: written + 1 }
            }
            State::Closing { .. } => State::Over,
            state @ (State::Open { .. } | State::Over) => state,
        };
        self.settle(Some(text));
    }

    /// Begins to close where that is due; `text` is the last token's, which has none while its character is not whole.
    fn settle(&mut self, text: Option<&str>) {
        let place = self.split.place();
        if matches!(self.state, State::Open { left: Tokens::ZERO }) && place != Place::Beginning {
            self.state = State::Ending { left: ENDING_MAX };
        }
        if let State::Ending { left } = self.state {
            let is_whole = place == Place::Reasoning && text != Some("");
            if is_whole || left == 0 {
                self.state = State::Closing { written: 0 };
            }
        }
    }
}

/// Tokens that may end a character or a mark: a character has four bytes, and marks are cut into few more pieces.
const ENDING_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written of a turn in which the model would say these texts, a token each.
    fn written(begins: Begins, max: u32, says: &[&str]) -> String {
        const MARK: [&str; 3] = ["</", "think", ">"];
        let closing = (100..103).map(TokenId).collect();
        let bound = ThoughtBound { format: ReasoningFormat::Think, begins, max: Tokens(max), closing };
        let (mut thought, mut written) = (Thought::new(bound), Vec::new());
        let mut says = says.iter();
        loop {
            let (token, text) = match thought.closing() {
                Some(token) => (token, MARK[token.0 as usize - 100]),
                None => match says.next() {
                    Some(text) => (TokenId(0), *text),
                    None => return written.concat(),
                },
            };
            thought.goes_on(token, text);
            written.push(text.to_owned());
        }
    }

    #[test]
    fn a_thought_ends_after_its_tokens() {
        let says = ["a", "b", "c", "d"];
        assert_eq!(written(Begins::Inside, 0, &says), "</think>abcd");
        assert_eq!(written(Begins::Inside, 2, &says), "ab</think>cd");
        assert_eq!(written(Begins::Inside, 9, &says), "abcd");
        assert_eq!(written(Begins::Outside, 2, &says), "abcd");
        let says = ["\n", "<th", "ink>", "a", "b", "c", "d"];
        assert_eq!(written(Begins::Outside, 2, &says), "\n<think>ab</think>cd");
        assert_eq!(written(Begins::Outside, 0, &says), "\n<think></think>abcd");
    }

    #[test]
    fn a_model_that_ends_it_is_left_alone() {
        for max in 1..5 {
            assert_eq!(written(Begins::Inside, max, &["a</think>", "b", "c"]), "a</think>bc");
            assert_eq!(
                written(Begins::Outside, max, &["<think>", "</think>", "<think>", "c"]),
                "<think></think><think>c"
            );
        }
    }

    #[test]
    fn what_was_begun_is_ended_first() {
        // A character of three tokens, and a mark of three.
        assert_eq!(written(Begins::Inside, 1, &["", "", "€", "b", "c"]), "€</think>bc");
        assert_eq!(written(Begins::Inside, 1, &["<", "/think", ">", "b"]), "</think>b");
        assert_eq!(written(Begins::Inside, 1, &["<", "b>", "c"]), "<b></think>c");
        // It is not waited for what never ends.
        assert_eq!(written(Begins::Inside, 1, &["<", "<", "<", "<", "<", "<", "b"]), "<<<<<</think><b");
    }

    /// The grammar has the last word: a token that was not the mark's ends the matter.
    #[test]
    fn where_the_mark_may_not_come_nothing_is_forced() {
        let closing = vec![TokenId(1), TokenId(2)];
        let (format, begins) = (ReasoningFormat::Think, Begins::Inside);
        let mut thought = Thought::new(ThoughtBound { format, begins, max: Tokens(1), closing });
        thought.goes_on(TokenId(0), "a");
        assert_eq!(thought.closing(), Some(TokenId(1)));
        thought.goes_on(TokenId(0), "b");
        assert_eq!(thought.closing(), None);
    }
}
