//! Whether something finite fits a schema.
//!
//! A schema that must contain itself lets a model write for ever. Whatever is finite has a smallest form, in which no
//! definition is inside itself; so it is enough to look for one that follows no reference twice on its way.

use serde_json::{Map, Value};

/// Whether something finite may fit, as far as objects, lists and references tell. Gives up, and says yes, after
/// [`STEPS_MAX`] steps.
pub(super) fn may_end(root: &Value) -> bool {
    Search { root, way: Vec::new(), ended: Vec::new(), steps: 0 }.ends(root)
}

struct Search<'v> {
    root: &'v Value,
    /// References that were followed to come here.
    way: Vec<&'v str>,
    /// References of which it is known that they end, on whatever way.
    ended: Vec<&'v str>,
    steps: usize,
}

impl<'v> Search<'v> {
    fn ends(&mut self, schema: &'v Value) -> bool {
        self.steps += 1;
        let Value::Object(schema) = schema else { return true };
        if self.steps > STEPS_MAX {
            return true;
        }
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
        if self.way.len() > WAY_MAX {
            return true;
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

/// References in each other. Each is some levels of the caller's stack.
const WAY_MAX: usize = 64;
