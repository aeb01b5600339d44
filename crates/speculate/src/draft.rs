//! A draft: a tree of tokens that may follow, to be verified in one pass.
//!
//! **Invariant:** rows are in the order of their worth, and a row comes after its parent; so the first rows, however
//! many, are a tree, and whoever has room for `k` rows takes the first `k`.

use duet_types::TokenId;

/// The longest draft: with the last token before it, the length that saturates the papers' NPU (sd.npu §5.1). How much of
/// it is verified is the scheduler's to say.
pub const ROWS_MAX: usize = 31;
/// A row that is worth less never pays.
pub const WORTH_MIN: f32 = 0.02;

/// The rows of a pass that verifies a draft: the last token, then rows of the draft, which are counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyRows {
    /// The rows' tokens.
    pub tokens: Vec<TokenId>,
    /// Each row's parent; absent for a chain, where it is the row before.
    pub parents: Option<Vec<Option<usize>>>,
}

/// A tree of tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    rows: Vec<DraftRow>,
}

/// One token of a draft.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftRow {
    /// The token that this row would verify.
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

    /// The tokens that lead to a row, its own last.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn path(&self, row: usize) -> Vec<TokenId> {
        let rows = std::iter::successors(Some(row), |&row| self.rows[row].parent);
        let mut path: Vec<TokenId> = rows.map(|row| self.rows[row].token).collect();
        path.reverse();
        path
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

    /// The rows of a pass that verifies the first `drafted` rows after `last`.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn verify_rows(&self, last: TokenId, drafted: usize) -> VerifyRows {
        let rows = &self.rows[..drafted];
        let tokens = std::iter::once(last).chain(rows.iter().map(|row| row.token)).collect();
        let parents = rows.iter().map(|row| row.parent.map_or(0, |parent| parent + 1));
        let is_chain = parents.clone().eq(0..rows.len());
        let parents = (!is_chain).then(|| std::iter::once(None).chain(parents.map(Some)).collect());
        VerifyRows { tokens, parents }
    }

    /// The row of such a pass that computed `token` after its row `row`.
    #[must_use]
    pub fn follows(&self, row: usize, token: TokenId, drafted: usize) -> Option<usize> {
        let is_it = |drafted: &DraftRow| drafted.parent == row.checked_sub(1) && drafted.token == token;
        Some(self.rows[..drafted].iter().position(is_it)? + 1)
    }

    /// The rows of such a pass that are the draft's best path from the first that was not right on: `path` were right.
    #[must_use]
    pub fn rejected(&self, path: &[usize], drafted: usize) -> Vec<usize> {
        let first_child = |row: usize| {
            let is_child = |drafted: &DraftRow| drafted.parent == row.checked_sub(1);
            self.rows[..drafted].iter().position(is_child).map(|row| row + 1)
        };
        let last = path.last().copied().unwrap_or(0);
        std::iter::successors(first_child(last), |&row| first_child(row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two paths, `a b d` and `a c`.
    fn draft() -> Draft {
        let mut draft = Draft::default();
        for (token, parent) in [(1, None), (2, Some(0)), (3, Some(0)), (4, Some(1))] {
            draft.push(DraftRow { token: TokenId(token), parent, worth: 0.5 });
        }
        draft
    }

    #[test]
    fn a_tree_names_its_parents_and_a_chain_does_not() {
        let tokens = |count| (0..count).map(TokenId).collect::<Vec<_>>();
        let parents = Some(vec![None, Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(draft().verify_rows(TokenId(0), 4), VerifyRows { tokens: tokens(5), parents });
        assert_eq!(draft().verify_rows(TokenId(0), 2), VerifyRows { tokens: tokens(3), parents: None });
    }

    #[test]
    fn a_token_is_found_after_its_row_if_it_was_verified() {
        assert_eq!(draft().follows(0, TokenId(1), 4), Some(1));
        assert_eq!(draft().follows(1, TokenId(3), 4), Some(3));
        assert_eq!(draft().follows(1, TokenId(3), 2), None);
        assert_eq!(draft().follows(0, TokenId(3), 4), None);
    }

    #[test]
    fn the_best_path_is_rejected_from_where_it_was_wrong() {
        assert_eq!(draft().rejected(&[0], 4), [1, 2, 4]);
        assert_eq!(draft().rejected(&[0, 1], 3), [2]);
        assert_eq!(draft().rejected(&[0, 1, 3], 4), []);
    }
}
