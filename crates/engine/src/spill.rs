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
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// What a table held, on disk.
#[derive(Debug)]
pub(crate) struct SpillFile {
    /// Absent when it is being dropped.
    file: Option<File>,
    len: Tokens,
    closing: Sender<File>,
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

/// To close a file is to give back all that it has on disk and in the system's memory, which takes milliseconds for a long
/// conversation's; and whoever gives it up may hold the engine's lock, or lead a kernel. So a thread of its own closes files.
impl Drop for SpillFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // Where the thread is gone, it is closed here.
        let _ = self.closing.send(file);
    }
}

/// Starts the thread that closes files. It ends when there is none any more, nor will be.
fn closing() -> io::Result<Sender<File>> {
    let (closing, files) = channel::<File>();
    std::thread::Builder::new().name("duet-close".to_owned()).spawn(move || files.into_iter().for_each(drop))?;
    Ok(closing)
}

impl<T: Table> Mover<T> {
    /// Starts the thread. `done` is called on it with what came of each job.
    pub(crate) fn start<B: Backend<Table = T>>(
        backend: Arc<B>,
        folder: PathBuf,
        done: impl Fn(Moved<T>) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let jobs = Arc::<Queue<Job<T>>>::default();
        let (given, closing) = (Arc::clone(&jobs), closing()?);
        let thread = std::thread::Builder::new()
            .name("duet-spill".to_owned())
            .spawn(move || work(&*backend, (&folder, &closing), &given, done))?;
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

fn work<B: Backend>(
    backend: &B,
    (folder, closing): (&PathBuf, &Sender<File>),
    jobs: &Queue<Job<B::Table>>,
    done: impl Fn(Moved<B::Table>),
) {
    while let Some(job) = jobs.next() {
        done(match job {
            Job::Save { request, table } => {
                let result = save(backend, (folder, closing), &table).map_err(|error| (table, error));
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

fn save<B: Backend>(
    backend: &B,
    (folder, closing): (&PathBuf, &Sender<File>),
    table: &B::Table,
) -> io::Result<SpillFile> {
    std::fs::create_dir_all(folder)?;
    let file = tempfile::tempfile_in(folder)?;
    let mut out = BufWriter::with_capacity(BUFFER, &file);
    backend.save(table, &mut out)?;
    out.flush()?;
    drop(out);
    Ok(SpillFile { file: Some(file), len: table.len(), closing: closing.clone() })
}

fn load<B: Backend>(backend: &B, file: &SpillFile, (positions, prefix): (Tokens, Tokens)) -> io::Result<B::Table> {
    let mut from = file.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
    from.seek(SeekFrom::Start(0))?;
    backend.load(positions, prefix, &mut BufReader::with_capacity(BUFFER, from))
}

/// Large enough that a page is a few system calls.
const BUFFER: usize = 1 << 20;
