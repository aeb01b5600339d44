//! Rules for templates that take them in one message, and only at the beginning.

use crate::messages::{ChatMessage, Role};

/// The rules at the beginning as one message, and later ones told by the user. Nothing where that is as it was.
pub(crate) fn at_the_beginning(messages: &[ChatMessage]) -> Option<Vec<ChatMessage>> {
    let first = messages.iter().take_while(|message| message.role == Role::System).count();
    let (rules, after) = messages.split_at(first);
    if first < 2 && after.iter().all(|message| message.role != Role::System) {
        return None;
    }
    let joined: Vec<&str> = rules.iter().map(|message| message.content.as_str()).collect();
    let rules = (first > 0).then(|| ChatMessage::said(Role::System, joined.join("\n\n")));
    let after = after.iter().map(|message| match message.role {
        Role::System => ChatMessage { role: Role::User, ..message.clone() },
        _ => message.clone(),
    });
    Some(rules.into_iter().chain(after).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(role: Role, content: &str) -> ChatMessage {
        ChatMessage::said(role, content.to_owned())
    }

    #[test]
    fn first_rules_are_joined_and_later_ones_told_by_the_user() {
        let messages =
            [said(Role::System, "a"), said(Role::System, "b"), said(Role::User, "c"), said(Role::System, "d")];
        let expected = [said(Role::System, "a\n\nb"), said(Role::User, "c"), said(Role::User, "d")];
        assert_eq!(at_the_beginning(&messages).unwrap(), expected);
        assert_eq!(at_the_beginning(&expected), None);
    }
}
