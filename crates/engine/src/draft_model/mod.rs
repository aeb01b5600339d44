//! A draft model: a smaller model with the same tokens says what the large one may say next. (Leviathan et al. 2023)
//!
//! It is one drafter among others (`duet_speculate::draft_model`): what it says is proposed beside what the text, the
//! history and the large model itself suggest, and what is verified is the scheduler's to say. The
//! large model's tokens are chosen from its own logits alone: verifying is decoding, with a draft model too.
//!
//! *When it runs.* At the end of a pass, when the tokens of the pass are out, a *round* of drafting begins on the lanes that
//! the pass had (`round.rs`). Step by step the model is asked of the place ahead where its word is worth most, of all the
//! pass's sequences at once, until a step is worth less than its time (`worth.rs`). Where other drafters know what comes,
//! where many sequences share a pass, or where an answer is short, there is no step at all. What a text has that the model
//! has not read is read in pieces between the passes that follow, if that pays.
//!
//! *Who goes first.* Nobody waits for a round but who was in its pass: it ends between two nodes, which take a few
//! milliseconds at most, when a person's request is open that was not in it ([`People`](crate::people::People)). So background work
//! is not drafted by the model while people wait, and riders in a person's pass are never.
//!
//! *Its memory.* Keys and values lie in a pool of its own (`tables.rs`), an eighth of what keys and values have: full, what was
//! used longest ago goes; a sequence that finds no room has no such drafts.
//!
//! Invariants: whatever fails in here, a panic too, the pass is over and its tokens are out: nothing but drafts is lost. After a
//! panic the model drafts no more.

mod costs;
mod round;
mod tables;
mod tokens;
mod worth;

pub(crate) use round::PASS_ROWS;
pub(crate) use tokens::check_same_tokens;
pub(crate) use worth::Terms;

use crate::backend::Backend;
use crate::executors::Site;
use crate::sampling::Candidate;
use crate::speculation::Speculation;
use costs::Costs;
use duet_speculate::Said;
use duet_types::{Nanos, TenantId, TokenId};
use round::Round;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tables::Tables;

/// A draft model of an engine.
pub(crate) struct DraftModel<B: Backend> {
    backend: B,
    /// Tokens that the large model has.
    vocabulary: usize,
    tables: Mutex<Tables<B::Table>>,
    costs: Mutex<Costs>,
    is_usable: AtomicBool,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    passes: AtomicU64,
    read: AtomicU64,
    drafted: AtomicU64,
    nanos: AtomicU64,
    interrupted: AtomicU64,
    given_up: AtomicU64,
}

/// What a draft model did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelWork {
    /// Passes.
    pub(crate) passes: u64,
    /// Rows of texts that it caught up with.
    pub(crate) read: u64,
    /// Rows of tokens that may come.
    pub(crate) drafted: u64,
    /// The time of all rounds.
    pub(crate) time: Duration,
    /// Rounds that ended since a person waited.
    pub(crate) interrupted: u64,
    /// Tables that were given up for room.
    pub(crate) given_up: u64,
}

/// A sequence that a round may draft for.
pub(crate) struct Guest<'a> {
    pub(crate) tenant: TenantId,
    /// Its prompt and its answer so far.
    pub(crate) tokens: &'a [TokenId],
    /// Tokens of the answer.
    pub(crate) generated: usize,
    /// Tokens that may come.
    pub(crate) left: usize,
    /// Tokens that a draft may have.
    pub(crate) room: usize,
    pub(crate) speculation: &'a mut Speculation,
}

impl<B: Backend> DraftModel<B> {
    /// Over a backend of its own, for a model of so many tokens; its weights are this share of that model's.
    pub(crate) fn new(backend: B, vocabulary: usize, share: f64) -> Self {
        Self {
            backend,
            vocabulary,
            tables: Mutex::default(),
            costs: Mutex::new(Costs::new(share)),
            is_usable: AtomicBool::new(true),
            counters: Counters::default(),
        }
    }

    /// A round of drafting for the members of a pass that has ended, on its lanes, for as long as `goes_on`.
    pub(crate) fn round(
        &self,
        guests: &mut [Guest<'_>],
        terms: &Terms,
        site: Site<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Nanos {
        if guests.is_empty() || !self.is_usable.load(Ordering::Relaxed) {
            return Nanos::ZERO;
        }
        let begun = std::time::Instant::now();
        let run = catch_unwind(AssertUnwindSafe(|| Round::begin(self, guests, terms, site, goes_on).run()));
        if run.is_err() {
            tracing::error!("the draft model panicked and drafts no more");
            self.is_usable.store(false, Ordering::Relaxed);
            self.tables().clear();
        }
        let took = begun.elapsed();
        self.counters.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        let members = guests.len() as u32;
        for guest in &mut *guests {
            guest.speculation.model_took(took / members);
        }
        Nanos::from(took)
    }

    /// Whether all of these are tokens of its own.
    fn knows(&self, tokens: &[TokenId]) -> bool {
        tokens.iter().all(|token| (token.0 as usize) < self.backend.shape().vocabulary)
    }

    /// What it says, by the likeliest tokens: one that the large model does not have is none.
    pub(crate) fn said_of(&self, likeliest: &[Candidate]) -> Said {
        let likeliest = likeliest.iter().filter(|(token, _)| (*token as usize) < self.vocabulary);
        let likeliest: Vec<_> = likeliest.map(|&(token, logit)| (TokenId(token), logit)).collect();
        Said::of_logits(&likeliest)
    }

    /// What it did so far.
    pub(crate) fn work(&self) -> ModelWork {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { passes, read, drafted, nanos, interrupted, given_up } = &self.counters;
        ModelWork {
            passes: of(passes),
            read: of(read),
            drafted: of(drafted),
            time: Duration::from_nanos(of(nanos)),
            interrupted: of(interrupted),
            given_up: of(given_up),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables<B::Table>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn costs(&self) -> MutexGuard<'_, Costs> {
        self.costs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
