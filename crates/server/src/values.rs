//! JSON values with a bound on how many there are.
//!
//! A value in memory takes 72 bytes, however short it is in the text: ten megabytes of `[0,0,…]` would be half a
//! gigabyte. So values are counted while they are built, and the text is given up where there are too many. Fields
//! that nobody will look at are not built at all.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// How many values there may still be.
#[derive(Debug)]
pub(crate) struct Room {
    left: Cell<Option<usize>>,
}

impl Room {
    pub(crate) fn new(most: usize) -> Self {
        Self { left: Cell::new(Some(most)) }
    }

    /// Whether there were more than there may be.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.left.get().is_none()
    }

    fn take<E: Error>(&self) -> Result<(), E> {
        let left = self.left.get().and_then(|left| left.checked_sub(1));
        self.left.set(left);
        if left.is_some() { Ok(()) } else { Err(E::custom("too many values")) }
    }
}

/// A request's body.
pub(crate) enum Body {
    /// An object: its known fields, and the names of those of its other fields that are not `null`.
    Object { map: Map<String, Value>, skipped: Vec<String> },
    /// Something else, in words.
    Other(&'static str),
}

impl Body {
    /// Reads a whole text.
    pub(crate) fn parse(text: &[u8], is_known: &dyn Fn(&str) -> bool, room: &Room) -> Result<Self, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(text);
        let body = reader.deserialize_any(BodyVisitor { is_known, room })?;
        reader.end()?;
        Ok(body)
    }
}

struct BodyVisitor<'a> {
    is_known: &'a dyn Fn(&str) -> bool,
    room: &'a Room,
}

impl<'de> Visitor<'de> for BodyVisitor<'_> {
    type Value = Body;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Body, A::Error> {
        let (mut map, mut skipped) = (Map::new(), Vec::new());
        while let Some(name) = access.next_key::<String>()? {
            self.room.take()?;
            if (self.is_known)(&name) {
                let value = access.next_value_seed(ValueSeed { room: self.room })?;
                map.insert(name, value);
            } else if access.next_value::<Option<IgnoredAny>>()?.is_some() {
                skipped.push(name);
            }
        }
        Ok(Body::Object { map, skipped })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Body, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Body::Other("an array"))
    }

    fn visit_str<E>(self, _: &str) -> Result<Body, E> {
        Ok(Body::Other("a string"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Body, E> {
        Ok(Body::Other("a boolean"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Body, E> {
        Ok(Body::Other("an integer"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Body, E> {
        Ok(Body::Other("an integer"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Body, E> {
        Ok(Body::Other("a fractional number"))
    }

    fn visit_unit<E>(self) -> Result<Body, E> {
        Ok(Body::Other("null"))
    }
}

/// Builds a value and counts it and those within it.
#[derive(Clone, Copy)]
struct ValueSeed<'a> {
    room: &'a Room,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.room.take()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            map.insert(name, access.next_value_seed(self)?);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_known(name: &str) -> bool {
        ["a", "b"].contains(&name)
    }

    fn check(text: &str, most: usize, expected: &str) {
        let room = Room::new(most);
        let seen = match Body::parse(text.as_bytes(), &is_known, &room) {
            Ok(Body::Object { map, skipped }) => format!("{} {skipped:?}", Value::Object(map)),
            Ok(Body::Other(kind)) => kind.to_owned(),
            Err(_) if room.is_exceeded() => "too many".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_is_not_known_is_skipped_and_named() {
        check(
            r#"{"a": [1, {"x": null}], "x": [0, 0, 0], "y": null, "b": -0.5}"#,
            9,
            r#"{"a":[1,{"x":null}],"b":-0.5} ["x"]"#,
        );
        check(r#"{"a": 1, "a": "é"}"#, 9, r#"{"a":"é"} []"#);
        check("[1, 2]", 9, "an array");
        check("7", 9, "an integer");
        check("null", 9, "null");
        check(r#"{"a": 1} x"#, 9, "trailing characters at line 1 column 10");
        check(r#"{"x": [0, }"#, 9, "expected value at line 1 column 11");
    }

    #[test]
    fn values_are_counted_and_skipped_ones_are_not() {
        check(r#"{"a": [0, 0, 0]}"#, 5, r#"{"a":[0,0,0]} []"#);
        check(r#"{"a": [0, 0, 0, 0]}"#, 5, "too many");
        check(r#"{"a": {"x": {"y": {}}}}"#, 3, "too many");
        check(r#"{"x": [0, 0, 0, 0, 0, 0]}"#, 1, r#"{} ["x"]"#);
        check(r#"{"x": 0, "y": 0}"#, 1, "too many");
    }

    /// Arrays within arrays without end must not exhaust the stack, known or not.
    #[test]
    fn nesting_is_bounded() {
        let nested = |name: &str| format!("{{\"{name}\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        check(&nested("a"), 1_000_000, "recursion limit exceeded at line 1 column 133");
        check(&nested("x"), 1_000_000, r#"{} ["x"]"#);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e9..1e9_f64).prop_map(Value::from),
            ".{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let map = prop::collection::btree_map("[a-d]", inner.clone(), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..6).prop_map(Value::from),
                map.prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// What is built is what `serde_json` builds.
        #[test]
        fn values_are_those_of_serde_json(value in value()) {
            let text = value.to_string();
            match (serde_json::from_str::<Value>(&text), Body::parse(text.as_bytes(), &is_known, &Room::new(1000))) {
                (Ok(Value::Object(expected)), Ok(Body::Object { map, skipped })) => {
                    for (name, value) in &expected {
                        prop_assert_eq!(map.get(name), is_known(name).then_some(value));
                        prop_assert_eq!(skipped.contains(name), !is_known(name) && !value.is_null());
                    }
                }
                (Ok(other), Ok(Body::Other(kind))) => prop_assert_eq!(kind, crate::fields::type_name(&other)),
                (expected, ours) => prop_assert!(false, "{:?}, but is an object: {}", expected, ours.is_ok()),
            }
        }
    }
}
