//! Whose interactions, of which task, of which model: what they are kept under.
//!
//! Names are texts, because they outlive the process: a tenant's number does not.
//! **Invariant:** two keys are equal only if user, task and model are; nothing is looked up by less than all three.

use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// Whose: the name of an API key. The default is nobody in particular, where there are no keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UserName(Arc<str>);

/// What for: a client's name for it, or a digest of the instructions. The default is without either.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TaskName(Arc<str>);

/// Which model said it. Token ids mean nothing under another tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelFingerprint(pub u64);

/// What interactions are kept under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey {
    /// The user who asked; drafts never cross from one to another.
    pub user: UserName,
    /// What for.
    pub task: TaskName,
    /// Which model's.
    pub model: ModelFingerprint,
}

/// Which tasks are meant. The default is all of them.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this user's.
    pub user: Option<UserName>,
    /// Only of this task.
    pub task: Option<TaskName>,
}

impl UserName {
    /// The holder of a key that has this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// The holder of a key without a name, by a digest of the key: its place in a list may be another's tomorrow.
    #[must_use]
    pub fn of_secret(secret: &[u8]) -> Self {
        Self(format!("key-{:016x}", digest(b"duet user", [secret])).into())
    }

    /// The name; empty for nobody in particular.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TaskName {
    /// A task that has a name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// The task of requests with these instructions; the default without any.
    #[must_use]
    pub fn of_instructions(instructions: &str) -> Self {
        if instructions.is_empty() {
            return Self::default();
        }
        Self(format!("system-{:016x}", digest(b"duet task", [instructions.as_bytes()])).into())
    }

    /// The name; empty for a task without one and without instructions.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ModelFingerprint {
    /// Of a model's name and the bytes of its tokens, in the order of their ids.
    #[must_use]
    pub fn of<'a>(name: &'a str, vocabulary: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self(digest(b"duet model", [name.as_bytes()].into_iter().chain(vocabulary)))
    }
}

impl fmt::Display for ModelFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Filter {
    /// Whether it means this task.
    #[must_use]
    pub fn matches(&self, key: &TaskKey) -> bool {
        let user = self.user.as_ref().is_none_or(|user| *user == key.user);
        let task = self.task.as_ref().is_none_or(|task| *task == key.task);
        user && task
    }
}

/// The first 64 bits of SHA-256 over the parts and their lengths, so that no two lists of parts look alike.
fn digest<'a>(domain: &[u8], parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = Sha256::new();
    hash.update(domain);
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let hash: [u8; 32] = hash.finalize().into();
    hash.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests are in files: they must be the same in every version and on every machine. These are Python's.
    #[test]
    fn digests_do_not_change() {
        assert_eq!(UserName::of_secret(b"sk-1").as_str(), "key-487ab2b350fa4d7e");
        assert_eq!(TaskName::of_instructions("Be brief.").as_str(), "system-f3a2d96d0f4df88c");
        assert_eq!(ModelFingerprint::of("m", [&b"a"[..], b"b"]).to_string(), "525d751c2b6c626d");
        assert_eq!(TaskName::of_instructions(""), TaskName::default());
    }

    #[test]
    fn what_differs_in_a_part_has_another_digest() {
        let of = |name, tokens: &[&'static [u8]]| ModelFingerprint::of(name, tokens.iter().copied());
        assert_ne!(of("m", &[b"ab", b"c"]), of("m", &[b"a", b"bc"]));
        assert_ne!(of("m", &[b"a"]), of("n", &[b"a"]));
        assert_ne!(UserName::of_secret(b"x").as_str()[4..], TaskName::of_instructions("x").as_str()[7..]);
    }
}
