//! Answers are drafted from earlier ones of the same user and task, and from what the model preferred in earlier ones of
//! the same user; from nobody else's.

use super::*;
use crate::drafting::Past;
use crate::request::Remember;
use duet_history::{HistoryStore, Limits, ModelFingerprint, TaskName, UserName};

struct Remembering {
    bench: Bench,
    history: Arc<HistoryStore>,
    _folder: tempfile::TempDir,
}

/// An engine that spells a text in which nothing comes twice, and drafts from history alone.
fn remembering() -> Remembering {
    drafting_by(Method::Sam)
}

fn drafting_by(speculate: Method) -> Remembering {
    let folder = tempfile::tempdir().unwrap();
    let history = Arc::new(HistoryStore::open(&folder.path().join("history"), Limits::default()).unwrap());
    let model = FakeModel { script: letters("abcdefghijklmnopqrstuvwxyz"), ..FakeModel::new(1000, 100) };
    let setup = Setup { chunk: 64, preempt_nodes: 100, speculate, ..setup() };
    let past = Past { store: Arc::clone(&history), model: ModelFingerprint(7) };
    Remembering { bench: Bench::with_past(model, &setup, Some(past)), history, _folder: folder }
}

/// How many drafted tokens of the answer to this user's request of this task were right.
fn accepted(remembering: &Remembering, user: &str, task: &str) -> Tokens {
    let (user, task) = (UserName::named(user), TaskName::named(task));
    let answer = remembering.bench.answer(GenerateRequest { user, task, ..spell() });
    assert_eq!(answer.text(), "abcdefghijklmnopqrstuvwxyz");
    remembering.history.flush();
    answer.usage().drafts.accepted
}

#[test]
fn the_second_answer_is_drafted_from_the_first() {
    let remembering = remembering();
    assert_eq!(accepted(&remembering, "ada", "spelling"), Tokens(0));
    assert!(accepted(&remembering, "ada", "spelling") > Tokens(10));
}

#[test]
fn another_user_or_task_is_not_drafted_from() {
    let remembering = remembering();
    accepted(&remembering, "ada", "spelling");
    assert_eq!(accepted(&remembering, "bob", "spelling"), Tokens(0));
    assert_eq!(accepted(&remembering, "ada", "counting"), Tokens(0));
}

#[test]
fn what_the_model_preferred_is_recycled_for_any_task_of_the_same_user() {
    let remembering = drafting_by(Method::Recycling);
    assert_eq!(accepted(&remembering, "ada", "spelling"), Tokens(0));
    let again = accepted(&remembering, "ada", "counting");
    assert!(again > Tokens(10), "{again}");
    assert_eq!(accepted(&remembering, "bob", "spelling"), Tokens(0));
}

#[test]
fn what_is_not_to_be_remembered_is_neither_kept_nor_recycled() {
    let remembering = drafting_by(Method::Duet);
    let (user, task) = (UserName::named("ada"), TaskName::named("spelling"));
    for _ in 0..2 {
        let request = GenerateRequest { remember: Remember::Nothing, ..spell() };
        let answer = remembering.bench.answer(GenerateRequest { user: user.clone(), task: task.clone(), ..request });
        assert_eq!(answer.usage().drafts.accepted, Tokens(0));
    }
    remembering.history.flush();
    assert!(remembering.history.list().is_empty());
}

#[test]
fn what_was_cancelled_is_not_kept() {
    let remembering = remembering();
    let (user, task) = (UserName::named("ada"), TaskName::named("spelling"));
    let mut request = GenerateRequest { user, task, ..spell() };
    request.prompt.insert(0, crate::fake_model::HOLD);
    let generation = remembering.bench.start(request);
    remembering.bench.hold.wait_until_reached(1);
    generation.cancel();
    remembering.bench.hold.let_go();
    answer(generation);
    remembering.history.flush();
    assert!(remembering.history.list().is_empty());
}
