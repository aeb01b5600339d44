//! The keeper: the one thread that touches the file and builds automata.
//!
//! It sleeps unless there is something to do. An interaction is first added to the automata of its task, if they are in
//! memory, so that the next request can draft from it; then, with all that came meanwhile, written in one transaction.
//! The automata of other tasks are built from the file when somebody asks for them, in steps that leave the cores to the
//! engine in between and other jobs their turn.
//! **Invariant:** an interaction is in the automata only if it is in the file or among those to be written next, unless
//! the file failed: then the memory goes on without it.

use crate::error::HistoryError;
use crate::file::{HistoryFile, TaskSummary};
use crate::generations::Generations;
use crate::index::Index;
use crate::interaction::{Interaction, Text};
use crate::key::{Filter, TaskKey};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Something to do.
pub(crate) enum Job {
    /// Keep it.
    Commit(Interaction),
    /// Build its automata.
    Want(TaskKey),
    /// Say when everything before it is done.
    Flush(Sender<()>),
    /// Say what there is.
    List(Sender<Vec<TaskSummary>>),
}

/// What the thread has.
pub(crate) struct Keeper {
    file: HistoryFile,
    index: Arc<Index>,
    /// Of the tasks in the index.
    generations: BTreeMap<TaskKey, Generations>,
    building: Option<Building>,
    /// To be built after that.
    wanted: VecDeque<TaskKey>,
    unwritten: Vec<Interaction>,
    flushing: Vec<Sender<()>>,
    health: Health,
}

/// Automata on their way to the index.
struct Building {
    key: TaskKey,
    generations: Generations,
    texts: VecDeque<Text>,
}

/// Whether the file can be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    Failed,
}

/// What comes next.
enum Next {
    Job(Job),
    /// Nothing came; there is work left.
    Work,
    End,
}

impl Keeper {
    pub(crate) fn new(file: HistoryFile, index: Arc<Index>) -> Self {
        Self {
            file,
            index,
            generations: BTreeMap::new(),
            building: None,
            wanted: VecDeque::new(),
            unwritten: Vec::new(),
            flushing: Vec::new(),
            health: Health::Good,
        }
    }

    /// Does what comes until nobody can send any more, and writes what is left.
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            match self.next(jobs) {
                Next::Job(job) => self.take(job),
                Next::Work => self.work(),
                Next::End => return self.write(),
            }
        }
    }

    fn next(&self, jobs: &Receiver<Job>) -> Next {
        let pause = match () {
            () if !self.unwritten.is_empty() => Duration::ZERO,
            () if self.building.is_some() => BUILD_PAUSE,
            () if !self.wanted.is_empty() || !self.flushing.is_empty() => Duration::ZERO,
            () => return jobs.recv().map_or(Next::End, Next::Job),
        };
        match jobs.recv_timeout(pause) {
            Ok(job) => Next::Job(job),
            Err(RecvTimeoutError::Timeout) => Next::Work,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Commit(interaction) => self.commit(interaction),
            Job::Want(key) => self.want(key),
            Job::Flush(done) => self.flushing.push(done),
            Job::List(to) => {
                // Whoever asked may have gone.
                let _ = to.send(self.file.list(&Filter::default()).collect());
            }
        }
    }

    fn commit(&mut self, mut interaction: Interaction) {
        interaction.text.truncate(self.file.limits.answer());
        let (key, text) = (interaction.key.clone(), interaction.text.clone());
        if self.health == Health::Good {
            self.unwritten.push(interaction);
        }
        if let Some(generations) = self.generations.get_mut(&key) {
            generations.add(text);
            self.publish(&key);
        } else if let Some(building) = self.building.as_mut().filter(|building| building.key == key) {
            building.texts.push_back(text);
        } else if self.health == Health::Good {
            // It is read back with what the task has in the file.
            self.write();
            self.want(key);
        }
        if self.unwritten.len() >= BATCH_MAX {
            self.write();
        }
    }

    fn want(&mut self, key: TaskKey) {
        let is_coming = self.building.as_ref().is_some_and(|building| building.key == key);
        if !is_coming && !self.wanted.contains(&key) && self.wanted.len() < WANTED_MAX {
            self.wanted.push_back(key);
        }
    }

    /// One thing that takes its time.
    fn work(&mut self) {
        if !self.unwritten.is_empty() {
            self.write();
        } else if self.building.is_some() {
            self.build();
        } else if let Some(key) = self.wanted.pop_front() {
            self.begin_building(key);
        } else {
            self.flushing.drain(..).for_each(|done| {
                // Whoever waited may have gone.
                let _ = done.send(());
            });
        }
    }

    fn write(&mut self) {
        if self.unwritten.is_empty() || self.health == Health::Failed {
            return self.unwritten.clear();
        }
        if let Err(error) = self.file.append(&self.unwritten) {
            self.fail(&error);
        }
        self.unwritten.clear();
    }

    fn begin_building(&mut self, key: TaskKey) {
        if self.generations.contains_key(&key) || self.health == Health::Failed {
            return;
        }
        let tokens = self.file.limits.indexed();
        match self.file.newest(&key, tokens) {
            Ok(texts) if texts.is_empty() => {}
            Ok(texts) => {
                self.building = Some(Building { key, generations: Generations::new(tokens), texts: texts.into() });
            }
            Err(error) => self.fail(&error),
        }
    }

    fn build(&mut self) {
        let Some(mut building) = self.building.take() else { return };
        let mut tokens = 0;
        while tokens < STEP_TOKENS {
            let Some(text) = building.texts.pop_front() else {
                self.generations.insert(building.key.clone(), building.generations);
                return self.publish(&building.key);
            };
            building.generations.load(&text);
            tokens += text.tokens().as_usize();
        }
        self.building = Some(building);
    }

    fn publish(&mut self, key: &TaskKey) {
        let Some(generations) = self.generations.get(key) else { return };
        let gone = self.index.publish(key, generations.shared(), generations.bytes(), self.file.limits.index);
        gone.iter().for_each(|key| {
            self.generations.remove(key);
        });
    }

    fn fail(&mut self, error: &HistoryError) {
        tracing::warn!("the history goes on in memory only: {error}");
        self.health = Health::Failed;
    }
}

/// Interactions in a transaction. More would be lost together.
const BATCH_MAX: usize = 64;
/// Tasks that wait to be built; who asks for more drafts without.
const WANTED_MAX: usize = 64;
/// Tokens that are read at a time: about half a millisecond.
const STEP_TOKENS: usize = 2048;
/// Between two steps, so that building takes a part of a core only.
const BUILD_PAUSE: Duration = Duration::from_millis(1);
