//! The threads that read experts: a few, so that a disk has several reads to do at once.

use super::Shared;
use super::file::NotRead;
use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// They end when this is dropped.
#[derive(Debug)]
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

pub(super) const SIDE_BY_SIDE: usize = THREADS;

/// Fast disks are busy with two large reads; a third one's checksums are computed meanwhile.
const THREADS: usize = 3;

impl Readers {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let mut readers = Self { shared: Arc::clone(shared), threads: Vec::new() };
        for index in 0..THREADS {
            let shared = Arc::clone(shared);
            let name = format!("duet-experts-{index}");
            readers.threads.push(std::thread::Builder::new().name(name).spawn(move || shared.read_all())?);
        }
        Ok(readers)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.work.notify_all();
        // The last one to let go of a model may be a reader that tells somebody.
        let own = std::thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != own) {
            // One that has panicked has nothing left to say.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Reads what is wanted until the end.
    fn read_all(&self) {
        let mut state = self.lock();
        while !state.is_stopping {
            let Some(job) = state.next_job() else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let place = &self.places[job.place.layer][job.place.expert.index()];
            let begun = Instant::now();
            let read = self.file.read(place, job.slot);
            let took = begun.elapsed();
            state = self.lock();
            state.took(took);
            let tells = match read {
                Ok((feed, slot)) => state.arrived(job.place, feed, slot, place.blocks().len()),
                Err(NotRead { slot, problem }) => state.failed(job.place, slot, problem),
            };
            self.changed.notify_all();
            if !tells.is_empty() {
                drop(state);
                tells.into_iter().for_each(|tell| tell());
                state = self.lock();
            }
        }
    }
}
