//! A slice: a subject opened anew, actors that send it requests, and what became of them.
//!
//! Foreground actors come to an end; background actors go on until they are stopped. A slice is over when its
//! foreground is done and its window has passed, or at its deadline; what is under way then is cut and recorded as cut.

use super::LoadError;
use super::arrivals::{Arrival, Stream};
use super::job::{Answer, Job};
use super::record::{Fate, Record, Window};
use super::subject::Subject;
use super::target::{SendError, Target, TargetLane};
use duet_engine::EngineSamples;
use duet_types::Class;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// How long a slice takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// The background runs alone for this long before the window opens.
    pub(crate) warm_up: Duration,
    /// The time that counts.
    pub(crate) window: Duration,
    /// How long the foreground is waited for afterwards.
    pub(crate) drain: Duration,
}

/// Sends requests to a stage.
pub(crate) type Actor<'a> = &'a (dyn Fn(&Stage<'_>) + Sync);

/// What a slice left behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) window: Duration,
    pub(crate) records: Vec<Record>,
    /// Of the time since the window opened; absent where there was no engine to ask.
    pub(crate) samples: Option<EngineSamples>,
    /// The engine's lanes.
    pub(crate) lanes: Vec<TargetLane>,
}

/// Where actors act.
pub(crate) struct Stage<'a> {
    target: &'a dyn Target,
    window: Window,
    deadline: Instant,
    records: Mutex<Vec<Record>>,
    closed: AtomicBool,
    /// Told when the stage closes.
    curtain: (Mutex<()>, Condvar),
}

/// Plays one slice.
pub(crate) fn play(
    subject: &Subject,
    timing: Timing,
    foreground: &[Actor<'_>],
    background: &[Actor<'_>],
) -> Result<Slice, LoadError> {
    let target = subject.open()?;
    let opens = Instant::now() + timing.warm_up;
    let closes = opens + timing.window;
    let stage = Stage {
        target: &*target,
        window: Window { opens, closes },
        deadline: closes + timing.drain,
        records: Mutex::default(),
        closed: AtomicBool::new(false),
        curtain: (Mutex::new(()), Condvar::new()),
    };
    let samples = std::thread::scope(|scope| {
        let stage = &stage;
        let (foreground_done, watch) = mpsc::channel::<()>();
        scope.spawn(move || {
            let left = stage.deadline.saturating_duration_since(Instant::now());
            if watch.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Timeout) {
                stage.close();
            }
        });
        for actor in background {
            scope.spawn(move || actor(stage));
        }
        stage.sleep_until(Duration::ZERO);
        // What was sampled while warming up.
        let _ = stage.target.take_samples();
        let foreground: Vec<_> = foreground.iter().map(|actor| scope.spawn(move || actor(stage))).collect();
        for actor in foreground {
            // A panic of an actor is one of the scope, below.
            let _ = actor.join();
        }
        stage.sleep_until(timing.window);
        drop(foreground_done);
        let samples = (stage.target.take_samples(), stage.target.lanes());
        stage.close();
        samples
    });
    let records = stage.records.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (samples, lanes) = samples;
    let slice = Slice { window: timing.window, records, samples, lanes };
    match slice.all_failed() {
        Some(problem) => Err(LoadError::AllFailed { subject: subject.name(), problem }),
        None => Ok(slice),
    }
}

impl Stage<'_> {
    /// Sends a job now and waits for its end. `None` if it did not end well.
    pub(crate) fn send(&self, job: &Job) -> Option<Answer> {
        self.send_as_of(job, Instant::now(), Fate::Unfinished)
    }

    /// `if_closed` is what becomes of it if the slice is over first.
    fn send_as_of(&self, job: &Job, sent: Instant, if_closed: Fate) -> Option<Answer> {
        let mut answer = Answer::default();
        let fate = match self.target.send(job, self.deadline, &mut answer) {
            Ok(()) => Fate::Ended,
            Err(SendError::Closed) => if_closed,
            Err(SendError::Failed(error)) => Fate::Failed(error),
        };
        let whole = fate == Fate::Ended;
        let record = Record::new(job, sent, &answer, fate, self.window);
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
        whole.then_some(answer)
    }

    /// Sends each job at its time, whether or not those before it have ended (an open loop).
    pub(crate) fn play_arrivals(&self, plan: &[Arrival]) {
        std::thread::scope(|scope| {
            for arrival in plan {
                self.sleep_until(arrival.at);
                if self.is_closed() {
                    break;
                }
                let sent = Instant::now();
                scope.spawn(move || self.send_as_of(&arrival.job, sent, Fate::Unfinished));
            }
        });
    }

    /// Keeps `in_flight` jobs under way until the stage closes (a closed loop).
    pub(crate) fn keep_in_flight(&self, in_flight: usize, stream: &Stream<'_>) {
        std::thread::scope(|scope| {
            for _ in 0..in_flight {
                scope.spawn(|| {
                    while !self.is_closed() {
                        let Some(job) = stream.next() else { break };
                        // A server that refuses is not to be asked again at full speed.
                        if self.send_as_of(&job, Instant::now(), Fate::Cut).is_none() {
                            self.pause(Duration::from_millis(100));
                        }
                    }
                });
            }
        });
    }

    /// Sleeps until `at` on the window's clock, or until the stage closes.
    pub(crate) fn sleep_until(&self, at: Duration) {
        self.pause((self.window.opens + at).saturating_duration_since(Instant::now()));
    }

    /// Sleeps, or until the stage closes.
    pub(crate) fn pause(&self, span: Duration) {
        let (lock, closing) = &self.curtain;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = closing.wait_timeout_while(guard, span, |()| !self.is_closed());
    }

    /// Whether the slice is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        {
            let _guard = self.curtain.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.closed.store(true, Ordering::Release);
        }
        self.curtain.1.notify_all();
        self.target.close();
    }
}

impl Slice {
    /// The requests of a class that count, in the order of their stream.
    pub(crate) fn whole(&self, class: Class) -> Vec<&Record> {
        let mut whole: Vec<_> = self.records.iter().filter(|record| record.counts_as(class)).collect();
        whole.sort_by_key(|record| record.index);
        whole
    }

    /// Requests sent within the window that had not ended when the slice was over.
    pub(crate) fn unfinished(&self, class: Class) -> usize {
        let unfinished =
            |record: &&Record| record.class == class && record.arrival >= 0.0 && record.fate == Fate::Unfinished;
        self.records.iter().filter(unfinished).count()
    }

    /// The first error, if nothing ended well and something failed: such a slice measures nothing.
    fn all_failed(&self) -> Option<String> {
        let mut first = None;
        for record in &self.records {
            match &record.fate {
                Fate::Ended => return None,
                Fate::Cut | Fate::Unfinished => {}
                Fate::Failed(error) => first = first.or_else(|| Some(error.clone())),
            }
        }
        first
    }
}
