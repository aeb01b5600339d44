//! One request's tokens and the keys and values of its first ones.
//!
//! **Invariant:** a table holds the keys and values of the leading tokens of its sequence, as many as it is long.

use duet_model::kv::KvTable;
use duet_types::{FinishReason, TokenId, Tokens};

/// A request's tokens.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The prompt, then what was generated.
    tokens: Vec<TokenId>,
    prompt: usize,
    /// Length at which it ends.
    len_max: usize,
    kv: Kv,
}

/// Where its keys and values are.
#[derive(Debug)]
enum Kv {
    /// There are none.
    Absent,
    /// It has them, between passes.
    Own(KvTable),
    /// In the pass that computes for it.
    InPass,
    /// Kept after its end.
    Kept(KvTable),
}

impl Sequence {
    /// A request of which nothing is computed.
    pub(super) fn new(prompt: Vec<TokenId>, output: Tokens) -> Self {
        Self { prompt: prompt.len(), len_max: prompt.len() + output.as_usize(), tokens: prompt, kv: Kv::Absent }
    }

    /// Its prompt.
    pub(super) fn prompt(&self) -> &[TokenId] {
        &self.tokens[..self.prompt]
    }

    /// What was generated.
    pub(super) fn generated(&self) -> &[TokenId] {
        &self.tokens[self.prompt..]
    }

    /// Tokens that it has at most.
    pub(super) fn len_max(&self) -> usize {
        self.len_max
    }

    /// The tokens that kept keys and values are of; none if nothing is kept.
    pub(super) fn kept(&self) -> &[TokenId] {
        match &self.kv {
            Kv::Kept(table) => &self.tokens[..table.len().as_usize()],
            Kv::Absent | Kv::Own(_) | Kv::InPass => &[],
        }
    }

    /// The kept table, to be forked.
    pub(super) fn kept_table(&self) -> Option<&KvTable> {
        match &self.kv {
            Kv::Kept(table) => Some(table),
            Kv::Absent | Kv::Own(_) | Kv::InPass => None,
        }
    }

    /// Takes the kept table away.
    pub(super) fn take_kept(&mut self) -> Option<KvTable> {
        match std::mem::replace(&mut self.kv, Kv::Absent) {
            Kv::Kept(table) => Some(table),
            other => {
                self.kv = other;
                None
            }
        }
    }

    /// The table that it has, between passes.
    pub(super) fn table(&self) -> Option<&KvTable> {
        match &self.kv {
            Kv::Own(table) => Some(table),
            Kv::Absent | Kv::InPass | Kv::Kept(_) => None,
        }
    }

    /// Gives it a table.
    pub(super) fn attach(&mut self, table: KvTable) {
        self.kv = Kv::Own(table);
    }

    /// Takes its table for a pass, with the tokens of the rows `start..end`.
    pub(super) fn take_rows(&mut self, start: Tokens, end: Tokens) -> Option<(KvTable, Vec<TokenId>)> {
        let rows = self.tokens.get(start.as_usize()..end.as_usize())?.to_vec();
        match std::mem::replace(&mut self.kv, Kv::InPass) {
            Kv::Own(table) if table.len() == start => Some((table, rows)),
            other => {
                self.kv = other;
                None
            }
        }
    }

    /// Its tables are of no use any more.
    pub(super) fn forget(&mut self) {
        self.kv = Kv::Absent;
    }

    /// It ended: keeps what it has.
    pub(super) fn keep(&mut self) {
        self.kv = match std::mem::replace(&mut self.kv, Kv::Absent) {
            Kv::Own(table) if !table.is_empty() => Kv::Kept(table),
            _ => Kv::Absent,
        };
    }

    /// Adds a token. Returns why it is the last, if it is.
    pub(super) fn push(&mut self, token: TokenId, ends_turn: bool) -> Option<FinishReason> {
        self.tokens.push(token);
        match () {
            () if ends_turn => Some(FinishReason::Stop),
            () if self.tokens.len() >= self.len_max => Some(FinishReason::Length),
            () => None,
        }
    }
}
