//! What the grammar library says, for a client.

/// What a message says, without the state and the source that follow.
pub(super) fn brief(message: &str) -> String {
    let line = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it cannot be compiled");
    let mut brief: String = line.chars().take(MESSAGE_MAX).collect();
    if brief.len() < line.len() {
        brief.push('…');
    }
    brief
}

/// Characters of a message.
const MESSAGE_MAX: usize = 300;
