//! Whether calls are valid, and right.

use super::task::Task;
use serde_json::Value;

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// Calls, at least one, of the tools, with arguments that fit.
    pub(super) is_valid: bool,
    /// The functions of the right calls, in any order.
    pub(super) has_right_functions: bool,
    /// And their arguments.
    pub(super) has_right_arguments: bool,
}

/// Judges an answer's calls.
pub(super) fn judge(calls: &[Value], task: &Task) -> Judged {
    let parsed: Option<Vec<(String, Value)>> = calls
        .iter()
        .map(|call| {
            let arguments = match &call["arguments"] {
                Value::String(text) => serde_json::from_str(text).ok()?,
                other => other.clone(),
            };
            Some((call["name"].as_str()?.to_owned(), arguments))
        })
        .collect();
    let Some(calls) = parsed.filter(|calls| !calls.is_empty()) else {
        return Judged { is_valid: false, has_right_functions: false, has_right_arguments: false };
    };
    let fits_tool = |(name, arguments): &(String, Value)| {
        let tool = task.tools.iter().map(|tool| &tool["function"]).find(|tool| tool["name"] == name.as_str());
        tool.is_some_and(|tool| fits(arguments, &tool["parameters"]))
    };
    let mut names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
    let mut right: Vec<&str> = task.calls.iter().filter_map(|call| call["name"].as_str()).collect();
    names.sort_unstable();
    right.sort_unstable();
    let has_right_functions = names == right;
    let is_made = |wanted: &Value| {
        calls.iter().any(|(name, arguments)| wanted["name"] == name.as_str() && alike(arguments, &wanted["arguments"]))
    };
    Judged {
        is_valid: calls.iter().all(fits_tool),
        has_right_functions,
        has_right_arguments: has_right_functions && task.calls.iter().all(is_made),
    }
}

/// Whether a value fits what schemas of functions are made of: types, enumerations, required properties, items.
fn fits(value: &Value, schema: &Value) -> bool {
    let of_type = |kind: &str| match kind {
        "object" | "dict" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" | "float" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => true,
    };
    let typed = match &schema["type"] {
        Value::String(kind) => of_type(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(of_type),
        _ => true,
    };
    let listed = schema["enum"].as_array().is_none_or(|known| known.contains(value));
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let whole = !value.is_object() || required.into_iter().all(|name| value.get(name).is_some());
    let properties = value.as_object().into_iter().flatten();
    let inside = properties.into_iter().all(|(name, value)| fits(value, &schema["properties"][name]));
    let items = value.as_array().into_iter().flatten().all(|item| fits(item, &schema["items"]));
    typed && listed && whole && inside && items
}

/// Whether arguments are the same: numbers by their value, texts but for case and blanks around, and what the right ones
/// do not mention may be there. (The leaderboard allows several values for many; this file has one.)
fn alike(given: &Value, right: &Value) -> bool {
    match (given, right) {
        (Value::Object(given), Value::Object(right)) => {
            right.iter().all(|(name, right)| given.get(name).is_some_and(|given| alike(given, right)))
        }
        (Value::Array(given), Value::Array(right)) => {
            given.len() == right.len() && given.iter().zip(right).all(|(given, right)| alike(given, right))
        }
        (Value::String(given), Value::String(right)) => given.trim().eq_ignore_ascii_case(right.trim()),
        (Value::Number(given), Value::Number(right)) => given.as_f64() == right.as_f64(),
        (given, right) => given == right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn task() -> Task {
        let parameters = json!({
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}},
            "required": ["city"],
        });
        Task {
            messages: json!([]),
            tools: vec![json!({"function": {"name": "weather", "parameters": parameters}})],
            calls: vec![json!({"name": "weather", "arguments": {"city": "Bern", "days": 2}})],
        }
    }

    #[test]
    fn calls_are_judged_by_what_they_say() {
        let judged = |name: &str, arguments: &str| {
            let Judged { is_valid, has_right_functions, has_right_arguments } =
                judge(&[json!({"name": name, "arguments": arguments})], &task());
            [is_valid, has_right_functions, has_right_arguments]
        };
        assert_eq!(judged("weather", r#"{"city": " bern", "days": 2.0, "unit": "c"}"#), [true, true, true]);
        assert_eq!(judged("weather", r#"{"city": "Rome", "days": 2}"#), [true, true, false]);
        assert_eq!(judged("weather", r#"{"city": "Bern", "unit": "k"}"#), [false, true, false]);
        assert_eq!(judged("weather", r#"{"days": 2}"#), [false, true, false]);
        assert_eq!(judged("clock", "{}"), [false, false, false]);
        assert_eq!(judged("weather", "{"), [false, false, false]);
        let none = judge(&[], &task());
        assert!(!none.is_valid);
    }
}
