//! What choosing a token needs of a row of logits. A device that has computed them brings no more than that back.

/// How much of a row is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// So many of the likeliest tokens.
    Best(usize),
    /// All of it.
    All,
}

impl Wanted {
    /// What two rows need together, of which as much is brought of one as of the other.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Best(one), Self::Best(another)) => Self::Best(one.max(another)),
            _ => Self::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Wanted::{All, Best};

    #[test]
    fn one_row_that_needs_all_makes_it_all() {
        assert_eq!([Best(1).and(Best(4)), Best(4).and(All), All.and(Best(4))], [Best(4), All, All]);
    }
}
