//! References inside a schema.

use serde_json::Value;

/// What a reference leads to.
pub(super) fn target<'v>(root: &'v Value, reference: &str) -> Option<&'v Value> {
    match reference.strip_prefix("#/") {
        None => (reference == "#").then_some(root),
        Some(pointer) => pointer.split('/').try_fold(root, found),
    }
}

/// As the grammar's compiler looks things up: without any escapes.
fn found<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    match value {
        Value::Array(values) => values.get(key.parse::<usize>().ok()?),
        value => value.get(key),
    }
}
