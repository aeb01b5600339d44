//! Whether something finite fits a schema.
//!
//! A schema that must contain itself lets a model write for ever. Whatever is finite has a smallest form, in which no
//! definition is inside itself; so it is enough to look for one that follows no reference twice on its way.

use serde_json::{Map, Value};

/// Whether something finite may fit, as far as objects, lists and references tell. Gives up, and says yes, after
/// [`STEPS_MAX`] steps and beyond [`DEPTH_MAX`].
pub(super) fn may_end(root: &Value) -> bool {
    Search { root, way: Vec::new(), ended: Vec::new(), depth: 0, steps: 0 }.ends(root)
}

struct Search<'v> {
    root: &'v Value,
    /// References that were followed to come here.
    way: Vec<&'v str>,
    /// References of which it is known that they end, on whatever way.
    ended: Vec<&'v str>,
    /// Schemas that this one is in, through references as well.
    depth: usize,
    steps: usize,
}

impl<'v> Search<'v> {
    fn ends(&mut self, schema: &'v Value) -> bool {
        self.steps += 1;
        let Value::Object(schema) = schema else { return true };
        if self.steps > STEPS_MAX || self.depth > DEPTH_MAX {
            return true;
        }
        self.depth += 1;
        let ends = self.all_keywords_end(schema);
        self.depth -= 1;
        ends
    }

    fn all_keywords_end(&mut self, schema: &'v Map<String, Value>) -> bool {
        let list = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
        list("anyOf").is_none_or(|schemas| schemas.iter().any(|schema| self.ends(schema)))
            && list("oneOf").is_none_or(|schemas| schemas.iter().any(|schema| self.ends(schema)))
            && list("allOf").is_none_or(|schemas| schemas.iter().all(|schema| self.ends(schema)))
            && schema.get("$ref").and_then(Value::as_str).is_none_or(|reference| self.reference_ends(reference))
            && (!is_only(schema, "object") || self.object_ends(schema))
            && (!is_only(schema, "array") || self.array_ends(schema))
    }

    fn reference_ends(&mut self, reference: &'v str) -> bool {
        if self.ended.contains(&reference) {
            return true;
        }
        if self.way.contains(&reference) {
            return false;
        }
        let target = super::reference::target(self.root, reference);
        self.way.push(reference);
        let ends = target.is_none_or(|schema| self.ends(schema));
        self.way.pop();
        self.ended.extend(ends.then_some(reference));
        ends
    }

    fn object_ends(&mut self, schema: &'v Map<String, Value>) -> bool {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let mut required = required.filter_map(|key| properties?.get(key.as_str()?));
        required.all(|schema| self.ends(schema))
    }

    fn array_ends(&mut self, schema: &'v Map<String, Value>) -> bool {
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        least == 0 || schema.get("items").is_none_or(|items| self.ends(items))
    }
}

/// Whether only this type may be: its keywords bind nothing else.
fn is_only(schema: &Map<String, Value>, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == name,
        _ => false,
    }
}

/// What any schema of a person takes, many times over.
const STEPS_MAX: usize = 20_000;

/// Schemas in each other. Each is some levels of the caller's stack.
const DEPTH_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_definitions_that_lead_one_into_another_take_little_stack() {
        let nested = |inner: Value| (0..60).fold(inner, |inner, _| json!({"anyOf": [inner]}));
        let mut definitions: Map<String, Value> =
            (0..64).map(|n| (n.to_string(), nested(json!({"$ref": format!("#/$defs/{}", n + 1)})))).collect();
        definitions.insert("64".to_owned(), json!({"type": "null"}));
        let root = json!({"$ref": "#/$defs/0", "$defs": definitions});
        let little = std::thread::Builder::new().stack_size(512 << 10);
        assert!(little.spawn(move || may_end(&root)).unwrap().join().unwrap());
    }
}
