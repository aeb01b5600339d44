//! Stop strings: texts that end an answer and are not part of it.
//!
//! Text that might be the beginning of a stop string is held back until it is certain, so a client never sees a part
//! of one. What is held is always shorter than the longest stop string.

/// Looks for stop strings in a growing text.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopMatcher {
    stops: Vec<String>,
    held: String,
}

/// What came of more text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Matched {
    /// No stop string; this much is certain now.
    Nothing(String),
    /// A stop string came; this is the text before it, and the last.
    Stop(String),
}

impl StopMatcher {
    /// None of `stops` may be empty.
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new() }
    }

    /// Takes more text.
    pub(crate) fn push(&mut self, text: String) -> Matched {
        if self.stops.is_empty() {
            return Matched::Nothing(text);
        }
        self.held.push_str(&text);
        if let Some(start) = first_stop(&self.held, &self.stops) {
            self.held.truncate(start);
            return Matched::Stop(self.finish());
        }
        let certain = self.held.len() - self.longest_beginning();
        let rest = self.held.split_off(certain);
        Matched::Nothing(std::mem::replace(&mut self.held, rest))
    }

    /// What was held back: no stop string will come any more.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Length of the longest end of the held text with which a stop string begins.
    fn longest_beginning(&self) -> usize {
        let held = self.held.as_bytes();
        // Bytes suffice: a stop string begins with a whole character, so where one begins the held text can be cut.
        let longest = |stop: &String| {
            let most = held.len().min(stop.len() - 1);
            (1..=most).rev().find(|&length| held.ends_with(&stop.as_bytes()[..length])).unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

/// Where the stop string begins that is complete first, so that it does not matter how the text was cut in pieces; of
/// several complete at once, the longest.
fn first_stop(text: &str, stops: &[String]) -> Option<usize> {
    let found = stops.iter().filter_map(|stop| text.find(stop.as_str()).map(|start| (start + stop.len(), start)));
    found.min().map(|(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pushes the pieces; shows what each released, `|` between them, and `!` where a stop string ended it.
    fn check(stops: &[&str], pieces: &[&str], expected: &str) {
        let mut matcher = StopMatcher::new(stops.iter().map(|&stop| stop.to_owned()).collect());
        let mut released = String::new();
        for &piece in pieces {
            match matcher.push(piece.to_owned()) {
                Matched::Nothing(text) => released += &format!("{text}|"),
                Matched::Stop(text) => {
                    assert_eq!(released + &text + "!", expected);
                    return;
                }
            }
        }
        released += &matcher.finish();
        assert_eq!(released, expected);
    }

    #[test]
    fn text_passes_and_possible_beginnings_are_held() {
        check(&[], &["a", "b"], "a|b|");
        check(&["END"], &["an E", "N", "d"], "an ||ENd|");
        check(&["END"], &["an E", "N"], "an ||EN");
    }

    #[test]
    fn a_stop_string_ends_the_text_before_it() {
        check(&["END"], &["an E", "ND more"], "an |!");
        check(&["END"], &["all at once END"], "all at once !");
        check(&["aab"], &["aaa", "b"], "a|!");
    }

    #[test]
    fn of_several_the_first_complete_counts() {
        check(&["b c", "a"], &["xx a b c"], "xx !");
        check(&["abc", "b"], &["xabc"], "xa!");
        check(&["b", "ab"], &["xab"], "x!");
        check(&["\n\n", "User:"], &["hi\nUse", "r: x"], "hi\n|!");
    }

    #[test]
    fn characters_are_never_cut() {
        check(&["für"], &["hallo f", "ü", "x"], "hallo ||füx|");
        check(&["é"], &["è"], "è|");
    }

    proptest! {
        /// However the text is cut in pieces, what comes out is the text before the stop string that is complete first.
        #[test]
        fn pieces_do_not_matter(
            text in "[abé]{0,30}",
            cuts in prop::collection::vec(0..60_usize, 0..8),
            stops in prop::collection::vec("[abé]{1,4}", 0..3),
        ) {
            let end = first_stop(&text, &stops);
            let mut matcher = StopMatcher::new(stops);
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| text.is_char_boundary(cut)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut released = String::new();
            let mut stopped = false;
            for window in cuts.windows(2) {
                match matcher.push(text[window[0]..window[1]].to_owned()) {
                    Matched::Nothing(text) => released += &text,
                    Matched::Stop(text) => {
                        released += &text;
                        stopped = true;
                        break;
                    }
                }
            }
            released += &matcher.finish();
            prop_assert_eq!(stopped, end.is_some());
            prop_assert_eq!(released, &text[..end.unwrap_or(text.len())]);
        }
    }
}
