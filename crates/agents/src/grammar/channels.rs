//! Turns in channels (`crate::channels`): reasoning, then calls, or an answer, each a message with its header.

use super::answer::ResponseFormat;
use super::calls::{Beside, write_required};
use super::rules::{ANY, Rules};
use super::{Calls, Grammar};
use crate::channels::{CHANNEL, END, MESSAGE, START};
use crate::reasoning::Begins;
use crate::refused::Refused;
use crate::tool::ToolChoice;

/// The grammar of a turn.
pub(super) fn write(
    mut rules: Rules<'_>,
    calls: Option<&Calls<'_>>,
    answer: &ResponseFormat,
    begins: Begins,
) -> Result<Grammar, Refused> {
    rules.until("ended", END);
    let [analysis, aside, last] =
        ["analysis", "commentary", "final"].map(|channel| rules.mark(&format!("{CHANNEL}{channel}{MESSAGE}")));
    let next = rules.mark(&format!("{START}assistant"));
    rules.rule("thought", &format!("{analysis} ended {next}"));
    rules.rule("aside", &format!("{aside} ended {next}"));
    let mut messages = Vec::new();
    if let Some(calls) = calls {
        write_required(&mut rules, calls, Beside::Text)?;
        messages.push("aside? calls".to_owned());
    }
    if calls.is_none_or(|calls| *calls.choice == ToolChoice::Auto) {
        match answer {
            ResponseFormat::Text => rules.rule("ANSWER", ANY),
            answer => answer.write(&mut rules)?,
        }
        let body = if *answer == ResponseFormat::Text { "ANSWER" } else { "answer" };
        messages.push(format!("{last} {body}"));
    }
    let begun = match begins {
        Begins::Inside => format!("ended {next} "),
        Begins::Outside => String::new(),
    };
    rules.rule("start", &format!("{begun}thought* ({})", messages.join(" | ")));
    Ok(rules.into_grammar())
}
