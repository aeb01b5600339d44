//! Prompts with tools, and the calls that are right.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// A prompt whose answer is a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) messages: Value,
    pub(super) tools: Vec<Value>,
    /// The right calls: `{"name": …, "arguments": {…}}` each.
    pub(super) calls: Vec<Value>,
}

/// Why there are no prompts.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The file cannot be read.
    #[error("{}: {problem}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// A line of it is no prompt.
    #[error("{}, line {line}: {problem}", file.display())]
    Line {
        /// Which.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// No line has tools and calls.
    #[error("{}: no prompt has tools and calls that are right", .0.display())]
    NoTasks(PathBuf),
}

/// The first prompts of a file whose right answers are calls; those whose right answer is none are left out.
pub(super) fn read(file: &Path, limit: usize) -> Result<Vec<Task>, TaskError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| TaskError::File { file: file.to_owned(), problem: error.to_string() })?;
    let mut tasks = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if tasks.len() == limit {
            break;
        }
        let wrong = |problem: String| TaskError::Line { file: file.to_owned(), line: number + 1, problem };
        let line: Value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        let tools = line["tools"].as_array().ok_or_else(|| wrong("'tools' must be an array".to_owned()))?.clone();
        if !line["messages"].is_array() {
            return Err(wrong("'messages' must be an array".to_owned()));
        }
        let calls = calls(&line["reference"]);
        if !tools.is_empty() && !calls.is_empty() {
            tasks.push(Task { messages: line["messages"].clone(), tools, calls });
        }
    }
    if tasks.is_empty() { Err(TaskError::NoTasks(file.to_owned())) } else { Ok(tasks) }
}

/// The reference, a list or the text of one; calls in other notations are left out.
fn calls(reference: &Value) -> Vec<Value> {
    let parsed = reference.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let listed = parsed.as_ref().unwrap_or(reference).as_array().cloned().unwrap_or_default();
    let are_calls = listed.iter().all(|call| call["name"].is_string() && call["arguments"].is_object());
    if are_calls { listed } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn prompts_without_a_right_call_are_left_out_and_broken_lines_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tasks.jsonl");
        let call = json!({"name": "f", "arguments": {}});
        let line = |reference: Value| json!({"messages": [], "tools": [{}], "reference": reference}).to_string();
        let lines =
            [line(json!("[]")), line(json!([call.clone()])), line(json!(format!("[{call}]"))), line(json!(["f()"]))];
        std::fs::write(&file, lines.join("\n")).unwrap();
        let tasks = read(&file, 10).unwrap();
        assert_eq!(tasks.len(), 2);
        assert!(tasks.iter().all(|task| task.calls == [call.clone()]));
        std::fs::write(&file, format!("{}\n{{}}", line(json!([call])))).unwrap();
        assert!(read(&file, 10).unwrap_err().to_string().ends_with("line 2: 'tools' must be an array"));
        std::fs::write(&file, line(json!("[]"))).unwrap();
        assert!(matches!(read(&file, 10), Err(TaskError::NoTasks(_))));
    }
}
