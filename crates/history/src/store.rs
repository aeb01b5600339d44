//! The handle that an engine holds: what to draft from, and what to keep.

use crate::error::HistoryError;
use crate::file::{HistoryFile, TaskSummary};
use crate::index::Index;
use crate::interaction::Interaction;
use crate::keeper::{Job, Keeper};
use crate::key::TaskKey;
use crate::limits::Limits;
use duet_speculate::suffix_automaton::SuffixAutomaton;
use duet_types::Bytes;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

/// A history in use. Dropping it writes what was committed, and then lets go of the file.
pub struct HistoryStore {
    path: PathBuf,
    index: Arc<Index>,
    /// Present until it is dropped.
    jobs: Option<SyncSender<Job>>,
    keeper: Option<JoinHandle<()>>,
    dropped: AtomicU64,
}

/// What a history holds in memory, and what it could not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryStats {
    /// Tasks whose automata are in memory.
    pub tasks: usize,
    /// What these take, without what running requests still hold of older ones.
    pub index: Bytes,
    /// Interactions that were not kept, because too many came at once.
    pub dropped: u64,
}

impl HistoryStore {
    /// Opens a history, or begins one where there is no file, and starts its thread. Reads the file once, milliseconds
    /// for a megabyte: who does not want to wait opens it beside other work.
    ///
    /// # Errors
    /// [`HistoryError`] if another process has it open, if it is no history or damaged, or if the system refuses.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, HistoryError> {
        Self::start(HistoryFile::open(path, limits)?, path)
    }

    /// As [`Self::open`]; but a damaged file gets another name beside it, which is returned, and a new history begins.
    ///
    /// # Errors
    /// As of [`Self::open`]. A file that is no history is left alone.
    pub fn open_or_begin_anew(path: &Path, limits: Limits) -> Result<(Self, Option<PathBuf>), HistoryError> {
        let (file, aside) = HistoryFile::open_or_begin_anew(path, limits)?;
        Ok((Self::start(file, path)?, aside))
    }

    fn start(file: HistoryFile, path: &Path) -> Result<Self, HistoryError> {
        let index = Arc::new(Index::default());
        let (jobs, receiver) = sync_channel(QUEUE_MAX);
        let keeper = Keeper::new(file, Arc::clone(&index));
        let thread = std::thread::Builder::new()
            .name("duet-history".to_owned())
            .spawn(move || keeper.run(&receiver))
            .map_err(|error| HistoryError::io(path, error))?;
        let dropped = AtomicU64::new(0);
        Ok(Self { path: path.to_owned(), index, jobs: Some(jobs), keeper: Some(thread), dropped })
    }

    /// What a request may draft from: at most three automata, the oldest texts first. None if the task is new, or not in
    /// memory: then it is read in the background, for the requests that follow. Takes microseconds.
    #[must_use]
    pub fn for_task(&self, key: &TaskKey) -> Vec<Arc<SuffixAutomaton>> {
        self.index.find(key).unwrap_or_else(|| {
            // Without room in the queue the next request asks again.
            let _ = self.jobs.as_ref().map(|jobs| jobs.try_send(Job::Want(key.clone())));
            Vec::new()
        })
    }

    /// Keeps an interaction. Does not wait: it is written soon, or dropped, and the log says so, if too many are waiting.
    pub fn commit(&self, interaction: Interaction) {
        let Some(jobs) = &self.jobs else { return };
        let why = match jobs.try_send(Job::Commit(interaction)) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => "too many are waiting to be written",
            Err(TrySendError::Disconnected(_)) => "its thread has ended",
        };
        self.dropped.fetch_add(1, Ordering::Relaxed);
        tracing::warn!("an answer is not kept in the history: {why}");
    }

    /// Waits until what was committed before is on disk, and what was asked for in memory.
    pub fn flush(&self) {
        self.ask(Job::Flush);
    }

    /// All tasks of all users, by their keys. Waits for the file.
    #[must_use]
    pub fn list(&self) -> Vec<TaskSummary> {
        self.ask(Job::List).unwrap_or_default()
    }

    /// What it holds.
    #[must_use]
    pub fn stats(&self) -> HistoryStats {
        let (tasks, index) = self.index.size();
        HistoryStats { tasks, index, dropped: self.dropped.load(Ordering::Relaxed) }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Queues a job that answers and waits for the answer; none if the thread has ended.
    fn ask<T>(&self, job: impl FnOnce(std::sync::mpsc::Sender<T>) -> Job) -> Option<T> {
        let (answer, answered): (_, Receiver<T>) = channel();
        self.jobs.as_ref()?.send(job(answer)).ok()?;
        answered.recv().ok()
    }
}

impl Drop for HistoryStore {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(keeper) = self.keeper.take() {
            // If it panicked, its hook has said so.
            let _ = keeper.join();
        }
    }
}

impl fmt::Debug for HistoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryStore").field("path", &self.path).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Interactions that wait to be written. A disk that is so far behind will not catch up; longer answers are megabytes.
const QUEUE_MAX: usize = 256;
