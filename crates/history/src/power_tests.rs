//! A machine that stops at any write. A disk may keep what it was not yet waited for, lose it, or keep a part of it, in any
//! order; what it was waited for it keeps.

use super::*;
use crate::key::{ModelFingerprint, TaskName, UserName};
use duet_types::TokenId;
use proptest::prelude::*;
use redb::{BackendError, StorageBackend};
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

/// What a database told its disk.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Length(usize),
    Sync,
}

/// A disk that remembers what it was told.
#[derive(Clone, Debug, Default)]
struct Recording(Arc<Mutex<Tape>>);

#[derive(Debug, Default)]
struct Tape {
    image: Vec<u8>,
    steps: Vec<Step>,
}

impl Recording {
    fn tell(&self, step: Step) {
        let mut tape = self.0.lock().unwrap();
        apply(&mut tape.image, &step);
        tape.steps.push(step);
    }

    fn steps(&self) -> usize {
        self.0.lock().unwrap().steps.len()
    }
}

impl StorageBackend for Recording {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().image.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let tape = self.0.lock().unwrap();
        let bytes = tape.image.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.tell(Step::Length(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.tell(Step::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.tell(Step::Write(offset as usize, data.to_vec()));
        Ok(())
    }

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }
}

fn apply(image: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write(offset, bytes) => {
            image.resize(image.len().max(offset + bytes.len()), 0);
            image[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Step::Length(len) => image.resize(*len, 0),
        Step::Sync => {}
    }
}

/// A run: what the disk was told, and after how many steps each answer was said to be kept.
struct Run {
    steps: Vec<Step>,
    kept: Vec<usize>,
}

const ANSWERS: u32 = 8;

fn key() -> TaskKey {
    TaskKey { user: UserName::named("ann"), task: TaskName::named("power"), model: ModelFingerprint(7) }
}

/// The answer that has this number. Long ones take several pages.
fn answer(number: u32) -> Vec<TokenId> {
    std::iter::once(number).chain((0..1 + number * 997 % 6000).map(|i| i * 31 + number)).map(TokenId).collect()
}

fn limits() -> Limits {
    Limits { task: Tokens(u32::MAX), ..Limits::default() }
}

fn record() -> Run {
    let disk = Recording::default();
    let create = || Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone());
    let mut file = HistoryFile::begin_on(Path::new("no file"), limits(), create).unwrap();
    let begun = disk.steps();
    let mut kept = vec![begun];
    for number in 0..ANSWERS {
        file.append(&[Interaction::new(key(), &[TokenId(1); 9], &answer(number))]).unwrap();
        kept.push(disk.steps());
    }
    drop(file);
    let steps = disk.0.lock().unwrap().steps.clone();
    Run { steps, kept }
}

/// What is on the disk if the machine stops after so many steps. `chance` decides, sector by sector, what became of those
/// that the disk was not waited for.
fn stopped(steps: &[Step], chance: &mut impl FnMut() -> bool) -> Vec<u8> {
    const SECTOR: usize = 512;
    let synced = steps.iter().rposition(|step| matches!(step, Step::Sync)).map_or(0, |last| last + 1);
    let mut image = Vec::new();
    steps[..synced].iter().for_each(|step| apply(&mut image, step));
    for step in &steps[synced..] {
        match step {
            Step::Write(offset, bytes) => {
                let mut at = 0;
                while at < bytes.len() {
                    let end = ((offset + at + 1).next_multiple_of(SECTOR) - offset).min(bytes.len());
                    if chance() {
                        apply(&mut image, &Step::Write(offset + at, bytes[at..end].to_vec()));
                    }
                    at = end;
                }
            }
            step => {
                if chance() {
                    apply(&mut image, step);
                }
            }
        }
    }
    image
}

/// Opens what is left: everything that was said to be kept is there, in order, and goes on being kept.
fn check(run: &Run, stop: usize, chance: &mut impl FnMut() -> bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    fs::write(&path, stopped(&run.steps[..stop], chance)).unwrap();
    let mut file = HistoryFile::open(&path, limits()).unwrap_or_else(|error| panic!("step {stop}: {error}"));
    let said = run.kept.iter().filter(|&&kept| kept <= stop).count() - 1;
    let texts = file.newest(&key(), Tokens(u32::MAX)).unwrap();
    assert!((said..=said + 1).contains(&texts.len()), "step {stop}: {} of {said}", texts.len());
    for (text, number) in texts.iter().zip(0..) {
        assert_eq!(text.answer(), answer(number), "step {stop}");
    }
    file.append(&[Interaction::new(key(), &[], &answer(3))]).unwrap();
    assert_eq!(file.newest(&key(), Tokens(u32::MAX)).unwrap().len(), texts.len() + 1);
}

#[test]
fn what_was_kept_is_there_wherever_the_machine_stops() {
    let run = record();
    let begun = run.kept[0];
    // Nothing, all, and every other one of what the disk was not waited for; then whatever comes.
    for stop in begun..=run.steps.len() {
        check(&run, stop, &mut || false);
        check(&run, stop, &mut || true);
        let mut odd = false;
        check(&run, stop, &mut || {
            odd = !odd;
            odd
        });
    }
    let random = (begun..=run.steps.len(), any::<u64>());
    proptest!(ProptestConfig::with_cases(60), |((stop, seed) in random)| {
        let mut state = seed | 1;
        check(&run, stop, &mut || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 63 == 1
        });
    });
}
