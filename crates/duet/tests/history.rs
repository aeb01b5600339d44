//! What is kept of answers: what a person sees of it, and what happens where it cannot be used.

mod support;

use duet_engine::model_fingerprint;
use duet_history::{Filter, HistoryFile, Interaction, Limits, ModelFingerprint, TaskKey, TaskName, UserName};
use duet_types::TokenId;
use std::fs;
use std::path::{Path, PathBuf};
use support::{Run, duet, run};

/// A model of a few kilobytes, with a tokenizer.
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");

fn key(user: &str, task: &str, model: ModelFingerprint) -> TaskKey {
    TaskKey { user: UserName::named(user), task: TaskName::named(task), model }
}

/// A machine where ann, ben and somebody without a key have asked things, and nothing else.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn asked() -> Self {
        let machine = Self::new();
        let mut history = machine.open();
        let said = |user, task, model, answer: &[u32]| {
            let answer: Vec<_> = answer.iter().copied().map(TokenId).collect();
            Interaction::new(key(user, task, model), &[TokenId(1); 5], &answer)
        };
        let (name, tokenizer) = duet_model::open_tokenizer(Path::new(MODEL)).unwrap();
        let (this, other) = (model_fingerprint(&name, &tokenizer), ModelFingerprint(255));
        let answers = [
            said("ann", "mail", this, &[5, 6, 7]),
            said("ann", "a\u{1b}[2J", other, &[8]),
            said("ben", "mail", this, &[9, 10]),
            said("ben", "mail", this, &[11]),
            said("", "", this, &[12]),
        ];
        history.append(&answers).unwrap();
        machine
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state/duet/history.redb")
    }

    fn open(&self) -> HistoryFile {
        HistoryFile::open(&self.path(), Limits::default()).unwrap()
    }

    fn duet(&self, arguments: &[&str]) -> Run {
        run(&mut duet(self.folder.path(), arguments))
    }

    fn history(&self, arguments: &[&str]) -> Run {
        self.duet(&[&["history"], arguments].concat())
    }

    fn answers(&self) -> u64 {
        self.open().list(&Filter::default()).map(|task| task.interactions).sum()
    }
}

fn said(run: &Run) -> &str {
    assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{run:#?}");
    &run.stdout
}

#[test]
fn list_shows_who_has_how_much() {
    let machine = Machine::asked();
    let listed = machine.history(&["list"]);
    let words: Vec<Vec<&str>> = said(&listed).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["user", "task", "model", "answers", "tokens", "size"]);
    assert_eq!((words[1][..2].to_vec(), &words[1][3..5]), (vec!["-", "-"], &["1", "5"][..]));
    assert_eq!(words[2][..5], ["ann", "a\u{fffd}[2J", "00000000000000ff", "1", "5"]);
    assert_eq!((words[4][..2].to_vec(), &words[4][3..5]), (vec!["ben", "mail"], &["2", "11"][..]));
    assert_eq!(words.len(), 5);

    let json = machine.history(&["list", "--user", "ben", "--json"]);
    let json: serde_json::Value = serde_json::from_str(said(&json)).unwrap();
    assert_eq!(json["tasks"].as_array().unwrap().len(), 1);
    assert_eq!((&json["tasks"][0]["user"], &json["tasks"][0]["answers"]), (&"ben".into(), &2.into()));
    assert_eq!(said(&machine.history(&["list", "--user", "eve"])), "");
}

#[test]
fn export_has_the_tokens_and_where_the_model_is_known_the_text() {
    let machine = Machine::asked();
    let export = |arguments: &[&str]| {
        let exported = machine.history(&[&["export"], arguments].concat());
        let lines = said(&exported).lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<serde_json::Value>>()
    };
    assert_eq!(export(&[]).len(), 5);
    let anonymous = export(&["--user", ""]);
    assert_eq!((anonymous.len(), &anonymous[0]["answer"]), (1, &serde_json::json!([12])));
    let mails = export(&["--task", "mail", "--user", "ann"]);
    assert_eq!((mails.len(), &mails[0]["answer"]), (1, &serde_json::json!([5, 6, 7])));
    assert_eq!(mails[0]["prompt_end"], serde_json::json!([1, 1, 1, 1]));
    assert!(mails[0].get("text").is_none());

    let (_, tokenizer) = duet_model::open_tokenizer(Path::new(MODEL)).unwrap();
    let ann = export(&["--user", "ann", "--text", MODEL]);
    let text = |task: &str| ann.iter().find(|line| line["task"] == task).unwrap().get("text").cloned();
    assert_eq!(text("mail"), Some(tokenizer.decode(&[5, 6, 7].map(TokenId)).into()));
    assert_eq!(text("a\u{1b}[2J"), None, "another model's answer has no text");
    machine.history(&["export", "--text", "no-such-model"]).assert_refused(&["`no-such-model`"]);
}

#[test]
fn purge_asks_what_and_removes_that() {
    let machine = Machine::asked();
    machine.history(&["purge"]).assert_refused(&["--user", "--task", "--all"]);
    machine.history(&["purge", "--all", "--user", "ann"]).assert_refused(&["--all", "--user"]);
    assert_eq!(machine.answers(), 5);
    assert_eq!(said(&machine.history(&["purge", "--user", "ann", "--task", "mail"])), "1 answers purged\n");
    assert_eq!(said(&machine.history(&["purge", "--user", "ben"])), "2 answers purged\n");
    assert_eq!(said(&machine.history(&["purge", "--user", "eve"])), "0 answers purged\n");
    assert_eq!(machine.answers(), 2);
    let damaged = machine.path().with_extension("redb.damaged");
    fs::write(&damaged, "somebody's answers").unwrap();
    let some = machine.history(&["purge", "--user", "eve"]);
    assert!(some.stderr.contains("redb.damaged") && damaged.exists(), "{some:#?}");
    assert_eq!(said(&machine.history(&["purge", "--all"])), "2 answers purged\n");
    assert_eq!(machine.answers(), 0);
    let files = fs::read_dir(machine.path().parent().unwrap()).unwrap();
    assert_eq!(files.count(), 1, "nothing is left beside it");
}

#[test]
fn what_cannot_be_used_is_told_with_the_reason() {
    let machine = Machine::new();
    for command in [&["list"][..], &["export"], &["purge", "--all"]] {
        let none = machine.history(command);
        assert_eq!((none.status, none.stdout.as_str()), (0, ""), "{none:#?}");
        assert!(none.stderr.contains("no history yet"), "{none:#?}");
    }
    assert!(!machine.path().exists(), "looking begins none");
    let file = machine.folder.path().join("file");
    let file = file.to_str().unwrap();
    machine.history(&["list", "--history", file]).assert_refused(&["--history", file, "no such file"]);
    fs::write(file, "My diary.").unwrap();
    machine.history(&["list", "--history", file]).assert_refused(&[file, "not a history of duet"]);
    machine.history(&["purge", "--all", "--history", file]).assert_refused(&[file, "not a history of duet"]);
    assert_eq!(fs::read_to_string(file).unwrap(), "My diary.");

    let machine = Machine::asked();
    let whole = fs::read(machine.path()).unwrap();
    fs::write(machine.path(), &whole[..whole.len() / 2]).unwrap();
    machine.history(&["list"]).assert_refused(&["history.redb", "damaged", "delete it"]);
    fs::write(machine.path(), whole).unwrap();
    let _held = machine.open();
    for command in [&["list"][..], &["export"], &["purge", "--all"]] {
        machine.history(command).assert_failed(&["history.redb", "in use by another duet", "stop it"]);
    }
}

/// Answers are the same without a history; the person is told why there is none.
#[test]
fn run_goes_on_without_a_history_that_cannot_be_used() {
    let machine = Machine::new();
    let file = machine.folder.path().join("file");
    let path = file.to_str().unwrap();
    let ask = |arguments: &[&str]| {
        let run = ["run", MODEL, "ab", "--raw", "--max-tokens", "4", "--threads", "1"];
        let answered = machine.duet(&[&run, arguments].concat());
        assert_eq!(answered.status, 0, "{answered:#?}");
        (answered.stdout, answered.stderr)
    };
    let (answer, said) = ask(&[]);
    assert!(!said.contains("history"), "{said}");
    assert!(!machine.path().exists(), "run keeps nothing by itself");
    assert_eq!(ask(&["--history", "off"]).0, answer);

    fs::write(&file, "My diary.").unwrap();
    let (same, said) = ask(&["--history", path]);
    assert_eq!(same, answer);
    assert!(said.contains("warning: going on without a history:") && said.contains("not a history"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "My diary.");

    fs::remove_file(&file).unwrap();
    let (same, said) = ask(&["--history", path]);
    assert_eq!(same, answer);
    assert!(!said.contains("without a history"), "{said}");
    let held = HistoryFile::open(&file, Limits::default()).unwrap();
    let (same, said) = ask(&["--history", path]);
    assert_eq!(same, answer);
    assert!(said.contains("going on without a history:") && said.contains("in use by another duet"), "{said}");
    drop(held);
}
