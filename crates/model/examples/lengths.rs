//! Prints how many tokens the samples of workload files are, prompt and answer, for the simulator to draw from:
//! `cargo run -p duet-model --example lengths -- MODEL.gguf FILE.jsonl … > crates/sim/data/lengths.txt`.
//!
//! A line of a file is a JSON object: `kind` is `reactive` or `proactive`, `messages` the prompt, `tools` the functions
//! that it may call, if any, and `reference` the answer; samples without one are left out. The prompt is what the model's
//! chat template makes of the messages, with the turn of the answer begun. Tools that the template does not write count
//! as their JSON. The answer has one token more than its text: the one that ends it.
//!
//! Lines are sorted, so that the same files give the same table, and the order says nothing about the texts.

use duet_model::template::{ChatMessage, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(model), files) = (arguments.next(), arguments.collect::<Vec<_>>()) else {
        eprintln!("usage: lengths MODEL.gguf FILE.jsonl …");
        return ExitCode::from(2);
    };
    match table(&model, &files) {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(2)
        }
    }
}

/// One sample. In the order of the table.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Length {
    data_set: String,
    class: &'static str,
    input: usize,
    output: usize,
}

fn table(path: &Path, files: &[PathBuf]) -> Result<String, String> {
    let model = Model::load(path, &LoadOptions::default(), &mut |_| {}).map_err(|error| error.to_string())?;
    let mut lengths = Vec::new();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().replace(char::is_whitespace, "_");
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let length = length(&model, &stem, line);
            lengths.extend(length.map_err(|problem| format!("{}, line {}, {problem}", file.display(), number + 1))?);
        }
    }
    lengths.sort_unstable();
    let mut table = head(path, files);
    for Length { data_set, class, input, output } in lengths {
        table += &format!("{data_set} {class} {input} {output}\n");
    }
    Ok(table)
}

/// What made the table.
fn head(model: &Path, files: &[PathBuf]) -> String {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let files: Vec<String> = files.iter().map(|file| name(file)).collect();
    format!(
        "# Lengths of prompts and answers in tokens. Made by `lengths` in crates/model/examples, with the tokenizer and\n\
         # the chat template of {model}:\n\
         #   cargo run -p duet-model --example lengths -- {model} {}\n\
         # data-set class input output\n",
        files.join(" "),
        model = name(model),
    )
}

/// Nothing if the sample has no reference. Errors begin with the field.
fn length(model: &Model, data_set: &str, line: &str) -> Result<Option<Length>, String> {
    let row: Value = serde_json::from_str(line).map_err(|error| format!("(the line): {error}"))?;
    let class = match row.get("kind").and_then(Value::as_str) {
        Some("reactive") => "reactive",
        Some("proactive") => "proactive",
        _ => return Err("kind: expected \"reactive\" or \"proactive\"".to_owned()),
    };
    let input = input(model, &row)?;
    let output = match row.get("reference") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => model.tokenizer().encode(text, SpecialTokens::AsText).len() + 1,
        Some(_) => return Err("reference: expected a text or null".to_owned()),
    };
    Ok(Some(Length { data_set: data_set.to_owned(), class, input, output }))
}

/// Tokens of the prompt.
fn input(model: &Model, row: &Value) -> Result<usize, String> {
    let messages = row.get("messages").and_then(Value::as_array).ok_or("messages: expected a list of messages")?;
    let messages: Result<Vec<ChatMessage>, String> = messages.iter().enumerate().map(message).collect();
    let messages = messages?;
    let tools = row.get("tools").filter(|tools| !tools.is_null());
    let render = |tools| model.template().render(&messages, tools, Turn::Generate);
    let prompt = render(tools).map_err(|error| format!("messages: {error}"))?;
    let unwritten = match tools {
        Some(tools) if render(None).is_ok_and(|without| without == prompt) => tools.to_string(),
        _ => String::new(),
    };
    let tools = model.tokenizer().encode(&unwritten, SpecialTokens::AsText);
    Ok(model.tokenizer().encode_prompt(&prompt, SpecialTokens::Parse).len() + tools.len())
}

fn message((index, value): (usize, &Value)) -> Result<ChatMessage, String> {
    let text = |field: &str| {
        let text = value.get(field).and_then(Value::as_str);
        text.ok_or_else(|| format!("messages[{index}].{field}: expected a text"))
    };
    Ok(ChatMessage::new(text("role")?, text("content")?))
}
