//! BoolQ by likelihood: yes or no.

use super::{Item, Problem, Question, Row, Scoring};

pub(super) fn item(row: &Row) -> Result<Item, Problem> {
    let reference = row.reference()?;
    let right = OPTIONS.iter().position(|option| *option == reference);
    let right = right.ok_or_else(|| format!("reference: an answer of BoolQ is yes or no, not `{reference}`"))?;
    let options = OPTIONS.map(|option| format!(" {option}")).to_vec();
    Ok(Item { context: row.text(), question: Some(Question { options, right, scoring: Scoring::Whole }) })
}

const OPTIONS: [&str; 2] = ["yes", "no"];
