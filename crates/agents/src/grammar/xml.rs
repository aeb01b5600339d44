//! A function that is called as Qwen3-Coder does: `<function=name>`, a `<parameter=key>` for each argument, `</function>`.
//!
//! Arguments come in the order of the schema's properties. Text is written as it is, up to the closing mark, so of what a
//! schema says of text only its length and what it lists can be kept; everything else is JSON, and kept.

use super::rules::{Rules, anywhere, escaped, quoted};
use super::schema::{arguments, part_of};
use crate::calls::{FUNCTION, FUNCTION_END, PARAMETER, PARAMETER_END};
use crate::parameter::{Kinds, listed, resolved, written};
use crate::refused::Refused;
use crate::tool::{Strictness, Tool};
use serde_json::{Map, Value};

/// Writes the rules of a call of `tool`, number `at`; returns what refers to them.
pub(super) fn write(rules: &mut Rules<'_>, at: usize, tool: &Tool) -> Result<String, Refused> {
    let schema = arguments(tool)?;
    let nothing = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
    let required = schema.get("required").and_then(Value::as_array);
    let mut parameters = String::new();
    for (number, (key, property)) in properties.iter().enumerate() {
        if key.is_empty() || key.contains(['>', '\n']) {
            let reason = format!("the parameter {key:?} has no name that can be written");
            return Err(Refused::Schema { of: tool.name.clone(), reason });
        }
        let value = value(rules, &format!("VALUE_{at}_{number}"), tool, &schema, (key, property))?;
        let rule = format!("parameter_{at}_{number}");
        rules.rule(&rule, &format!("{} {value}", quoted(&format!("{PARAMETER}{key}>\n"))));
        let is_required = required.is_some_and(|keys| keys.iter().any(|required| required == key));
        parameters += &format!("{rule}{} ", if is_required { "" } else { "?" });
    }
    let begin = quoted(&format!("{FUNCTION}{}>\n", tool.name));
    Ok(format!("{begin} {parameters}{}", quoted(FUNCTION_END)))
}

/// A value with the mark that closes it.
fn value(
    rules: &mut Rules<'_>,
    terminal: &str,
    tool: &Tool,
    schema: &Value,
    (key, property): (&str, &Value),
) -> Result<String, Refused> {
    let end = format!("\n{PARAMETER_END}\n");
    let resolved = resolved(schema, property);
    if let Some(values) = listed(resolved) {
        let values: Vec<String> = values.iter().map(|value| quoted(&(written(value) + &end))).collect();
        return Ok(format!("({})", values.join(" | ")));
    }
    if Kinds::of(schema, property).are_json() {
        return Ok(format!("{} {}", rules.schema(&tool.name, part_of(schema, property)), quoted(&end)));
    }
    let (length, is_kept) = length(resolved);
    let other = ["pattern", "format"].into_iter().find(|keyword| resolved.get(*keyword).is_some());
    if let (Some(keyword), Strictness::Strict) = (other.or((!is_kept).then_some("maxLength")), tool.strict) {
        let path = format!("/properties/{key}");
        return Err(Refused::Keyword { of: tool.name.clone(), path, keyword: keyword.to_owned() });
    }
    // The first closing mark closes: nothing escapes it. Behind it comes the end of its line.
    let again = format!("{}(?s:.{{2,}})", anywhere(PARAMETER_END));
    rules.rule(terminal, &format!("/(?s:.{length}){}/ & ~/{again}/", escaped(&end)));
    Ok(terminal.to_owned())
}

/// How often a character comes, as a pattern; and whether that is all that the schema says of the length.
fn length(schema: &Value) -> (String, bool) {
    let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
    let (least, most) = (bound("minLength").unwrap_or(0), bound("maxLength"));
    match most {
        _ if least.max(most.unwrap_or(0)) > LENGTH_MAX => ("*".to_owned(), false),
        None if least == 0 => ("*".to_owned(), true),
        None => (format!("{{{least},}}"), true),
        Some(most) => (format!("{{{least},{}}}", most.max(least)), true),
    }
}

/// Longer bounds make patterns too large.
const LENGTH_MAX: u64 = 1000;
