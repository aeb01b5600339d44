//! `GET /openapi.json`: what this server takes and gives, as OpenAPI 3.1.
//!
//! A route's request is described from the very list of fields that its body is taken apart by ([`Known`]), so no field can
//! be served and not be described, or be described and not served; what each may be stands in `fields`. Replies stand in
//! `replies`, closed: a reply with a field that is not there breaks the tests of the API, which hold every reply that they
//! get against this document. `tests` compares the routes.
//!
//! [`Known`]: crate::fields::Known

mod fields;
mod operations;
mod replies;
mod schema;
#[cfg(test)]
mod tests;

use axum::http::header;
use axum::response::IntoResponse;
use operations::{ERROR, Gives, OPERATIONS, Operation, Refusals};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

pub(crate) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi())
}

/// What the server takes and gives, as an OpenAPI document.
#[must_use]
pub fn openapi() -> &'static str {
    &TEXT
}

static TEXT: LazyLock<String> = LazyLock::new(|| whole().to_string());

fn whole() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "duet",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A field that is not described has no effect, and is listed in the response header \
                `x-duet-ignored-fields`. `null` is the same as absent.",
        },
        // Keys are asked for where the server has some.
        "security": [{}, {"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": replies::schemas(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    })
}

fn described(operation: &Operation) -> Value {
    let mut described = json!({
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": responses(operation),
    });
    if let Some(takes) = &operation.takes {
        let property = |name: &'static str| {
            let schema = fields::of(operation.path, name).unwrap_or_default();
            let required = takes.required.contains(&name);
            (name.to_owned(), if required { schema } else { schema::or_null(schema) })
        };
        let schema = json!({
            "type": "object",
            "properties": takes.fields().map(property).collect::<Map<_, _>>(),
            "required": takes.required,
        });
        let content = json!({"schema": schema, "example": (takes.example)()});
        described["requestBody"] = json!({"required": true, "content": {"application/json": content}});
    }
    described
}

fn parameters(operation: &Operation) -> Value {
    let in_path = operation.path.split(['{', '}']).skip(1).step_by(2);
    let in_path = in_path.map(|name| parameter("path", name, &json!({"type": "string", "minLength": 1}), true));
    let in_query = operation.queries.iter().map(|(name, schema)| parameter("query", name, &schema(), false));
    let has_class = operation.takes.as_ref().is_some_and(|takes| takes.fields().any(|name| name == "service_tier"));
    let class = json!({"enum": ["reactive", "proactive"]});
    let class = has_class.then(|| parameter("header", "x-duet-class", &class, false));
    in_path.chain(in_query).chain(class).collect()
}

fn parameter(place: &str, name: &str, schema: &Value, required: bool) -> Value {
    json!({"name": name, "in": place, "required": required, "schema": schema})
}

fn responses(operation: &Operation) -> Value {
    let mut responses = Map::new();
    if !operation.gives.is_empty() {
        let mut content = Map::new();
        for gives in operation.gives {
            let (kind, schema) = match *gives {
                Gives::Json(name) => ("application/json", schema::named(name)),
                // Tools disagree on what such a schema is of.
                Gives::Events => ("text/event-stream", json!({})),
                Gives::Lines => ("application/x-ndjson", json!({"type": "string"})),
                Gives::Text(kind) => (kind, json!({"type": "string"})),
            };
            content.insert(kind.to_owned(), json!({"schema": schema}));
        }
        let mut given = json!({"description": "what was asked for", "content": content});
        if operation.takes.is_some() {
            let fields = json!({"description": "fields that have no effect", "schema": {"type": "string"}});
            given["headers"] = json!({"x-duet-ignored-fields": fields});
        }
        responses.insert("200".to_owned(), given);
    }
    for status in operation.refusals.statuses() {
        let mut shapes = vec![schema::named(operation.errors)];
        if let (Refusals::NotWell(name), "503") = (operation.refusals, *status) {
            shapes.push(schema::named(name));
        }
        // Who refuses whole connections and hosts knows of no route.
        if ["403", "503"].contains(status) && operation.errors != ERROR {
            shapes.push(schema::named(ERROR));
        }
        let content = json!({"application/json": {"schema": schema::either(&shapes)}});
        responses.insert((*status).to_owned(), json!({"description": "why it was refused", "content": content}));
    }
    Value::Object(responses)
}
