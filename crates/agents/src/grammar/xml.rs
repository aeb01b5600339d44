//! A function that is called in tags: as Qwen3-Coder does, `<function=name>`, a `<parameter=key>` for each argument,
//! `</function>`; or as GLM 4.5 does, its name, and `<arg_key>` and `<arg_value>` for each argument.
//!
//! Arguments come in the order of the schema's properties. Text is written as it is, up to the closing mark, so of what a
//! schema says of text only its length and what it lists can be kept; everything else is JSON, and kept.

use super::pythonic::COMPOSED;
use super::rules::{Rules, anywhere, escaped, quoted};
use super::schema::{arguments, part_of};
use crate::format::{ARG_KEY, ARG_KEY_END, ARG_VALUE_END, FUNCTION, FUNCTION_END, PARAMETER, PARAMETER_END};
use crate::parameter::{Kinds, listed, resolved, written};
use crate::refused::Refused;
use crate::tool::{Strictness, Tool};
use serde_json::{Map, Value};

/// How a family writes the parts of a call.
pub(super) struct Tags {
    /// Before and after a function's name.
    name: [&'static str; 2],
    /// Before a parameter's key, after it, and between that and its value.
    key: [&'static str; 3],
    /// Between a value and the mark that closes it.
    before_end: &'static str,
    /// That mark.
    value_end: &'static str,
    /// Behind all parameters.
    end: &'static str,
}

pub(super) const QWEN: Tags = Tags {
    name: [FUNCTION, ">\n"],
    key: [PARAMETER, ">", "\n"],
    before_end: "\n",
    value_end: PARAMETER_END,
    end: FUNCTION_END,
};

pub(super) const GLM: Tags = Tags {
    name: ["", "\n"],
    key: [ARG_KEY, ARG_KEY_END, ARG_VALUE_BEGIN],
    before_end: "",
    value_end: ARG_VALUE_END,
    end: "",
};

/// On a line of its own.
const ARG_VALUE_BEGIN: &str = "\n<arg_value>";

/// Writes the rules of a call of `tool`, number `at`; returns what refers to them.
pub(super) fn write(rules: &mut Rules<'_>, tags: &Tags, at: usize, tool: &Tool) -> Result<String, Refused> {
    let schema = arguments(tool)?;
    if tool.strict == Strictness::Strict {
        only_properties(&tool.name, &schema)?;
    }
    let nothing = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
    let required = schema.get("required").and_then(Value::as_array);
    let mut parameters = String::new();
    for (number, (key, property)) in properties.iter().enumerate() {
        if key.is_empty() || key.contains(['<', '>', '\n']) {
            let reason = format!("the parameter {key:?} has no name that can be written");
            return Err(Refused::Schema { of: tool.name.clone(), reason });
        }
        let terminal = format!("VALUE_{at}_{number}");
        let value = value(rules, (tags, &terminal), tool, &schema, (key, property))?;
        let rule = format!("parameter_{at}_{number}");
        let [before, after, between] = tags.key;
        let begin = rules.mark(&format!("{before}{key}{after}{between}"));
        rules.rule(&rule, &format!("{begin} {value}"));
        let is_required = required.is_some_and(|keys| keys.iter().any(|required| required == key));
        parameters += &format!("{rule}{} ", if is_required { "" } else { "?" });
    }
    let begin = quoted(&format!("{}{}{}", tags.name[0], tool.name, tags.name[1]));
    let end = if tags.end.is_empty() { String::new() } else { quoted(tags.end) };
    Ok(format!("{begin} {parameters}{end}"))
}

/// A value with the mark that closes it.
fn value(
    rules: &mut Rules<'_>,
    (tags, terminal): (&Tags, &str),
    tool: &Tool,
    schema: &Value,
    (key, property): (&str, &Value),
) -> Result<String, Refused> {
    let end = format!("{}{}\n", tags.before_end, tags.value_end);
    let resolved = resolved(schema, property);
    if let Some(values) = listed(resolved) {
        let values: Vec<String> = values.iter().map(|value| rules.mark(&(written(value) + &end))).collect();
        return Ok(format!("({})", values.join(" | ")));
    }
    if Kinds::of(schema, property).are_json() {
        let end = rules.mark(&end);
        return Ok(format!("{} {end}", rules.schema(&tool.name, part_of(schema, property))?));
    }
    if tool.strict == Strictness::Strict {
        only_text(&tool.name, key, resolved)?;
    }
    let (length, is_kept) = length(resolved);
    let other = ["pattern", "format"].into_iter().find(|keyword| resolved.get(*keyword).is_some());
    if let (Some(keyword), Strictness::Strict) = (other.or((!is_kept).then_some("maxLength")), tool.strict) {
        let path = format!("/properties/{key}");
        return Err(Refused::Keyword { of: tool.name.clone(), path, keyword: keyword.to_owned() });
    }
    // The first closing mark closes: nothing escapes it. Behind it comes the end of its line.
    let again = anywhere(tags.value_end);
    if rules.is_token(tags.value_end) {
        // Text that spells the mark would look like it to whoever reads the text.
        rules.rule(terminal, &format!("/(?s:.{length}){}/ & ~/{again}(?s:.*)/", escaped(tags.before_end)));
        let end = rules.mark(&format!("{}\n", tags.value_end));
        return Ok(if length == "*" && tags.before_end.is_empty() {
            format!("{terminal}? {end}")
        } else {
            format!("{terminal} {end}")
        });
    }
    rules.rule(terminal, &format!("/(?s:.{length}){}/ & ~/{again}(?s:.{{2,}})/", escaped(&end)));
    Ok(terminal.to_owned())
}

/// Refuses what tags cannot keep of an argument object.
fn only_properties(of: &str, schema: &Value) -> Result<(), Refused> {
    let named = |key: &Value| {
        key.as_str().is_some_and(|key| schema.pointer("/properties").is_some_and(|p| p.get(key).is_some()))
    };
    let required = schema.get("required").and_then(Value::as_array);
    let unnamed = required.is_some_and(|keys| !keys.iter().all(named)).then_some("required");
    let found = COMPOSED.iter().chain(&COUNTED).find(|keyword| schema.get(**keyword).is_some()).copied();
    match found.or(unnamed) {
        None => Ok(()),
        Some(keyword) => Err(Refused::Keyword { of: of.to_owned(), path: String::new(), keyword: keyword.to_owned() }),
    }
}

/// Of objects, beside what they are composed of.
const COUNTED: [&str; 3] = ["patternProperties", "minProperties", "maxProperties"];

/// Refuses what cannot be kept of a value that may be text, which is written as it is: what alternatives say of it, and what is
/// said of what it may be beside text.
fn only_text(of: &str, key: &str, property: &Value) -> Result<(), Refused> {
    const OF_ANY: [&str; 2] = ["enum", "const"];
    const OF_TEXT: [&str; 4] = ["pattern", "format", "minLength", "maxLength"];
    const OF_OTHERS: [&str; 12] = [
        "items",
        "prefixItems",
        "minItems",
        "maxItems",
        "uniqueItems",
        "properties",
        "required",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    ];
    let refused = |keyword: &str| {
        Err(Refused::Keyword { of: of.to_owned(), path: format!("/properties/{key}"), keyword: keyword.to_owned() })
    };
    if let Some(keyword) = OF_OTHERS.iter().find(|keyword| property.get(**keyword).is_some()) {
        return refused(keyword);
    }
    for alternatives in ["anyOf", "oneOf", "allOf"] {
        let branches = property.get(alternatives).and_then(Value::as_array).into_iter().flatten();
        let says_more = |branch: &Value| {
            let composed = COMPOSED.iter().any(|keyword| branch.get(*keyword).is_some());
            composed || OF_ANY.iter().chain(&OF_TEXT).chain(&OF_OTHERS).any(|keyword| branch.get(*keyword).is_some())
        };
        if branches.into_iter().any(says_more) {
            return refused(alternatives);
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keyword(refused: Result<(), Refused>) -> Option<String> {
        match refused {
            Ok(()) => None,
            Err(Refused::Keyword { keyword, .. }) => Some(keyword),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn what_tags_cannot_keep_of_text_is_named() {
        let of = |schema| keyword(only_text("f", "x", &schema));
        for kept in [
            json!({"type": "string", "maxLength": 3}),
            json!({"type": ["string", "null"]}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ] {
            assert_eq!(of(kept.clone()), None, "{kept}");
        }
        assert_eq!(
            of(json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]})).as_deref(),
            Some("anyOf")
        );
        assert_eq!(of(json!({"allOf": [{"$ref": "#/$defs/colour"}]})).as_deref(), Some("allOf"));
        assert_eq!(of(json!({"type": ["string", "array"], "items": {"type": "integer"}})).as_deref(), Some("items"));
    }

    #[test]
    fn what_tags_cannot_keep_of_arguments_is_named() {
        let of = |schema| keyword(only_properties("f", &schema));
        let properties = json!({"a": {"type": "string"}});
        assert_eq!(of(json!({"type": "object", "properties": properties, "required": ["a"]})), None);
        assert_eq!(of(json!({"type": "object"})), None);
        assert_eq!(of(json!({"properties": properties, "required": ["b"]})).as_deref(), Some("required"));
        assert_eq!(of(json!({"properties": properties, "minProperties": 1})).as_deref(), Some("minProperties"));
        assert_eq!(of(json!({"properties": properties, "anyOf": [{}]})).as_deref(), Some("anyOf"));
        assert_eq!(of(json!({"$ref": "#/$defs/all"})).as_deref(), Some("$ref"));
    }
}
