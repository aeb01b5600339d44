//! Turns of several calls as turns of one: for templates that take no more.
//!
//! Llama 3's refuse a turn of two. Its calls become turns, one after the other, each followed by its result.

use crate::messages::{ChatMessage, Role};

/// `messages` with one call a turn.
pub(super) fn at_a_time(messages: &[ChatMessage]) -> Vec<ChatMessage> {
    let mut apart = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let [message, after @ ..] = rest {
        let calls = message.calls();
        let results = after.iter().take_while(|message| message.role == Role::Tool).count();
        let (results, after) = after.split_at(if calls.len() > 1 { results } else { 0 });
        rest = after;
        if calls.len() < 2 {
            apart.push(message.clone());
            continue;
        }
        let mut results: Vec<&ChatMessage> = results.iter().collect();
        for (index, call) in calls.iter().enumerate() {
            let mut turn = ChatMessage { tool_calls: Some([call.clone()].into_iter().collect()), ..message.clone() };
            if index > 0 {
                (turn.content, turn.reasoning) = (String::new(), None);
            }
            apart.push(turn);
            // By its id; without one, by its place.
            let id = call["id"].as_str();
            let found = results.iter().position(|result| match result.tool_call_id.as_deref() {
                Some(answered) => Some(answered) == id,
                None => true,
            });
            apart.extend(found.map(|at| results.remove(at).clone()));
        }
        apart.extend(results.into_iter().cloned());
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_call_is_followed_by_its_result() {
        let calls = json!([{"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}}]);
        let calling = ChatMessage {
            tool_calls: Some(calls),
            reasoning: Some("both".to_owned()),
            ..ChatMessage::said(Role::Assistant, "Let me see.".to_owned())
        };
        let result = |id: &str, content: &str| ChatMessage {
            tool_call_id: Some(id.to_owned()),
            ..ChatMessage::said(Role::Tool, content.to_owned())
        };
        let user = ChatMessage::said(Role::User, "Well?".to_owned());
        let apart = at_a_time(&[user.clone(), calling, result("b", "2"), result("a", "1"), user]);
        let told: Vec<(Role, &str, usize)> =
            apart.iter().map(|message| (message.role, message.content.as_str(), message.calls().len())).collect();
        let expected = [
            (Role::User, "Well?", 0),
            (Role::Assistant, "Let me see.", 1),
            (Role::Tool, "1", 0),
            (Role::Assistant, "", 1),
            (Role::Tool, "2", 0),
            (Role::User, "Well?", 0),
        ];
        assert_eq!(told, expected);
        assert_eq!((apart[1].reasoning.as_deref(), apart[3].reasoning.as_deref()), (Some("both"), None));
    }
}
