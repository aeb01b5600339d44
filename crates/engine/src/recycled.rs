//! What is recycled of each user's answers, while the engine runs. (Token recycling: `duet_speculate::recycling`)
//!
//! Nothing crosses from one user to another, nothing is written to disk, and of more users than [`USERS`] the one who
//! asked longest ago is forgotten.

use duet_history::UserName;
use duet_speculate::recycling::Recycled;
use duet_speculate::successors::Successors;
use duet_types::{Bytes, TokenId};
use std::sync::{Arc, Mutex, PoisonError};

/// Users whose answers are recycled, of a megabyte each.
const USERS: usize = 16;

/// Users, who asked last at the end.
#[derive(Debug, Default)]
pub(crate) struct RecycledByUser(Mutex<Vec<(UserName, Arc<Recycled>)>>);

impl RecycledByUser {
    /// What a request of this user may draft from.
    pub(crate) fn of(&self, user: &UserName) -> Arc<Recycled> {
        self.change(user, |recycled| Arc::clone(recycled))
    }

    /// A request of this user has ended. While others of the user's draft, what they draft from is not changed.
    pub(crate) fn learn(&self, user: &UserName, said: &[([TokenId; 2], Successors)]) {
        if said.is_empty() {
            return;
        }
        self.change(user, |recycled| {
            let recycled = Arc::make_mut(recycled);
            said.iter().for_each(|(context, successors)| recycled.learn(*context, successors));
        });
    }

    /// Bytes held of all users.
    pub(crate) fn bytes(&self) -> Bytes {
        let users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Bytes(users.iter().map(|(_, recycled)| recycled.bytes() as u64).sum())
    }

    fn change<R>(&self, user: &UserName, change: impl FnOnce(&mut Arc<Recycled>) -> R) -> R {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = users.iter().position(|(name, _)| name == user).map(|at| users.remove(at));
        let mut entry = known.unwrap_or_else(|| (user.clone(), Arc::default()));
        if users.len() == USERS {
            users.remove(0);
        }
        let result = change(&mut entry.1);
        users.push(entry);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(all: &RecycledByUser, name: &str) {
        let successors = Successors::new(&[(TokenId(3), 1.0)]);
        all.learn(&UserName::named(name), &[([TokenId(1), TokenId(2)], successors)]);
    }

    #[test]
    fn users_have_their_own_and_who_asked_longest_ago_is_forgotten() {
        let all = RecycledByUser::default();
        learn(&all, "first");
        let is_known = |name: &str| all.of(&UserName::named(name)).bytes() > 0;
        assert!(is_known("first") && !is_known("second"));
        for user in 0..USERS - 1 {
            assert!(is_known("first"));
            learn(&all, &user.to_string());
        }
        assert!(is_known("first") && !is_known("second"), "the first asked last but one");
        assert!(all.bytes() <= Bytes(USERS as u64 * (5 << 18)));
    }

    #[test]
    fn what_a_request_drafts_from_does_not_change_under_it() {
        let all = RecycledByUser::default();
        let begun = all.of(&UserName::default());
        learn(&all, "");
        assert_eq!(begun.bytes(), 0);
        assert!(all.of(&UserName::default()).bytes() > 0);
    }
}
