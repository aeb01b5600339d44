//! A drafter: a source of what may come next. Several compete in one [`Speculator`](crate::Speculator).
//!
//! A drafter reads every token of the sequence, prompt and answer, and keeps the *place* where the sequence ends in what
//! it knows. From a place it proposes candidates, each with *evidence*: a small number that says how good the reasons
//! are, by whatever this drafter knows (length of the match, rank). How likely evidence makes a candidate is not its to
//! say: that is [learned](crate::confidence).

use crate::draft_model::Told;
use crate::successors::Successors;
use duet_types::TokenId;
use std::fmt::Debug;

/// Where a drafter is in what it knows. What the numbers mean is its own affair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub u32, pub u32);

/// How good the reasons for a candidate are: below [`EVIDENCE`], and more is not always better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence(pub u8);

/// Kinds of evidence that a drafter can have; 0 is none.
pub const EVIDENCE: usize = 64;

/// A token that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The token.
    pub token: TokenId,
    /// How strong the drafter's grounds for it are; the trust in each kind is learned.
    pub evidence: Evidence,
}

/// What a drafter is, for whoever learns how far to trust it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The prompt and the answer so far.
    Context,
    /// Finished interactions.
    History,
    /// The model's own preferences.
    Calibrated,
    /// Rejected drafts that may still be right.
    Extension,
    /// What the client expects.
    Prediction,
    /// What the model preferred in earlier requests.
    Recycled,
    /// A draft model.
    Model,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Context,
        Self::History,
        Self::Calibrated,
        Self::Extension,
        Self::Prediction,
        Self::Recycled,
        Self::Model,
    ];
}

/// A source of candidates. Places are given back to it in the order of its making, and only its own.
pub trait Drafter: Debug + Send {
    /// What it is.
    fn kind(&self) -> Kind;

    /// The sequence has one token more.
    fn observe(&mut self, token: TokenId);

    /// Where the sequence ends.
    fn end(&self) -> Place;

    /// Where it would end with `token` after `place`.
    fn step(&self, place: Place, token: TokenId) -> Place;

    /// What may come after `place`, best first; appended.
    fn propose(&self, place: Place, candidates: &mut Vec<Candidate>);

    /// The model would say one of `successors` after a text that ends with `context`.
    fn calibrate(&mut self, _context: [TokenId; 2], _successors: &Successors) {}

    /// The rest of a draft's best path was not accepted.
    fn rejected(&mut self, _rejected: &Rejected<'_>) {}

    /// A draft model said something of what may follow the end of the sequence.
    fn told(&mut self, _told: &Told<'_>) {}

    /// Bytes held.
    fn bytes(&self) -> usize;
}

/// The part of a draft's best path that was not accepted.
#[derive(Clone, Copy, Debug)]
pub struct Rejected<'a> {
    /// What was drafted, from the first token that was not accepted on.
    pub drafted: &'a [TokenId],
    /// What the model would have said in their places, given what was drafted before.
    pub predicted: &'a [TokenId],
}
