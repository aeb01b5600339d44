//! What clients write into a prompt anew with every request, so that what follows it could not be found again.
//!
//! A prompt's keys and values are kept up to the first token that differs. A line in front that always differs costs the
//! whole conversation, at every turn. The rules, for system messages before anything else was said:
//!
//! 1. A first line that begins with `x-anthropic-billing-header:` (Claude Code's, one for each request) is left out: it is
//!    for a server's accounts and tells the model nothing.
//! 2. Lines that tell the time of day (Home Assistant's `Current time is 10:42:31. …`), if they are the first or the last
//!    ones, go to the end of the last message of the user. The model is still told, and what is before stays as it was.
//!    A line is one of these if it begins with words of [`CLOCK_WORDS`], holds a time of day and is short. Dates alone
//!    stay: they are the same for a day.
//!
//! **Invariant:** only whole lines of system messages are touched; [`KeepPrefix::AsSent`] touches none.

use crate::config::KeepPrefix;
use crate::messages::{ChatMessage, Role};

/// Brings a conversation into a form that begins alike at every turn. O(its instructions).
pub(crate) fn settle(messages: &mut Vec<ChatMessage>, keep: KeepPrefix) {
    if keep == KeepPrefix::AsSent {
        return;
    }
    let user = messages.iter().rposition(|message| message.role == Role::User);
    let instructions = messages.iter().take_while(|message| message.role == Role::System).count();
    let (mut clock, mut emptied) = (Vec::new(), Vec::new());
    for (place, system) in messages[..instructions].iter_mut().enumerate() {
        if let Some(settled) = settled(&system.content, user.map(|_| &mut clock)) {
            system.content = settled;
            emptied.extend(system.content.is_empty().then_some(place));
        }
    }
    if let Some(user) = user.filter(|_| !clock.is_empty()) {
        let content = &mut messages[user].content;
        if !content.is_empty() {
            content.push_str("\n\n");
        }
        content.push_str(&clock.join("\n"));
    }
    let (mut emptied, mut place) = (emptied.into_iter().peekable(), 0..);
    messages.retain(|_| place.next().is_none_or(|place| emptied.next_if_eq(&place).is_none()));
}

/// The text without what is volatile, if it has any; lines that tell the time are added to `clock`, if they may go there.
fn settled(text: &str, clock: Option<&mut Vec<String>>) -> Option<String> {
    let mut rest = text;
    if let Some(line) = first_line(rest).filter(|line| begins_with(line.trim_start(), BILLING)) {
        rest = after(rest, line).trim_start_matches(['\r', '\n']);
    }
    if let Some(clock) = clock {
        for _ in 0..CLOCK_LINES_MAX {
            let body = rest.trim_start_matches(['\r', '\n']);
            let Some(line) = first_line(body).filter(|line| tells_time(line)) else { break };
            clock.push(line.trim().to_owned());
            rest = after(body, line).trim_start_matches(['\r', '\n']);
        }
        let mut last = Vec::new();
        for _ in 0..CLOCK_LINES_MAX {
            let body = rest.trim_end();
            let start = body.rfind('\n').map_or(0, |end| end + 1);
            if !tells_time(&body[start..]) {
                break;
            }
            last.push(body[start..].trim().to_owned());
            rest = body[..start].trim_end();
        }
        clock.extend(last.into_iter().rev());
    }
    (rest.len() < text.len()).then(|| rest.to_owned())
}

/// The first line, if there is any text.
fn first_line(text: &str) -> Option<&str> {
    text.lines().next()
}

/// What follows a text's first line.
fn after<'a>(text: &'a str, line: &str) -> &'a str {
    text.get(line.len()..).unwrap_or_default()
}

/// Whether a line says what time it is now.
fn tells_time(line: &str) -> bool {
    let line = line.trim();
    if line.len() > CLOCK_BYTES_MAX || !has_time_of_day(line) {
        return false;
    }
    let words = line.trim_start_matches(['-', '*', '#', ' ']);
    let words = if begins_with(words, "the ") { &words["the ".len()..] } else { words };
    CLOCK_WORDS.iter().any(|beginning| begins_with(words, beginning))
}

/// Whether there is a digit, a colon and two digits somewhere: `9:05`.
fn has_time_of_day(line: &str) -> bool {
    let digit = u8::is_ascii_digit;
    line.as_bytes().windows(4).any(|at| digit(&at[0]) && at[1] == b':' && digit(&at[2]) && digit(&at[3]))
}

fn begins_with(text: &str, beginning: &str) -> bool {
    text.get(..beginning.len()).is_some_and(|head| head.eq_ignore_ascii_case(beginning))
}

const BILLING: &str = "x-anthropic-billing-header:";
/// How a line that tells the time begins, after `the` if that is there, in any case.
const CLOCK_WORDS: [&str; 9] = [
    "current time",
    "current local time",
    "current date and time",
    "current date & time",
    "current date/time",
    "current datetime",
    "current timestamp",
    "time now",
    "local time",
];
/// A line that says more than this says more than the time.
const CLOCK_BYTES_MAX: usize = 160;
/// Of lines at one end; clients write one or two.
const CLOCK_LINES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn said(role: Role, content: &str) -> ChatMessage {
        ChatMessage::said(role, content.to_owned())
    }

    /// Settles instructions and a question; shows both, and `|` between them.
    fn check(system: &str, expected: &str) {
        let mut messages = vec![said(Role::System, system), said(Role::User, "hi")];
        settle(&mut messages, KeepPrefix::Kept);
        let shown: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(shown.join("|"), expected);
    }

    #[test]
    fn a_billing_header_is_left_out() {
        check("x-anthropic-billing-header: cc_version=2.1; cch=1f;\nBe brief.", "Be brief.|hi");
        check("X-Anthropic-Billing-Header: a\r\n\r\nBe brief.", "Be brief.|hi");
        check("x-anthropic-billing-header: a", "hi");
        check("Be brief.\nx-anthropic-billing-header: a", "Be brief.\nx-anthropic-billing-header: a|hi");
    }

    #[test]
    fn a_clock_goes_behind_what_is_stable() {
        let clock = "Current time is 10:42:31. Today's date is 2026-11-23.";
        check(
            &format!("{clock}\nYou are a voice assistant.\n"),
            &format!("You are a voice assistant.\n|hi\n\n{clock}"),
        );
        check(&format!("You are one.\n\n{clock}\n"), &format!("You are one.|hi\n\n{clock}"));
        check("\nThe current time is 9:05 PM\nBe brief.", "Be brief.|hi\n\nThe current time is 9:05 PM");
        check("- Current date and time: 2026-11-23T10:42\nx", "x|hi\n\n- Current date and time: 2026-11-23T10:42");
        check("Current time: 10:42", "hi\n\nCurrent time: 10:42");
        check("x-anthropic-billing-header: a\nCurrent time: 10:42\nBe brief.", "Be brief.|hi\n\nCurrent time: 10:42");
        check(
            "Current time: 10:42\nx\nlocal time 1:11\ntime now 2:22",
            "x|hi\n\nCurrent time: 10:42\nlocal time 1:11\ntime now 2:22",
        );
    }

    #[test]
    fn what_is_no_clock_line_stays() {
        for system in [
            "Be brief.\nCurrent time is 10:42:31.\nBe kind.",
            "Today's date is 2026-11-23.\nBe brief.",
            "Current time is of no concern.\nBe brief.",
            "Tell the current time as 10:42.",
            "",
        ] {
            check(system, &format!("{system}|hi"));
        }
        let long = format!("Current time is 10:42. {}\nx", "y".repeat(200));
        check(&long, &format!("{long}|hi"));
    }

    #[test]
    fn the_last_user_message_is_told_and_without_one_nobody() {
        let clock = "Current time is 10:42:31.";
        let mut messages = vec![said(Role::System, clock), said(Role::Assistant, "a")];
        let before = messages.clone();
        settle(&mut messages, KeepPrefix::Kept);
        assert_eq!(messages, before);
        let roles = [Role::User, Role::Assistant, Role::User, Role::Assistant, Role::Tool];
        messages.splice(1.., roles.map(|role| said(role, "x")));
        let before = messages.clone();
        settle(&mut messages, KeepPrefix::AsSent);
        assert_eq!(messages, before);
        settle(&mut messages, KeepPrefix::Kept);
        let told: Vec<bool> = messages.iter().map(|message| message.content.contains(clock)).collect();
        assert_eq!(told, [false, false, true, false, false]);
    }

    #[test]
    fn characters_are_never_cut() {
        check("é: 10:42\nthé current time 10:42", "é: 10:42\nthé current time 10:42|hi");
    }
}
