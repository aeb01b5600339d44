//! How much KV memory there is, in pages, and how many a sequence takes.

use duet_types::{Bytes, Tokens};

/// KV memory, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryLimits {
    /// Positions in a page.
    pub page: Tokens,
    /// Pages there are.
    pub pages: usize,
    /// Pages that may be on disk; 0 if nothing can be spilled.
    pub disk_pages: usize,
    /// What is kept of a sequence beside its pages.
    #[cfg_attr(feature = "serde", serde(default))]
    pub states: StatePages,
    /// What a sequence leaves behind its windows, if it does not fit whole.
    #[cfg_attr(feature = "serde", serde(default))]
    pub windows: WindowPages,
}

/// What a sequence of a model with recurrent layers takes beside the pages of its positions: a state at its end, and one at
/// each border so far from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StatePages {
    /// Pages that a state counts as.
    pub pages: usize,
    /// Positions from one that is kept to the next.
    pub every: Tokens,
}

impl StatePages {
    /// Of models without.
    pub const NONE: Self = Self { pages: 0, every: Tokens(u32::MAX) };
}

impl Default for StatePages {
    fn default() -> Self {
        Self::NONE
    }
}

/// What a sequence takes that does not fit whole, where some layers see no more than a window: behind the longest one its
/// pages keep the other layers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowPages {
    /// Positions at its end whose pages are kept whole: the longest window, the rows of a pass, and what is left of pages.
    pub tail: Tokens,
    /// Bytes of a page, of the layers that see all positions.
    pub lasting: Bytes,
    /// Bytes of a whole page; no more than those if nothing passes.
    pub whole: Bytes,
}

impl WindowPages {
    /// Of models without, and where keys and values are kept whole.
    pub const NONE: Self = Self { tail: Tokens::ZERO, lasting: Bytes(1), whole: Bytes(1) };

    /// Pages that so many count as that have let windows pass.
    fn count_as(&self, pages: usize) -> usize {
        let (pages, lasting, whole) = (pages as u128, u128::from(self.lasting.0), u128::from(self.whole.0.max(1)));
        usize::try_from((pages * lasting).div_ceil(whole)).unwrap_or(usize::MAX)
    }
}

impl Default for WindowPages {
    fn default() -> Self {
        Self::NONE
    }
}

impl MemoryLimits {
    /// Memory that never runs out.
    pub const UNBOUNDED: Self = Self {
        page: Tokens(64),
        pages: usize::MAX / 4,
        disk_pages: 0,
        states: StatePages::NONE,
        windows: WindowPages::NONE,
    };

    /// Pages that a sequence of so many positions takes, if it was to have no more when it began.
    #[must_use]
    pub fn pages_of(&self, positions: Tokens) -> usize {
        self.pages_for(positions, Tokens::ZERO)
    }

    /// Pages that a sequence of so many positions takes that was to have `begun` when it began: if one or the other does not fit
    /// whole, windows pass.
    #[must_use]
    pub fn pages_for(&self, positions: Tokens, begun: Tokens) -> usize {
        if self.fits_whole(positions.max(begun)) { self.whole(positions) } else { self.behind_windows(positions) }
    }

    /// Whether there are pages for all layers of a sequence of so many positions; or it makes no difference.
    #[must_use]
    pub fn fits_whole(&self, positions: Tokens) -> bool {
        self.windows.lasting >= self.windows.whole || self.whole(positions) <= self.pages
    }

    /// The most positions that a sequence may have for which all pages are there.
    #[must_use]
    pub fn longest(&self) -> Tokens {
        let whole = self.positions_of(self.pages);
        if whole.0 == u32::MAX || self.fits_whole(whole + Tokens(1)) {
            return whole;
        }
        let (mut fits, mut too_many) = (whole.0, u32::MAX);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            let middle_fits = self.pages_of(Tokens(middle)) <= self.pages;
            (fits, too_many) = if middle_fits { (middle, too_many) } else { (fits, middle) };
        }
        Tokens(fits)
    }

    /// A sequence that has a position more never takes less: what is taken for the next one is not given back before.
    fn behind_windows(&self, positions: Tokens) -> usize {
        let [pages, tail] = [positions, self.windows.tail].map(|of| of.as_usize().div_ceil(self.page.as_usize()));
        let passed = pages.saturating_sub(tail);
        pages - passed + self.windows.count_as(passed)
    }

    /// All layers of all positions.
    fn whole(&self, positions: Tokens) -> usize {
        let pages = positions.as_usize().div_ceil(self.page.as_usize());
        if positions == Tokens::ZERO {
            return pages;
        }
        pages + self.states.pages * (1 + positions.as_usize() / self.states.every.as_usize())
    }

    /// The most positions that a sequence of so many pages may have that is kept whole.
    #[must_use]
    pub fn positions_of(&self, pages: usize) -> Tokens {
        let StatePages { pages: state, every } = self.states;
        let (page, every) = (self.page.as_usize(), every.as_usize());
        let most = |positions: usize| Tokens(u32::try_from(positions).unwrap_or(u32::MAX));
        if state == 0 {
            return most(pages.saturating_mul(page));
        }
        let left = pages.saturating_sub(state);
        let whole = every.div_ceil(page) + state;
        // The last position before a border takes no state more.
        let rest = (left % whole).saturating_mul(page).min(every - 1);
        most((left / whole).saturating_mul(every).saturating_add(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_count_as_pages() {
        let states = StatePages { pages: 3, every: Tokens(128) };
        let limits = MemoryLimits { page: Tokens(64), pages: 100, disk_pages: 0, states, windows: WindowPages::NONE };
        let pages = [0, 1, 64, 65, 127, 128, 129, 256].map(|positions| limits.pages_of(Tokens(positions)));
        assert_eq!(pages, [0, 4, 4, 5, 5, 8, 9, 13]);
        for limits in [limits, MemoryLimits { states: StatePages::NONE, ..limits }] {
            for pages in 1..60 {
                let most = limits.positions_of(pages);
                assert!(most == Tokens::ZERO || limits.pages_of(most) <= pages, "{pages} pages hold {most}");
                assert!(limits.pages_of(most + Tokens(1)) > pages, "{pages} pages hold more than {most}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_whole_lets_windows_pass() {
        // A sixth of a page lasts.
        let windows = WindowPages { tail: Tokens(200), lasting: Bytes(100), whole: Bytes(600) };
        let limits = MemoryLimits { page: Tokens(64), pages: 20, windows, ..MemoryLimits::UNBOUNDED };
        let pages = [0, 64, 1280, 1281, 2000].map(|positions| limits.pages_of(Tokens(positions)));
        // 1281: 21 pages, of which all but 4 have passed and count as 3.
        assert_eq!(pages, [0, 1, 20, 7, 9]);
        assert_eq!(limits.pages_for(Tokens(640), Tokens(2000)), 4 + 1);
        assert_eq!(limits.pages_for(Tokens(640), Tokens(1280)), 10);
        let longest = limits.longest();
        assert!(limits.pages_of(longest) <= 20 && limits.pages_of(longest + Tokens(64)) > 20, "{longest}");
        assert!(longest > Tokens(6000));
        // Without windows it is as many as there are pages for.
        assert_eq!(MemoryLimits { windows: WindowPages::NONE, ..limits }.longest(), Tokens(1280));
        assert_eq!(MemoryLimits::UNBOUNDED.longest(), Tokens(u32::MAX));
    }

    #[test]
    fn pages_grow_with_positions() {
        for lasting in [0, 1, 50, 99] {
            let windows = WindowPages { tail: Tokens(90), lasting: Bytes(lasting), whole: Bytes(100) };
            let limits = MemoryLimits { page: Tokens(10), pages: 15, windows, ..MemoryLimits::UNBOUNDED };
            let pages: Vec<_> = (0..2000).map(|positions| limits.pages_for(Tokens(positions), Tokens(400))).collect();
            assert!(pages.is_sorted());
            assert!((0..2000).all(|positions| limits.pages_of(Tokens(positions)) <= limits.whole(Tokens(positions))));
        }
    }
}
