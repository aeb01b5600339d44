//! Reasoning apart from the answer, as text comes.
//!
//! Reasoning stands before everything else but whitespace; a mark later on is text like any other. Of what a mark
//! stands between, whitespace next to it is dropped; text of a turn without reasoning is unchanged. Text goes through
//! character by character, so how it is cut into pushes changes nothing. Turns in channels are another matter
//! (`channels.rs`).

use crate::channels::Channels;
use crate::part::{Part, Place, emit};
use crate::reasoning::{Begins, ReasoningFormat};

/// Splits a turn as it comes.
#[derive(Clone, Debug)]
pub struct ReasoningSplit {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Nothing but whitespace, and what may become the opening mark.
    Start { format: ReasoningFormat, spaces: String, mark: String },
    /// In the reasoning. `spaces` and `mark` are held: both are dropped if the closing mark comes.
    Inside { format: ReasoningFormat, said: Said, spaces: String, mark: String },
    /// Whitespace after the closing mark.
    Closed,
    /// Everything is text.
    After,
    /// Several messages, which say what they are.
    Channels(Channels),
}

/// Whether reasoning has come already: whitespace before it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Something,
}

impl ReasoningSplit {
    /// A split of a new turn; without a format everything is text.
    #[must_use]
    pub fn new(format: Option<ReasoningFormat>, begins: Begins) -> Self {
        let state = match (format, begins) {
            (None, _) => State::After,
            (Some(ReasoningFormat::Channel), Begins::Outside) => State::Channels(Channels::outside()),
            (Some(ReasoningFormat::Channel), Begins::Inside) => State::Channels(Channels::inside()),
            (Some(format), Begins::Outside) => State::Start { format, spaces: String::new(), mark: String::new() },
            (Some(format), Begins::Inside) => inside(format),
        };
        Self { state }
    }

    /// Where the turn is.
    #[must_use]
    pub fn place(&self) -> Place {
        match &self.state {
            State::Start { .. } => Place::Beginning,
            State::Inside { mark, .. } if mark.is_empty() => Place::Reasoning,
            State::Inside { .. } => Place::Closing,
            State::Closed | State::After => Place::Answer,
            State::Channels(channels) => channels.place(),
        }
    }

    /// The parts that `text` completes.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        for c in text.chars() {
            self.step(c, &mut parts);
        }
        parts
    }

    /// What was held, when nothing more comes.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        match std::mem::replace(&mut self.state, State::After) {
            State::Start { spaces, mark, .. } => emit(&mut parts, Part::Text(spaces + &mark)),
            // A mark that was begun and not ended is what the model said; whitespace before the end is not.
            State::Inside { spaces, mark, .. } if !mark.is_empty() => {
                emit(&mut parts, Part::Reasoning(spaces + &mark));
            }
            State::Inside { .. } | State::Closed | State::After => {}
            State::Channels(mut channels) => channels.finish(&mut parts),
        }
        parts
    }

    fn step(&mut self, c: char, parts: &mut Vec<Part>) {
        match &mut self.state {
            State::After => emit(parts, Part::Text(c.into())),
            State::Channels(channels) => channels.step(c, parts),
            State::Closed if c.is_whitespace() => {}
            State::Closed => {
                self.state = State::After;
                emit(parts, Part::Text(c.into()));
            }
            State::Start { spaces, mark, .. } if mark.is_empty() && c.is_whitespace() => spaces.push(c),
            State::Start { format, spaces, mark } => {
                mark.push(c);
                if mark.as_str() == format.opening() {
                    self.state = inside(*format);
                } else if !format.opening().starts_with(mark.as_str()) {
                    let text = std::mem::take(spaces) + mark.as_str();
                    self.state = State::After;
                    emit(parts, Part::Text(text));
                }
            }
            State::Inside { format, said, spaces, mark } => {
                mark.push(c);
                if mark.as_str() == format.closing() {
                    self.state = State::Closed;
                } else {
                    let thought = thought(format.closing(), said, spaces, mark);
                    emit(parts, Part::Reasoning(thought));
                }
            }
        }
    }
}

fn inside(format: ReasoningFormat) -> State {
    State::Inside { format, said: Said::Nothing, spaces: String::new(), mark: String::new() }
}

/// Takes what cannot become the closing mark out of `mark`, and returns what of it is sure to be reasoning.
fn thought(closing: &str, said: &mut Said, spaces: &mut String, mark: &mut String) -> String {
    let mut thought = String::new();
    while !closing.starts_with(mark.as_str()) {
        let first = mark.remove(0);
        if !first.is_whitespace() {
            thought.push_str(&std::mem::take(spaces));
            thought.push(first);
            *said = Said::Something;
        } else if *said == Said::Something {
            spaces.push(first);
        }
    }
    thought
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(format: ReasoningFormat, begins: Begins, texts: &[&str]) -> Vec<Part> {
        let mut split = ReasoningSplit::new(Some(format), begins);
        let mut parts = Vec::new();
        for text in texts {
            split.push(text).into_iter().for_each(|part| emit(&mut parts, part));
        }
        split.finish().into_iter().for_each(|part| emit(&mut parts, part));
        parts
    }

    fn reasoned(thought: &str, said: &str) -> Vec<Part> {
        vec![Part::Reasoning(thought.into()), Part::Text(said.into())]
    }

    #[test]
    fn reasoning_is_split_off() {
        use Begins::*;
        use ReasoningFormat::*;
        let text = "<think>\nOne <b>two</b>.\n\nThree.\n</think>\n\nFour <think>";
        let expected = reasoned("One <b>two</b>.\n\nThree.", "Four <think>");
        assert_eq!(all(Think, Outside, &[text]), expected);
        assert_eq!(all(Think, Inside, &[&text["<think>".len()..]]), expected);
        assert_eq!(all(BracketThink, Outside, &["[THINK]a[/THINK]b"]), reasoned("a", "b"));
        assert_eq!(all(Reasoning, Outside, &["<reasoning>a</reasoning>b"]), reasoned("a", "b"));
        let text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b";
        assert_eq!(all(Channel, Outside, &[text]), reasoned("a", "b"));
        assert_eq!(all(Channel, Inside, &[&text["<|channel|>analysis<|message|>".len()..]]), reasoned("a", "b"));
    }

    #[test]
    fn messages_are_what_their_headers_say() {
        let all = |text: &str| all(ReasoningFormat::Channel, Begins::Outside, &[text]);
        let call = |written: &str| {
            let arguments = written.rsplit("<|message|>").next().unwrap().to_owned();
            Part::Call { name: "f".into(), arguments, written: written.into() }
        };
        let spoken = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}";
        assert_eq!(all(&format!("{spoken}<|call|>")), [call(spoken)]);
        assert_eq!(all(spoken), [call(spoken)], "the end of the turn ends it");
        let told = " to=functions.f<|channel|>commentary json<|message|>{}";
        assert_eq!(all(told), [call(told)]);
        let turn = format!(
            "<|channel|>analysis<|message|>a <b<|end|><|start|>assistant<|channel|>commentary<|message|>See: <|end|><|start|>assistant{told}"
        );
        let before = [Part::Reasoning("a <b".into()), Part::Text("See: ".into())];
        let after = call(&format!("<|start|>assistant{told}"));
        assert_eq!(all(&turn), [&before[..], &[after]].concat());
        assert_eq!(all("<|channel|>final<|message|>b<|return|>"), [Part::Text("b".into())]);
        for text in ["Hello", "total", "<b>"] {
            assert_eq!(all(text), [Part::Text(text.into())], "without a header it is said");
        }
        assert_eq!(all("<|channel|>ana"), []);
    }

    #[test]
    fn an_end_inside_is_no_error() {
        assert_eq!(all(ReasoningFormat::Think, Begins::Inside, &["a </thi"]), [Part::Reasoning("a </thi".into())]);
        assert_eq!(all(ReasoningFormat::Think, Begins::Outside, &["\n<thi"]), [Part::Text("\n<thi".into())]);
        assert_eq!(all(ReasoningFormat::Think, Begins::Outside, &["<think>\n\n</think>\n\n"]), []);
    }

    #[test]
    fn the_place_is_where_the_marks_say() {
        let place = |begins, text: &str| {
            let mut split = ReasoningSplit::new(Some(ReasoningFormat::Think), begins);
            split.push(text);
            split.place()
        };
        for (text, expected) in [
            ("", Place::Beginning),
            ("\n<thi", Place::Beginning),
            ("\n<think>", Place::Reasoning),
            ("<think>a <b", Place::Reasoning),
            ("<think>a </th", Place::Closing),
            ("<think>a</think>", Place::Answer),
            ("<think>a</think>\n<think>", Place::Answer),
            ("a", Place::Answer),
        ] {
            assert_eq!(place(Begins::Outside, text), expected, "{text}");
        }
        assert_eq!(place(Begins::Inside, ""), Place::Reasoning);
        let place = |text: &str| {
            let mut split = ReasoningSplit::new(Some(ReasoningFormat::Channel), Begins::Outside);
            split.push(text);
            split.place()
        };
        let closed = "<|channel|>analysis<|message|>a<|end|>";
        for (text, expected) in [
            ("<|chan".to_owned(), Place::Beginning),
            ("<|channel|>analysis<|message|>a".to_owned(), Place::Reasoning),
            ("<|channel|>analysis<|message|>a<|e".to_owned(), Place::Closing),
            (format!("{closed}<|start|>assistant<|channel|>fi"), Place::Closing),
            (format!("{closed}<|start|>assistant<|channel|>final<|message|>"), Place::Answer),
        ] {
            assert_eq!(place(&text), expected, "{text}");
        }
        assert_eq!(ReasoningSplit::new(None, Begins::Inside).place(), Place::Answer);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(pieces in prop::collection::vec("(<think>|</think>|</th|<thi|[a<>/ \n]|\\PC){0,4}", 0..8)) {
            for begins in [Begins::Outside, Begins::Inside] {
                let whole = pieces.concat();
                let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
                prop_assert_eq!(all(ReasoningFormat::Think, begins, &pieces), all(ReasoningFormat::Think, begins, &[&whole]));
            }
        }

        #[test]
        fn cuts_change_nothing_in_channels(
            pieces in prop::collection::vec(
                "(<\\|channel\\|>|<\\|message\\|>|<\\|end\\|>|<\\|start\\|>|analysis|to=functions.f|<\\|e|[a< ]){0,4}",
                0..8,
            ),
        ) {
            let whole = pieces.concat();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            for begins in [Begins::Outside, Begins::Inside] {
                prop_assert_eq!(all(ReasoningFormat::Channel, begins, &pieces), all(ReasoningFormat::Channel, begins, &[&whole]));
            }
        }

        #[test]
        fn text_without_reasoning_is_unchanged(text in "\\PC{0,40}") {
            prop_assume!(!text.contains("<think>"));
            let parts = all(ReasoningFormat::Think, Begins::Outside, &[&text]);
            prop_assert_eq!(parts, if text.is_empty() { vec![] } else { vec![Part::Text(text)] });
        }
    }
}
