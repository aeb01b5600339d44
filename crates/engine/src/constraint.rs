//! A generation held to a grammar: each token is chosen among those that may come, and what must come is drafted.
//!
//! Masks take from microseconds to milliseconds, so they are computed on a thread of their own while the pass runs whose
//! logits they are for: one for the row of the last token, and one for each row of the draft behind it. The grammar also
//! guides drafts: what it rules out is not drafted, and what it forces is drafted as certain, so that whole runs of forced
//! tokens are verified in one pass. A token is chosen from the same logits and the same mask with a draft and without one,
//! so the answer is the same.
//!
//! Invariants: the automaton stands behind the last chosen token between passes; whoever chooses waits for masks that are
//! on their way, and the thread that computes them waits for nobody.

mod guide;
mod masks;

pub(crate) use masks::MaskMaker;

use duet_agents::{Automaton, Mask};
use duet_speculate::Draft;
use duet_types::{Class, TokenId};
use guide::GrammarGuide;
use masks::{Masks, Ordered};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What an answer is held to, before its first token.
pub struct Constraint(Automaton);

impl Constraint {
    /// Held to what this automaton lets come next.
    #[must_use]
    pub fn new(automaton: Automaton) -> Self {
        Self(automaton)
    }
}

impl Clone for Constraint {
    fn clone(&self) -> Self {
        Self(self.0.fork())
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

/// Where an answer is in its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    GoesOn,
    /// It has all that it needs, and nothing may follow.
    Complete,
    /// Nothing can follow, and it is not complete.
    Lost,
}

/// A generation's automaton and its masks.
pub(crate) struct Constrained {
    maker: Arc<MaskMaker>,
    class: Class,
    state: State,
    /// What must come next, after the last chosen token.
    forced: Vec<TokenId>,
    /// Chosen tokens that had to come.
    forced_count: u32,
}

enum State {
    /// Nothing has asked for masks.
    Still(Automaton),
    /// On their way.
    Ordered(Ordered),
    Here(Masks),
    /// A panic took them: nothing is known of the grammar any more.
    Lost,
}

impl Constrained {
    pub(crate) fn new(maker: &Arc<MaskMaker>, class: Class, Constraint(automaton): Constraint) -> Self {
        let state = State::Still(automaton);
        Self { maker: Arc::clone(maker), class, state, forced: Vec::new(), forced_count: 0 }
    }

    /// The tokens that may be chosen from row `row` of the pass; absent where nothing can, and the answer is to end.
    pub(crate) fn mask(&mut self, row: usize) -> Option<&Mask> {
        let masks = self.here()?;
        masks.of_row(row)
    }

    /// How long the masks of this pass took to make: nothing before they are here, or once it was told.
    pub(crate) fn take_took(&mut self) -> Duration {
        match &mut self.state {
            State::Here(masks) => masks.take_took(),
            _ => Duration::ZERO,
        }
    }

    /// Takes the chosen token.
    pub(crate) fn chosen(&mut self, token: TokenId) -> Held {
        if self.forced.first() == Some(&token) {
            self.forced.remove(0);
            self.forced_count += 1;
        } else {
            self.forced.clear();
        }
        let Some(masks) = self.here() else { return Held::Lost };
        let automaton = masks.automaton();
        match automaton.commit(token) {
            Err(_) => Held::Lost,
            Ok(()) if !automaton.is_stopped() => Held::GoesOn,
            Ok(()) if automaton.is_accepting() => Held::Complete,
            Ok(()) => Held::Lost,
        }
    }

    /// Drafts with `draft`, which is guided by the grammar, and orders the masks of the pass that verifies what it drafts.
    pub(crate) fn guiding(&mut self, draft: impl FnOnce(&mut GrammarGuide<'_>) -> Draft) {
        if self.here().is_none() {
            return;
        }
        let State::Here(masks) = std::mem::replace(&mut self.state, State::Lost) else { return };
        let mut automaton = masks.into_automaton();
        self.forced = automaton.forced();
        let draft = draft(&mut GrammarGuide::new(&mut automaton, &self.forced));
        self.state = State::Ordered(self.maker.order(self.class, automaton, &draft));
    }

    /// Orders the first mask, which is needed when the prompt was read.
    pub(crate) fn begin(&mut self) {
        if matches!(self.state, State::Still(_)) {
            self.here();
            self.guiding(|_| Draft::default());
        }
    }

    /// Tokens that had to come, so far.
    pub(crate) fn forced_count(&self) -> u32 {
        self.forced_count
    }

    /// Waits for what was ordered.
    fn here(&mut self) -> Option<&mut Masks> {
        if !matches!(self.state, State::Here(_)) {
            self.state = match std::mem::replace(&mut self.state, State::Lost) {
                State::Still(automaton) => State::Here(Masks::none(automaton)),
                State::Ordered(ordered) => ordered.wait().map_or(State::Lost, State::Here),
                other => other,
            };
        }
        match &mut self.state {
            State::Here(masks) => Some(masks),
            _ => None,
        }
    }
}
