//! A process that is killed while it writes, at any moment: all that it said was kept is there.

use duet_history::{
    Filter, HistoryFile, HistoryStore, Interaction, Limits, ModelFingerprint, TaskKey, TaskName, UserName,
};
use duet_types::{TokenId, Tokens};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Names the file to the process that is to be killed.
const CHILD: &str = "DUET_TEST_HISTORY_CHILD";
const ROUNDS: u64 = 40;

fn key() -> TaskKey {
    TaskKey { user: UserName::named("ann"), task: TaskName::named("kill"), model: ModelFingerprint(7) }
}

/// The answer that has this number. Long ones take several pages.
fn answer(number: u32) -> Vec<TokenId> {
    let len = 1 + number * 37 % 2000;
    std::iter::once(number).chain((0..len).map(|i| number.wrapping_mul(31) % 50_000 + i)).map(TokenId).collect()
}

fn limits() -> Limits {
    Limits { task: Tokens(u32::MAX), ..Limits::default() }
}

/// Not a test by itself: what [`what_was_acknowledged_survives_kill_9`] runs and kills.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let store = HistoryStore::open(Path::new(&path), limits()).unwrap();
    let mut next = u32::try_from(store.list().first().map_or(0, |task| task.interactions)).unwrap();
    loop {
        for _ in 0..=next % 5 {
            store.commit(Interaction::new(key(), &[TokenId(1); 9], &answer(next)));
            next += 1;
        }
        store.flush();
        writeln!(std::io::stdout(), "kept {next}").unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    let mut kept = 0;
    for round in 0..ROUNDS {
        kept = write_and_kill(&path, round).max(kept);
        let file = HistoryFile::open(&path, limits()).unwrap();
        let texts = file.newest(&key(), Tokens(u32::MAX)).unwrap();
        assert!(texts.len() >= kept as usize, "round {round}: {} of {kept}", texts.len());
        for (text, number) in texts.iter().zip(0..) {
            assert_eq!(text.answer(), answer(number), "round {round}");
        }
        let listed: Vec<_> = file.list(&Filter::default()).collect();
        assert_eq!(listed.iter().map(|task| task.interactions).sum::<u64>(), texts.len() as u64);
        assert_eq!(listed.iter().map(|task| task.tokens).sum::<Tokens>(), texts.iter().map(|text| text.tokens()).sum());
    }
    assert!(kept > 100, "only {kept} were written");
}

/// Killed while it makes the file, at any step of that.
#[test]
fn a_file_that_was_just_begun_opens_again() {
    for round in 0..30 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let mut child = child(&path);
        let begun = (0..200_000).any(|_| {
            std::thread::sleep(Duration::from_micros(20));
            fs::read_dir(folder.path()).unwrap().count() > 0
        });
        assert!(begun);
        std::thread::sleep(Duration::from_micros(round * 100));
        child.kill().unwrap();
        child.wait().unwrap();
        HistoryFile::open(&path, limits()).unwrap();
    }
}

/// Lets a process write for a while and kills it. Returns how many it said were kept.
fn write_and_kill(path: &Path, round: u64) -> u32 {
    let mut child = child(path);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Every third is killed at some moment while it opens the file; the others some moments after they have written.
    if !round.is_multiple_of(3) {
        for _ in 0..round % 7 {
            while !lines.next().unwrap().unwrap().contains("kept ") {}
        }
    }
    std::thread::sleep(Duration::from_micros(round * 7919 % 20_000));
    child.kill().unwrap();
    child.wait().unwrap();
    let said = lines.map_while(Result::ok).filter_map(|line| line.split("kept ").nth(1)?.parse().ok());
    said.last().unwrap_or(0)
}

fn child(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child_that_writes_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}
