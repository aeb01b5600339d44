//! API keys: who may ask, and as whom.
//!
//! Each key is a tenant of its own: the engine uses nothing of one tenant's for another. A server without keys has one
//! tenant, id 0; keys count from 1, in the order they were given.
//! **Invariant:** a secret is never shown, neither by `Debug` nor by an error.

use crate::auth::{Caller, Sight};
use duet_engine::UserName;
use duet_types::TenantId;
use std::fmt;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The keys that open a server; with none of them it is open to all.
#[derive(Clone, Default)]
pub struct ApiKeys {
    keys: Vec<ApiKey>,
}

#[derive(Clone)]
struct ApiKey {
    name: String,
    /// What its holder is called in the history.
    user: UserName,
    secret: Box<[u8]>,
    role: Role,
}

/// What a key's holder may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Its own flows.
    User,
    /// Every tenant's flows.
    Admin,
}

/// What is wrong with a list of keys. It names lines and no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyListError {
    /// A line breaks a rule; lines count from 1.
    #[error("line {line}: {rule}")]
    Line {
        /// Which line.
        line: usize,
        /// What is wrong with it.
        rule: KeyError,
    },
    /// A list that keeps nobody out, though it was surely meant to.
    #[error("there is no key in it")]
    Empty,
}

/// The rule that a key breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Too many words, or the first is unknown.
    #[error("expected `name:key`, `key` or `admin name:key`")]
    Form,
    /// No name before the colon, or an overlong one.
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    /// Nothing after the colon, or what a header cannot carry.
    #[error("a key has 1 to {SECRET_BYTES_MAX} bytes, all visible ASCII characters")]
    Secret,
    /// Flows are told apart by the name.
    #[error("the name '{0}' is taken by an earlier key")]
    NameTaken(String),
    /// One key for two tenants.
    #[error("the key is the same as that of '{0}'")]
    SecretTaken(String),
    /// A list beyond the bound.
    #[error("there are more than {KEYS_MAX} keys")]
    TooMany,
}

impl ApiKeys {
    /// Reads a list: `name:key`, `key` or `admin name:key` on each line, blank lines and `#` comments between them.
    /// A key without a name is called after its place, `key-1`.
    ///
    /// # Errors
    /// [`KeyListError`] for the first line that is wrong, and for a list without keys.
    pub fn parse(text: &str) -> Result<Self, KeyListError> {
        let mut keys = Self::default();
        for (index, line) in text.lines().enumerate() {
            keys.add_line(line).map_err(|rule| KeyListError::Line { line: index + 1, rule })?;
        }
        if keys.is_empty() { Err(KeyListError::Empty) } else { Ok(keys) }
    }

    /// Adds a key that sees its own flows.
    ///
    /// # Errors
    /// [`KeyError`] if it breaks a rule or repeats an earlier one.
    pub fn add(&mut self, name: &str, secret: &str) -> Result<(), KeyError> {
        self.push(name, UserName::named(name), secret, Role::User)
    }

    /// Whether there are none, and the server is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn add_line(&mut self, line: &str) -> Result<(), KeyError> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let (role, key) = match words[..] {
            [key] => (Role::User, key),
            ["admin", key] => (Role::Admin, key),
            _ => return Err(KeyError::Form),
        };
        match key.split_once(':') {
            Some((name, secret)) => self.push(name, UserName::named(name), secret, role),
            None => {
                let name = format!("key-{}", self.keys.len() + 1);
                self.push(&name, UserName::of_secret(key.as_bytes()), key, role)
            }
        }
    }

    fn push(&mut self, name: &str, user: UserName, secret: &str, role: Role) -> Result<(), KeyError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(KeyError::Name);
        }
        if secret.is_empty() || secret.len() > SECRET_BYTES_MAX || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError::Secret);
        }
        if let Some(other) = self.keys.iter().find(|key| *key.secret == *secret.as_bytes()) {
            return Err(KeyError::SecretTaken(other.name.clone()));
        }
        if self.keys.iter().any(|key| key.name == name) {
            return Err(KeyError::NameTaken(name.to_owned()));
        }
        if self.keys.len() == KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        self.keys.push(ApiKey { name: name.to_owned(), user, secret: secret.as_bytes().into(), role });
        Ok(())
    }

    /// Who holds this secret. Takes the same time whichever key it is and however much of it is right; only a secret's
    /// length can be told from outside.
    pub(crate) fn holder(&self, secret: &[u8]) -> Option<Caller> {
        let mut found = 0_u32;
        for (index, key) in self.keys.iter().enumerate() {
            let same: Choice = key.secret.ct_eq(secret);
            found.conditional_assign(&(index as u32 + 1), same);
        }
        let key = self.keys.get(found.checked_sub(1)? as usize)?;
        let sight = match key.role {
            Role::User => Sight::OwnTenant,
            Role::Admin => Sight::Everything,
        };
        Some(Caller { tenant: TenantId(found), sight })
    }

    /// What a tenant is called in the history. It stays the same when the list changes, which a number does not.
    pub(crate) fn user(&self, tenant: TenantId) -> UserName {
        let index = tenant.0.checked_sub(1);
        index.and_then(|index| self.keys.get(index as usize)).map(|key| key.user.clone()).unwrap_or_default()
    }

    /// What a tenant is called; none for the one of a server without keys.
    pub(crate) fn name(&self, tenant: TenantId) -> Option<&str> {
        let index = tenant.0.checked_sub(1)?;
        self.keys.get(index as usize).map(|key| key.name.as_str())
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| (&key.name, key.role))).finish()
    }
}

/// All keys are compared with every request's.
const KEYS_MAX: usize = 1024;
/// A name is shown in lists.
const NAME_BYTES_MAX: usize = 64;
/// Well within what HTTP servers and clients take as a header.
const SECRET_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        ApiKeys::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_list_has_names_admins_and_comments() {
        let keys = ApiKeys::parse("# people\n\nann:sk-1\r\n  sk-2\nadmin root:sk:3\n").unwrap();
        let holder = |secret: &str| keys.holder(secret.as_bytes());
        assert_eq!(holder("sk-1"), Some(Caller { tenant: TenantId(1), sight: Sight::OwnTenant }));
        assert_eq!(holder("sk-2"), Some(Caller { tenant: TenantId(2), sight: Sight::OwnTenant }));
        assert_eq!(holder("sk:3"), Some(Caller { tenant: TenantId(3), sight: Sight::Everything }));
        for stranger in ["", "sk", "sk-", "sk-1 ", "sk-10", "ann:sk-1"] {
            assert_eq!(holder(stranger), None, "{stranger}");
        }
        let names = [0, 1, 2, 3, 4].map(|tenant| keys.name(TenantId(tenant)));
        assert_eq!(names, [None, Some("ann"), Some("key-2"), Some("root"), None]);
    }

    /// A key that moves to another line takes its history along, and leaves none to the key that takes its place.
    #[test]
    fn users_keep_their_names_when_the_list_changes() {
        let users = |list: &str, count| {
            let keys = ApiKeys::parse(list).unwrap();
            (0..=count).map(|tenant| keys.user(TenantId(tenant))).collect::<Vec<_>>()
        };
        let before = users("sk-1\nann:sk-2\nsk-3", 3);
        assert_eq!((&before[0], &before[2]), (&UserName::default(), &UserName::named("ann")));
        let after = users("sk-3\nsk-1\nann:sk-4", 3);
        assert_eq!(after, [0, 3, 1, 2].map(|index| before[index].clone()));
        assert_ne!(before[1], before[3]);
        assert!(!before[1].as_str().contains("sk-1"));
    }

    #[test]
    fn a_wrong_line_is_named_and_no_secret_is_told() {
        assert_eq!(refusal("a:1\nboss b:2"), "line 2: expected `name:key`, `key` or `admin name:key`");
        assert_eq!(refusal("a:1\n:2"), "line 2: a name has 1 to 64 bytes");
        assert_eq!(refusal("a:"), "line 1: a key has 1 to 1024 bytes, all visible ASCII characters");
        assert_eq!(refusal("a:schlüssel"), "line 1: a key has 1 to 1024 bytes, all visible ASCII characters");
        assert_eq!(refusal("#\na:1\nb:1"), "line 3: the key is the same as that of 'a'");
        assert_eq!(refusal("a:1\na:2"), "line 2: the name 'a' is taken by an earlier key");
        assert_eq!(refusal("# none\n"), "there is no key in it");
        assert_eq!(refusal(&(0..=KEYS_MAX).map(|key| format!("k{key}\n")).collect::<String>()), {
            "line 1025: there are more than 1024 keys"
        });
        assert!(!format!("{:?}", ApiKeys::parse("ann:hidden").unwrap()).contains("hidden"));
    }
}
