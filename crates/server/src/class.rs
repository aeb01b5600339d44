//! Which class a request is of: what its body, its header and the server's setting say.
//!
//! Three fields of the body speak of it, each by a convention that clients already follow: OpenAI's `service_tier`
//! (`priority`: a person waits, `flex`: nobody does) and `background`, and vLLM's `priority`, where lower is earlier
//! and 0 the default: above 0 nobody waits. Fields that speak must agree. `auto`, `default` and `background: false`
//! leave the choice open, as their absence does; then the header `x-duet-class` speaks, for clients that cannot change
//! the body, and last the server's default.

use crate::error::ApiError;
use crate::fields::{Fields, brief};
use axum::http::HeaderMap;
use duet_types::Class;
use serde_json::Value;

/// From so many parts on (prompts, inputs, questions) a request is background work unless it says otherwise: nobody reads
/// along.
pub(crate) const MANY: usize = 4;

/// What a request is served as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) class: Class,
    /// The class in OpenAI's words, for the response.
    pub(crate) tier: &'static str,
    chosen_by: ChosenBy,
}

/// Who chose a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChosenBy {
    Client,
    Default,
}

impl Service {
    /// Takes the fields that speak of the class.
    pub(crate) fn take(fields: &mut Fields, headers: &HeaderMap, default: Class) -> Result<Self, ApiError> {
        let tier = tier(fields)?;
        let claims = [
            ("service_tier", tier.and_then(Tier::class)),
            ("background", fields.boolean("background")?.unwrap_or(false).then_some(Class::Proactive)),
            ("priority", fields.integer("priority", i64::MIN..=i64::MAX)?.map(class_of_priority)),
        ];
        // A header that means nothing is refused even where the body has the last word.
        let header = from_header(headers)?;
        let said = agreed(claims)?.or(header);
        let chosen_by = if said.is_some() { ChosenBy::Client } else { ChosenBy::Default };
        let class = said.unwrap_or(default);
        let tier = match class {
            Class::Reactive if tier == Some(Tier::Priority) => "priority",
            Class::Reactive => "default",
            Class::Proactive => BACKGROUND,
        };
        Ok(Self { class, tier, chosen_by })
    }

    /// Makes it background work, unless the client said its class.
    pub(crate) fn demote(&mut self) {
        if self.chosen_by == ChosenBy::Default {
            (self.class, self.tier) = (Class::Proactive, BACKGROUND);
        }
    }
}

/// A `service_tier`, as far as it makes a difference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Priority,
    Open,
    Flex,
}

impl Tier {
    fn class(self) -> Option<Class> {
        match self {
            Self::Priority => Some(Class::Reactive),
            Self::Open => None,
            Self::Flex => Some(Class::Proactive),
        }
    }
}

fn tier(fields: &mut Fields) -> Result<Option<Tier>, ApiError> {
    let Some(name) = fields.string("service_tier")? else { return Ok(None) };
    match name.as_str() {
        "auto" | "default" => Ok(Some(Tier::Open)),
        "flex" => Ok(Some(Tier::Flex)),
        "priority" => Ok(Some(Tier::Priority)),
        _ => {
            let expected = "one of auto, default, flex, priority";
            Err(fields.out_of_range("service_tier", expected, &Value::String(name)))
        }
    }
}

/// vLLM's polarity: lower is earlier, and what says nothing is 0.
fn class_of_priority(priority: i64) -> Class {
    if priority <= 0 { Class::Reactive } else { Class::Proactive }
}

/// The class that all say who say one.
fn agreed(claims: [(&'static str, Option<Class>); 3]) -> Result<Option<Class>, ApiError> {
    let mut first = None;
    for (param, claim) in claims {
        match (first, claim) {
            (None, Some(class)) => first = Some((param, class)),
            (Some((with, agreed)), Some(class)) if class != agreed => {
                return Err(ApiError::Contradiction { param, with });
            }
            _ => {}
        }
    }
    Ok(first.map(|(_, class)| class))
}

/// What the header says, if it is there.
pub(crate) fn from_header(headers: &HeaderMap) -> Result<Option<Class>, ApiError> {
    let mut class = None;
    for value in headers.get_all(HEADER) {
        let given = match value.as_bytes() {
            b"reactive" => Class::Reactive,
            b"proactive" => Class::Proactive,
            other => return Err(bad_header(&String::from_utf8_lossy(other))),
        };
        if class.is_some_and(|class| class != given) {
            return Err(bad_header("both"));
        }
        class = Some(given);
    }
    Ok(class)
}

fn bad_header(got: &str) -> ApiError {
    let got = brief(&Value::String(got.to_owned()));
    ApiError::OutOfRange { param: HEADER.to_owned(), expected: "reactive or proactive".to_owned(), got }
}

/// What background work is called in responses.
const BACKGROUND: &str = "flex";
const HEADER: &str = "x-duet-class";
