//! RULER by likelihood: the right answer among others.
//!
//! The others are, if the answer is one value, values of other keys that the same text hides; then the answers to the
//! rows of the same task that follow this one in the file, from the first again behind the last. So they are the same in
//! every run. Where they come from other texts the question is easier than RULER's own: it is whether the model finds
//! the answer likelier than one that it has not read.

use super::{Item, Problem, Question, Row, Scoring};

/// How the names of its tasks begin.
pub(super) const KINDS: [&str; 4] = ["niah_", "vt", "cwe", "fwe"];

pub(super) fn item(index: usize, rows: &[Row]) -> Result<Item, Problem> {
    let row = &rows[index];
    let (text, right) = (row.text(), row.reference()?);
    let hidden = hidden_values(&text).filter(|_| !right.contains(", "));
    let same_task = rows[index + 1..].iter().chain(&rows[..index]).filter(|other| other.kind() == row.kind());
    let mut options = vec![right];
    for other in hidden.chain(same_task.filter_map(|other| other.reference.as_deref()).map(str::trim)) {
        if options.len() < OPTIONS && !options.contains(&other) {
            options.push(other);
        }
    }
    if options.len() < 2 {
        return Err(format!("reference: there is no other row of `{}` with another answer", row.kind()));
    }
    let options = options.into_iter().map(|option| format!(" {option}")).collect();
    Ok(Item {
        context: format!("{}\nAnswer:", text.trim_end()),
        question: Some(Question { options, right: 0, scoring: Scoring::Whole }),
    })
}

/// What stands behind `One of the special magic … for … is: `.
fn hidden_values(text: &str) -> impl Iterator<Item = &str> {
    text.split("One of the special magic ").skip(1).filter_map(|needle| {
        let (_, value) = needle.split_once(" is: ")?;
        value.split(['.', ' ', '\n']).next().filter(|value| !value.is_empty())
    })
}

/// Options of a question at most.
const OPTIONS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::accuracy::items::Message;

    fn row(task: &str, content: &str, reference: &str) -> Row {
        let messages = vec![Message { content: Some(content.to_owned()) }];
        Row { task: task.to_owned(), messages, reference: Some(reference.to_owned()) }
    }

    fn options(index: usize, rows: &[Row]) -> Vec<String> {
        item(index, rows).unwrap().question.unwrap().options
    }

    #[test]
    fn others_hidden_in_the_text_come_first_and_then_those_of_the_same_task() {
        let text =
            "One of the special magic numbers for a is: 11.\nWords. One of the special magic numbers for b is: 22. One";
        let rows = [
            row("niah_multikey L512", text, "22"),
            row("vt L512", "", "X"),
            row("niah_multikey L1024", "", "33"),
            row("niah_multikey L1024", "", "44"),
            row("niah_multikey L1024", "", "55"),
        ];
        assert_eq!(options(0, &rows), [" 22", " 11", " 33", " 44"]);
        assert_eq!(options(4, &rows), [" 55", " 22", " 33", " 44"]);
        // Two values are not compared with single ones that are hidden in the text, too.
        let rows = [row("niah_multivalue L512", text, "11, 22"), row("niah_multivalue L512", text, "33, 44")];
        assert_eq!(options(0, &rows), [" 11, 22", " 33, 44"]);
    }
}
