//! The calls of an answer, as they come. Small models repeat themselves, and nobody wants the same call twice in a turn: one
//! that is so far the same as an earlier one is held until it differs, or is dropped at its end.

use super::said::{Said, Whole};
use super::writer::Call;

/// The calls so far.
#[derive(Debug, Default)]
pub(super) struct Calling {
    /// Names and arguments of those that came to their end.
    made: Vec<(String, String)>,
    open: Option<Open>,
    /// Those that were told.
    told: usize,
}

/// A call whose end has not come.
#[derive(Debug)]
struct Open {
    call: Call,
    is_told: bool,
}

impl Calling {
    /// Whether there is a whole one.
    pub(super) fn are_made(&self) -> bool {
        !self.made.is_empty()
    }

    /// A call begins.
    pub(super) fn begin(&mut self, id: String, name: String, said: &mut Vec<Said>) {
        let call = Call { index: self.told, id, name, arguments: String::new() };
        self.open = Some(Open { call, is_told: false });
        self.goes_on("", said);
    }

    /// More of its arguments came.
    pub(super) fn goes_on(&mut self, fragment: &str, said: &mut Vec<Said>) {
        let Some(Open { call, is_told }) = &mut self.open else { return };
        call.arguments += fragment;
        if *is_told {
            said.push(Said::Arguments { index: call.index, fragment: fragment.to_owned() });
        } else if !repeats(&self.made, call) {
            self.tell(said);
        }
    }

    /// It has ended.
    pub(super) fn end(&mut self, whole: Whole, said: &mut Vec<Said>) {
        let is_new = self.open.as_ref().is_some_and(|Open { call, .. }| {
            !self.made.iter().any(|(name, arguments)| (name, arguments) == (&call.name, &call.arguments))
        });
        if is_new && whole == Whole::Yes {
            self.tell(said);
        }
        let Some(Open { call, is_told: true }) = self.open.take() else { return };
        said.push(Said::CallEnded { index: call.index, whole });
        if whole == Whole::Yes {
            self.made.push((call.name, call.arguments));
        }
    }

    /// Tells what was held of it.
    fn tell(&mut self, said: &mut Vec<Said>) {
        let Some(Open { call, is_told: is_told @ false }) = &mut self.open else { return };
        *is_told = true;
        self.told += 1;
        said.push(Said::CallBegun(Call { arguments: String::new(), ..call.clone() }));
        if !call.arguments.is_empty() {
            said.push(Said::Arguments { index: call.index, fragment: call.arguments.clone() });
        }
    }
}

/// Whether a call is so far the same as one of these.
fn repeats(made: &[(String, String)], call: &Call) -> bool {
    made.iter().any(|(name, arguments)| *name == call.name && arguments.starts_with(&call.arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line for each piece.
    fn said(calls: &[(&str, &[&str], Whole)]) -> Vec<String> {
        let (mut calling, mut said) = (Calling::default(), Vec::new());
        for (name, fragments, whole) in calls {
            calling.begin("id".to_owned(), (*name).to_owned(), &mut said);
            fragments.iter().for_each(|fragment| calling.goes_on(fragment, &mut said));
            calling.end(*whole, &mut said);
        }
        let line = |said: Said| match said {
            Said::CallBegun(call) => format!("{} {}", call.index, call.name),
            Said::Arguments { index, fragment } => format!("{index} {fragment}"),
            Said::CallEnded { index, whole } => format!("{index} {whole:?}"),
            other => format!("{other:?}"),
        };
        said.into_iter().map(line).collect()
    }

    #[test]
    fn pieces_come_as_they_are() {
        assert_eq!(said(&[("f", &["{\"a\":", "1}"], Whole::Yes)]), ["0 f", "0 {\"a\":", "0 1}", "0 Yes"]);
        assert_eq!(said(&[("f", &["{\"a\":"], Whole::No)]), ["0 f", "0 {\"a\":", "0 No"]);
    }

    #[test]
    fn what_repeats_is_held_until_it_differs() {
        let first: (&str, &[&str], Whole) = ("f", &["{\"a\":", "1}"], Whole::Yes);
        let other: (&str, &[&str], Whole) = ("f", &["{\"a\":", "2", "}"], Whole::Yes);
        assert_eq!(said(&[first, first, other])[4..], ["1 f", "1 {\"a\":2", "1 }", "1 Yes"]);
        // One that is shorter than what it repeats is another one as well.
        assert_eq!(said(&[first, ("f", &["{"], Whole::Yes)])[4..], ["1 f", "1 {", "1 Yes"]);
        assert_eq!(said(&[first, ("f", &["{"], Whole::No)]).len(), 4, "a repetition that is cut is nothing");
    }
}
