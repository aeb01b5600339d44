//! A draft: a tree of tokens that may follow, to be verified in one pass.
//!
//! **Invariant:** rows are in the order of their worth, and a row comes after its parent; so the first rows, however
//! many, are a tree, and whoever has room for `k` rows takes the first `k`.

use duet_types::TokenId;

/// A tree of tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    rows: Vec<DraftRow>,
}

/// One token of a draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftRow {
    /// Which.
    pub token: TokenId,
    /// The row that it follows; absent for the first token of a path.
    pub parent: Option<usize>,
    /// The chance that it and all before it on its path are right: the tokens that it is worth.
    pub worth: f32,
}

impl Draft {
    /// Adds a row.
    ///
    /// # Panics
    /// If it does not come after its parent.
    pub fn push(&mut self, row: DraftRow) {
        assert!(row.parent.is_none_or(|parent| parent < self.rows.len()), "a row comes after its parent");
        self.rows.push(row);
    }

    /// Its rows, worthiest first.
    #[must_use]
    pub fn rows(&self) -> &[DraftRow] {
        &self.rows
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is drafted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Keeps the first `len` rows.
    pub fn truncate(&mut self, len: usize) {
        self.rows.truncate(len);
    }

    /// The row of `token` after `parent`.
    #[must_use]
    pub fn child(&self, parent: Option<usize>, token: TokenId) -> Option<usize> {
        self.rows.iter().position(|row| row.parent == parent && row.token == token)
    }

    /// The first child of `parent`: the worthiest.
    #[must_use]
    pub fn first_child(&self, parent: Option<usize>) -> Option<usize> {
        self.rows.iter().position(|row| row.parent == parent)
    }
}
