//! A call as an item that grows.

use crate::reply::Call;
use serde_json::{Value, json};

/// A call whose arguments are coming.
#[derive(Debug)]
pub(super) struct OpenCall {
    id: String,
    call: Call,
}

impl OpenCall {
    pub(super) fn new(id: String, call: Call) -> Self {
        Self { id, call }
    }

    /// More of its arguments came.
    pub(super) fn push(&mut self, fragment: &str) {
        self.call.arguments += fragment;
    }

    /// The item as it stands.
    pub(super) fn item(&self, status: &str) -> Value {
        let Call { id, name, arguments, .. } = &self.call;
        json!({
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": id,
            "name": name,
            "arguments": arguments,
        })
    }

    /// Where its arguments are, as the item of this number.
    pub(super) fn place(&self, index: usize) -> Value {
        json!({"item_id": self.id, "output_index": index})
    }

    /// What is said when its arguments are whole.
    pub(super) fn done(&self) -> Value {
        json!({"name": self.call.name, "arguments": self.call.arguments})
    }
}
