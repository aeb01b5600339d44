//! Texts to read, and questions about them whose right answer is known.
//!
//! | rows of | context | options |
//! | --- | --- | --- |
//! | HellaSwag | `hellaswag.rs` | four endings |
//! | BoolQ | the prompt | yes, no |
//! | RULER | the prompt | the answer among others, `ruler.rs` |
//! | anything else | the prompt | none: only perplexity is measured |
//!
//! A file that is not `.jsonl` is plain text, which is cut into pieces of whole lines.

mod boolq;
mod hellaswag;
mod ruler;

use super::AccuracyError;
use serde::Deserialize;
use std::path::Path;

/// A text, and what is asked about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) context: String,
    pub(super) question: Option<Question>,
}

/// What may follow a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// As they follow the context, with the space between.
    pub(super) options: Vec<String>,
    /// Which of them is right.
    pub(super) right: usize,
    pub(super) scoring: Scoring,
}

/// What the likelihoods of options are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scoring {
    /// The whole option's.
    Whole,
    /// The mean of its bytes: options of different lengths, of which long ones would never be likely.
    PerByte,
}

/// A line of a workload file.
#[derive(Debug, Deserialize)]
struct Row {
    task: String,
    messages: Vec<Message>,
    reference: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    content: Option<String>,
}

/// What is wrong with a line.
type Problem = String;

/// The items of a file, in its order.
///
/// # Errors
/// If the file cannot be read, or a line of it is not what its task says.
pub(super) fn read(file: &Path) -> Result<Vec<Item>, AccuracyError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| AccuracyError::File { file: file.to_owned(), problem: error.to_string() })?;
    if file.extension().is_none_or(|extension| extension != "jsonl") {
        return Ok(pieces(&text));
    }
    parse(&text).map_err(|(line, problem)| AccuracyError::Line { file: file.to_owned(), line, problem })
}

/// The items of a file's text, or the number of a wrong line.
fn parse(text: &str) -> Result<Vec<Item>, (usize, Problem)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (numbers, rows): (Vec<usize>, Vec<Row>) = lines
        .map(|(number, line)| match serde_json::from_str(line) {
            Ok(row) => Ok((number + 1, row)),
            Err(error) => Err((number + 1, error.to_string())),
        })
        .collect::<Result<_, _>>()?;
    let item = |(index, row): (usize, &Row)| item(index, row, &rows).map_err(|problem| (numbers[index], problem));
    rows.iter().enumerate().map(item).collect()
}

fn item(index: usize, row: &Row, rows: &[Row]) -> Result<Item, Problem> {
    match row.kind() {
        "hellaswag" => hellaswag::item(row),
        "boolq" => boolq::item(row),
        kind if ruler::KINDS.iter().any(|prefix| kind.starts_with(prefix)) => ruler::item(index, rows),
        _ => Ok(Item { context: row.text(), question: None }),
    }
}

impl Row {
    /// The first word of the task: the others say how long a prompt is.
    fn kind(&self) -> &str {
        self.task.split_whitespace().next().unwrap_or_default()
    }

    fn text(&self) -> String {
        let contents = self.messages.iter().filter_map(|message| message.content.as_deref());
        contents.collect::<Vec<_>>().join("\n\n")
    }

    fn reference(&self) -> Result<&str, Problem> {
        self.reference
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("reference: a row of `{}` needs the right answer", self.kind()))
    }
}

/// Plain text in pieces of whole lines.
fn pieces(text: &str) -> Vec<Item> {
    let mut pieces: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        match pieces.last_mut().filter(|piece| piece.len() < PIECE_BYTES) {
            Some(piece) => piece.push_str(line),
            None => pieces.push(line.to_owned()),
        }
    }
    pieces.into_iter().map(|context| Item { context, question: None }).collect()
}

/// Some five hundred tokens: two chunks.
const PIECE_BYTES: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"task": "hellaswag 1-shot", "messages": [{"content": "Choose.\n\nContext (Golf): A man swings. he\nA. sleeps.\nB. hits.\nC. eats.\nD. is a car.\nAnswer: B\n\nContext (Tea): She boils water. she\nA. flies.\nB. sings.\nC. pours it.\nD. is it.\nAnswer:"}], "reference": "C"}
{"task": "boolq 0-shot", "messages": [{"content": "Passage: Ice is cold.\nQuestion: is ice cold?\nAnswer:"}], "reference": "yes"}
{"task": "vt L512", "messages": [{"content": "VAR A = 1. List the names."}], "reference": "A, B"}
{"task": "vt L1024", "messages": [{"content": "VAR C = 1. List the names."}], "reference": "C"}
{"task": "summary", "messages": [{"content": "Be short."}, {"content": "It rained."}], "reference": null}
"#;

    #[test]
    fn a_row_is_what_its_task_says() {
        let items = parse(ROWS).unwrap();
        let question = |index: usize| items[index].question.clone().unwrap();
        assert_eq!(items[0].context, "Golf: A man swings. he hits.\n\nTea: She boils water. she");
        assert_eq!(question(0).options, [" flies.", " sings.", " pours it.", " is it."]);
        assert_eq!((question(0).right, question(0).scoring), (2, Scoring::PerByte));
        assert!(items[1].context.ends_with("Answer:"));
        assert_eq!((question(1).options, question(1).right), (vec![" yes".to_owned(), " no".to_owned()], 0));
        assert_eq!(items[2].context, "VAR A = 1. List the names.\nAnswer:");
        assert_eq!(
            (question(2).options, question(3).options),
            (vec![" A, B".into(), " C".into()], vec![" C".into(), " A, B".into()])
        );
        assert_eq!(items[4], Item { context: "Be short.\n\nIt rained.".to_owned(), question: None });
    }

    #[test]
    fn a_line_that_is_not_what_it_says_is_named() {
        let wrong = |line: &str| parse(&format!("\n{line}\n")).unwrap_err();
        let (line, problem) = wrong(r#"{"task": "boolq", "messages": [], "reference": "maybe"}"#);
        assert!(line == 2 && problem.contains("maybe"), "{line}: {problem}");
        assert!(wrong(r#"{"task": "boolq", "messages": [], "reference": null}"#).1.contains("reference"));
        assert!(
            wrong(r#"{"task": "hellaswag", "messages": [{"content": "Tea"}], "reference": "C"}"#)
                .1
                .contains("Context (")
        );
        assert!(wrong(r#"{"task": "vt"}"#).1.contains("messages"));
        assert!(wrong(r#"{"task": "vt", "messages": [], "reference": "A"}"#).1.contains("another answer"));
    }

    #[test]
    fn plain_text_is_cut_between_lines_and_none_of_it_is_lost() {
        let text: String = (0..300).map(|line| format!("line {line} of a text\n")).collect();
        let pieces = pieces(&text);
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.context.ends_with('\n')));
        assert_eq!(pieces.into_iter().map(|piece| piece.context).collect::<String>(), text);
    }
}
