//! Stop strings: texts that end an answer and are not part of it.
//!
//! Text that might be the beginning of a stop string is held back until it is certain, so a client never sees a part
//! of one. What is held is always shorter than the longest stop string.

/// Looks for stop strings in a growing text. Each byte of the text costs a step or two for each stop string, however
/// long these are.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopMatcher {
    stops: Vec<StopString>,
    held: String,
    /// Which of `stops` ended the text, once one has.
    ended_by: Option<usize>,
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
        Self { stops: stops.into_iter().map(StopString::new).collect(), held: String::new(), ended_by: None }
    }

    /// Takes more text.
    pub(crate) fn push(&mut self, text: String) -> Matched {
        if self.stops.is_empty() {
            return Matched::Nothing(text);
        }
        let before = self.held.len();
        self.held.push_str(&text);
        for (at, byte) in text.bytes().enumerate() {
            if let Some((len, which)) = self.step(byte) {
                self.ended_by = Some(which);
                self.held.truncate(before + at + 1 - len);
                return Matched::Stop(self.finish());
            }
        }
        // Bytes suffice: a stop string begins with a whole character, so where one begins the held text can be cut.
        let beginning = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - beginning);
        Matched::Nothing(std::mem::replace(&mut self.held, rest))
    }

    /// What was held back: no stop string will come any more.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Which of the stop strings ended the text, by its place among them.
    pub(crate) fn ended_by(&self) -> Option<usize> {
        self.ended_by
    }

    /// Takes one byte. The length and the place of the longest stop string that it completes, if it completes any: the one that is
    /// complete first ends the text, so that it does not matter how the text was cut in pieces.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        let complete = |(which, stop): (usize, &mut StopString)| stop.step(byte).then_some((stop.text.len(), which));
        self.stops.iter_mut().enumerate().filter_map(complete).max()
    }
}

/// One stop string, and how much of it the text ends with. (Knuth, Morris and Pratt 1977)
#[derive(Clone, Debug)]
struct StopString {
    text: Box<[u8]>,
    /// For each beginning of the string, by its length, how long the next shorter beginning is that it ends with.
    shorter: Box<[usize]>,
    /// Length of the longest beginning that the text ends with; below the string's own.
    matched: usize,
}

impl StopString {
    fn new(text: String) -> Self {
        let text = text.into_bytes().into_boxed_slice();
        let mut shorter = vec![0; text.len() + 1].into_boxed_slice();
        let mut len = 0;
        for at in 1..text.len() {
            while len > 0 && text[at] != text[len] {
                len = shorter[len];
            }
            len += usize::from(text[at] == text[len]);
            shorter[at + 1] = len;
        }
        Self { text, shorter, matched: 0 }
    }

    /// Takes one byte; whether it completes the string.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.text[self.matched] != byte {
            self.matched = self.shorter[self.matched];
        }
        self.matched += usize::from(self.text[self.matched] == byte);
        let is_complete = self.matched == self.text.len();
        if is_complete {
            self.matched = self.shorter[self.matched];
        }
        is_complete
    }
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
    fn which_one_ended_it_is_known() {
        let mut matcher = StopMatcher::new(vec!["x".to_owned(), "b".to_owned(), "ab".to_owned()]);
        assert_eq!(matcher.push("za".to_owned()), Matched::Nothing("z".to_owned()));
        assert_eq!(matcher.ended_by(), None);
        assert_eq!(matcher.push("bx".to_owned()), Matched::Stop(String::new()));
        assert_eq!(matcher.ended_by(), Some(2), "the longest of those that are complete first");
    }

    /// The reference: where the stop string begins that is complete first; of several complete at once, the longest.
    fn first_stop(text: &str, stops: &[String]) -> Option<usize> {
        let found = stops.iter().filter_map(|stop| text.find(stop.as_str()).map(|start| (start + stop.len(), start)));
        found.min().map(|(_, start)| start)
    }

    /// Every place where a long stop string almost fits would be compared with all of it, byte by byte.
    #[test]
    fn a_long_stop_string_that_almost_fits_everywhere_costs_a_step_or_two_a_byte() {
        let stop = "a".repeat(1000) + "b";
        let mut matcher = StopMatcher::new(vec![stop; 16]);
        let mut released = 0;
        for _ in 0..100_000 {
            match matcher.push("a".to_owned()) {
                Matched::Nothing(text) => released += text.len(),
                Matched::Stop(_) => panic!("there is no b"),
            }
        }
        assert_eq!(released, 100_000 - 1000);
        assert_eq!(matcher.finish().len(), 1000);
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
