//! Workload files: real prompts, one JSON object a line.
//!
//! `kind` says who waits, `messages` what is sent; `reference`, if there is one, only says how long an answer should be.
//! Prompts of 10 000 characters or more are left out, so that every server's context holds what is drawn.

use super::LoadError;
use super::job::{Message, Role};
use duet_types::{Class, Tokens};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Prompts to draw from, by class.
#[derive(Clone, Debug)]
pub struct Workload {
    reactive: Vec<Prompt>,
    proactive: Vec<Prompt>,
}

/// A prompt and how long its answer is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) messages: Arc<[Message]>,
    pub(crate) output: Tokens,
}

impl Workload {
    /// Reads files; without any, the samples that come with the program.
    ///
    /// # Errors
    /// [`LoadError::Workload`] names the file, the line and the field; [`LoadError::NoPrompts`] the class that is missing.
    pub fn read(files: &[PathBuf]) -> Result<Self, LoadError> {
        let mut workload = Self { reactive: Vec::new(), proactive: Vec::new() };
        for file in files {
            let text = std::fs::read_to_string(file)
                .map_err(|error| LoadError::WorkloadFile { file: file.clone(), problem: error.to_string() })?;
            workload.add(file, &text)?;
        }
        if files.is_empty() {
            workload.add(Path::new("workloads/sample.jsonl"), SAMPLE)?;
        }
        Ok(workload)
    }

    /// The prompts of one file in their order, whatever their class.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn in_order(file: &Path) -> Result<Vec<Prompt>, LoadError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| LoadError::WorkloadFile { file: file.to_owned(), problem: error.to_string() })?;
        let mut prompts = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            prompts.extend(prompt_at(file, number, line)?.map(|(_, prompt)| prompt));
        }
        Ok(prompts)
    }

    /// The prompts of a class.
    ///
    /// # Errors
    /// If there are none.
    pub(crate) fn prompts(&self, class: Class) -> Result<&[Prompt], LoadError> {
        let (kind, prompts) = match class {
            Class::Reactive => ("reactive", &self.reactive),
            Class::Proactive => ("proactive", &self.proactive),
        };
        if prompts.is_empty() { Err(LoadError::NoPrompts { kind }) } else { Ok(prompts) }
    }

    /// All prompts: those of each class in the order of the files.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Prompt> {
        self.reactive.iter().chain(&self.proactive)
    }

    fn add(&mut self, file: &Path, text: &str) -> Result<(), LoadError> {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match prompt_at(file, number, line)? {
                Some((Class::Reactive, prompt)) => self.reactive.push(prompt),
                Some((Class::Proactive, prompt)) => self.proactive.push(prompt),
                None => {}
            }
        }
        Ok(())
    }
}

/// The prompt of a line; nothing if it is too long.
fn prompt_at(file: &Path, number: usize, line: &str) -> Result<Option<(Class, Prompt)>, LoadError> {
    let (class, prompt) = parse(line).map_err(|(field, problem)| LoadError::Workload {
        file: file.to_owned(),
        line: number + 1,
        field,
        problem,
    })?;
    let characters: usize = prompt.messages.iter().map(|message| message.content.chars().count()).sum();
    Ok((characters < CHARACTERS_MAX).then_some((class, prompt)))
}

/// A field of a line and what is wrong with it.
type Problem = (String, String);

fn parse(line: &str) -> Result<(Class, Prompt), Problem> {
    let row: Value = serde_json::from_str(line).map_err(|error| ("(the line)".to_owned(), error.to_string()))?;
    let class = match row.get("kind").and_then(Value::as_str) {
        Some("reactive") => Class::Reactive,
        Some("proactive") => Class::Proactive,
        _ => return Err(problem("kind", "expected \"reactive\" or \"proactive\"")),
    };
    let messages = row.get("messages").and_then(Value::as_array).filter(|messages| !messages.is_empty());
    let messages = messages.ok_or_else(|| problem("messages", "expected a list of messages"))?;
    let messages: Result<Vec<_>, _> =
        messages.iter().enumerate().filter_map(|(index, value)| message(index, value).transpose()).collect();
    let output = match row.get("reference") {
        None | Some(Value::Null) => OUTPUT_UNKNOWN,
        Some(Value::String(text)) if text.is_empty() => OUTPUT_UNKNOWN,
        Some(Value::String(text)) => u32::try_from(text.chars().count() / 4).unwrap_or(u32::MAX),
        Some(_) => return Err(problem("reference", "expected a text or null")),
    };
    let output = Tokens(output.clamp(OUTPUT_MIN, OUTPUT_MAX));
    Ok((class, Prompt { messages: messages?.into(), output }))
}

/// `None` for roles that plain chats do not have.
fn message(index: usize, value: &Value) -> Result<Option<Message>, Problem> {
    let field = |name: &str| format!("messages[{index}].{name}");
    let role = match value.get("role").and_then(Value::as_str) {
        Some("system") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(_) => return Ok(None),
        None => return Err((field("role"), "expected a role".to_owned())),
    };
    match value.get("content") {
        Some(Value::String(content)) => Ok(Some(Message::new(role, content.as_str()))),
        None | Some(Value::Null) => Ok(Some(Message::new(role, ""))),
        Some(_) => Err((field("content"), "expected a text or null".to_owned())),
    }
}

fn problem(field: &str, problem: &str) -> Problem {
    (field.to_owned(), problem.to_owned())
}

/// Prompts of this many characters and more are not drawn.
const CHARACTERS_MAX: usize = 10_000;
/// An answer's length where the file has no reference.
const OUTPUT_UNKNOWN: u32 = 100;
/// The shortest and the longest answer asked for.
const OUTPUT_MIN: u32 = 8;
const OUTPUT_MAX: u32 = 160;

/// In the program, because an installed one has no repository beside it.
const SAMPLE: &str = include_str!("../../../../workloads/sample.jsonl");

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Workload, String> {
        let mut workload = Workload { reactive: Vec::new(), proactive: Vec::new() };
        workload.add(Path::new("some.jsonl"), text).map_err(|error| error.to_string())?;
        Ok(workload)
    }

    #[test]
    fn the_samples_have_both_classes_and_several_lengths() {
        let workload = Workload::read(&[]).unwrap();
        for class in [Class::Reactive, Class::Proactive] {
            let length = |prompt: &Prompt| prompt.messages.iter().map(|message| message.content.len()).sum::<usize>();
            let lengths: Vec<_> = workload.prompts(class).unwrap().iter().map(length).collect();
            assert!(lengths.iter().any(|&length| length < 1000), "{class:?} has a short prompt: {lengths:?}");
            assert!(lengths.iter().any(|&length| length > 5000), "{class:?} has a long prompt: {lengths:?}");
        }
    }

    #[test]
    fn the_answer_is_as_long_as_the_reference_within_limits() {
        let line = |reference: &str| {
            let text = format!(
                r#"{{"kind":"reactive","messages":[{{"role":"user","content":"hi"}}],"reference":{reference}}}"#
            );
            read(&text).unwrap().prompts(Class::Reactive).unwrap()[0].output.0
        };
        assert_eq!(line("null"), 100);
        assert_eq!(line(r#""short""#), 8);
        assert_eq!(line(&format!("\"{}\"", "x".repeat(203))), 50);
        assert_eq!(line(&format!("\"{}\"", "ü".repeat(4000))), 160);
    }

    #[test]
    fn long_prompts_are_left_out_and_other_roles_are_not_sent() {
        let long = "x".repeat(10_000);
        let text = format!(
            "{{\"kind\":\"proactive\",\"messages\":[{{\"role\":\"user\",\"content\":\"{long}\"}}]}}\n\n\
             {{\"kind\":\"proactive\",\"messages\":[{{\"role\":\"tool\",\"content\":7}},{{\"role\":\"user\",\"content\":\"a\"}}]}}\n"
        );
        let workload = read(&text).unwrap();
        assert_eq!(workload.proactive.len(), 1);
        assert_eq!(workload.proactive[0].messages.len(), 1);
        assert!(workload.prompts(Class::Reactive).unwrap_err().to_string().contains("reactive"));
    }

    #[test]
    fn what_is_wrong_is_named_by_file_line_and_field() {
        let good = r#"{"kind":"reactive","messages":[{"role":"user","content":"hi"}]}"#;
        for (bad, field) in [
            ("{", "(the line)"),
            (r#"{"kind":"urgent","messages":[]}"#, "kind"),
            (r#"{"kind":"reactive","messages":[]}"#, "messages"),
            (r#"{"kind":"reactive","messages":[{"content":"hi"}]}"#, "messages[0].role"),
            (r#"{"kind":"reactive","messages":[{"role":"user","content":["hi"]}]}"#, "messages[0].content"),
            (r#"{"kind":"reactive","messages":[{"role":"user","content":"hi"}],"reference":3}"#, "reference"),
        ] {
            let error = read(&format!("{good}\n{bad}\n")).unwrap_err();
            assert!(error.starts_with(&format!("some.jsonl, line 2, {field}: ")), "{error}");
        }
    }
}
