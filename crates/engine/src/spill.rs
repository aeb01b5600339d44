//! KV on disk: files that nobody else can open, and the one thread that reads and writes them.
//!
//! A file has no name and is gone when it is dropped, even if the process dies: conversations do not stay behind on a
//! disk. The thread sleeps unless there is something to move; it computes nothing. It also lets windows pass of what memory
//! cannot hold whole, since that moves as much. What a person waits for is read before
//! anything is written, and before what background work waits for.

use crate::backend::{Backend, Table};
use crate::by_class::Queue;
use duet_types::{Class, RequestId, Tokens};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What a table held, on disk.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    len: Tokens,
}

/// Something to move.
pub(crate) enum Job<T> {
    /// To disk.
    Save { request: RequestId, table: T },
    /// The first `prefix` positions to memory, of a sequence that is going to have so many.
    Load { request: RequestId, file: Arc<SpillFile>, prefix: Tokens, positions: Tokens },
    /// What is in memory, for a sequence that is going to have so many positions and does not fit whole.
    LetPass { request: RequestId, table: T, positions: Tokens },
}

/// What came of it.
pub(crate) enum Moved<T> {
    Saved { request: RequestId, result: Result<SpillFile, (T, io::Error)> },
    Loaded { request: RequestId, result: io::Result<T> },
}

/// The thread, as the world holds it. Dropping it lets the thread end after what it was given.
pub(crate) struct Mover<T> {
    jobs: Arc<Queue<Job<T>>>,
}

impl SpillFile {
    /// Positions in it.
    pub(crate) fn len(&self) -> Tokens {
        self.len
    }
}

impl<T: Table> Mover<T> {
    /// Starts the thread. `done` is called on it with what came of each job.
    pub(crate) fn start<B: Backend<Table = T>>(
        backend: Arc<B>,
        folder: PathBuf,
        done: impl Fn(Moved<T>) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let jobs = Arc::<Queue<Job<T>>>::default();
        let given = Arc::clone(&jobs);
        let thread = std::thread::Builder::new()
            .name("duet-spill".to_owned())
            .spawn(move || work(&*backend, &folder, &given, done))?;
        Ok((Self { jobs }, thread))
    }

    /// Queues a job for a request of this class. What is written makes room that somebody waits for some time later, so it
    /// goes behind what is read for a person.
    pub(crate) fn queue(&self, class: Class, job: Job<T>) {
        let class = if matches!(job, Job::Save { .. }) { Class::Proactive } else { class };
        self.jobs.add(class, job);
    }
}

impl<T> Drop for Mover<T> {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

fn work<B: Backend>(backend: &B, folder: &PathBuf, jobs: &Queue<Job<B::Table>>, done: impl Fn(Moved<B::Table>)) {
    while let Some(job) = jobs.next() {
        done(match job {
            Job::Save { request, table } => {
                let result = save(backend, folder, &table).map_err(|error| (table, error));
                Moved::Saved { request, result }
            }
            Job::Load { request, file, prefix, positions } => {
                Moved::Loaded { request, result: load(backend, &file, (positions, prefix)) }
            }
            Job::LetPass { request, mut table, positions } => {
                table.expect(positions);
                Moved::Loaded { request, result: Ok(table) }
            }
        });
    }
}

fn save<B: Backend>(backend: &B, folder: &PathBuf, table: &B::Table) -> io::Result<SpillFile> {
    std::fs::create_dir_all(folder)?;
    let file = tempfile::tempfile_in(folder)?;
    let mut out = BufWriter::with_capacity(BUFFER, &file);
    backend.save(table, &mut out)?;
    out.flush()?;
    drop(out);
    Ok(SpillFile { file, len: table.len() })
}

fn load<B: Backend>(backend: &B, file: &SpillFile, (positions, prefix): (Tokens, Tokens)) -> io::Result<B::Table> {
    let mut from = &file.file;
    from.seek(SeekFrom::Start(0))?;
    backend.load(positions, prefix, &mut BufReader::with_capacity(BUFFER, from))
}

/// Large enough that a page is a few system calls.
const BUFFER: usize = 1 << 20;
