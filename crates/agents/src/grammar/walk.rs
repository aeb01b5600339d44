//! Every schema inside a schema, with where it is.

use serde_json::Value;

/// Calls `visit` with each schema, from the outside in, and its JSON pointer; stops at the first error.
pub(super) fn walk<E>(
    schema: &mut Value,
    path: &mut String,
    visit: &mut dyn FnMut(&mut Value, &str) -> Result<(), E>,
) -> Result<(), E> {
    visit(schema, path)?;
    let Value::Object(object) = schema else { return Ok(()) };
    for (keyword, value) in object {
        let length = path.len();
        path.push('/');
        path.push_str(&keyword.replace('~', "~0").replace('/', "~1"));
        if SCHEMAS.contains(&keyword.as_str()) {
            match value {
                Value::Array(values) => each(values.iter_mut().enumerate(), path, visit)?,
                schema => walk(schema, path, visit)?,
            }
        } else if let (true, Value::Object(values)) = (NAMED.contains(&keyword.as_str()), value) {
            each(values.iter_mut(), path, visit)?;
        }
        path.truncate(length);
    }
    Ok(())
}

fn each<'v, K: ToString, E>(
    schemas: impl Iterator<Item = (K, &'v mut Value)>,
    path: &mut String,
    visit: &mut dyn FnMut(&mut Value, &str) -> Result<(), E>,
) -> Result<(), E> {
    for (key, schema) in schemas {
        let length = path.len();
        path.push('/');
        path.push_str(&key.to_string().replace('~', "~0").replace('/', "~1"));
        walk(schema, path, visit)?;
        path.truncate(length);
    }
    Ok(())
}

/// Keywords whose value is a schema or a list of schemas.
const SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];

/// Keywords whose value has schemas by name.
const NAMED: [&str; 6] =
    ["$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties", "properties"];
