//! What requests hold before the engine has them: bytes of their bodies, and turns at work on them.
//!
//! **Memory.** Bodies of more than [`SMALL_BYTES`] hold a share of [`ServerConfig::intake_bytes_max`] from before they are
//! read until their prompt is tokens; what has no room is refused (429) before it takes any. Small ones are bounded by
//! the number of connections.
//!
//! **Pace.** What is beyond the first [`SMALL_BYTES`] of bodies is read at [`LARGE_BYTES_A_SECOND`] in all: copying is work as
//! well, and clients that send without end could keep the processor busy with it. They wait in their own sockets instead.
//!
//! **Turns.** Taking a body apart and tokenising take the processor, which belongs to the lanes, so there are two serial
//! queues for that and no more threads than two: one for small requests that people wait for, and one for all others, in
//! which people's go first. A small request never waits behind a large one, nor a person's behind the background's.
//!
//! [`ServerConfig::intake_bytes_max`]: crate::ServerConfig::intake_bytes_max

use crate::error::ApiError;
use duet_types::Class;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// A body is small up to here: it is taken apart in less than a millisecond and tokenised in a few.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

/// The queues and the memory of requests that come in.
#[derive(Debug)]
pub(crate) struct Intake {
    /// A permit for each kilobyte.
    memory: Arc<Semaphore>,
    pace: Arc<Pace>,
    small_reactive: Arc<Turns>,
    others: Arc<Turns>,
}

impl Intake {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            memory: Arc::new(Semaphore::new(bytes_max / KILOBYTE)),
            pace: Arc::default(),
            small_reactive: Arc::default(),
            others: Arc::default(),
        }
    }

    /// Room for a body.
    pub(crate) fn hold(&self) -> Hold {
        Hold { memory: Arc::clone(&self.memory), share: None, bytes: SMALL_BYTES }
    }

    /// The pace of large bodies.
    pub(crate) fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// Waits for a turn of a request whose body has so many bytes.
    pub(crate) async fn turn(&self, class: Class, bytes: usize) -> Turn {
        let is_quick = class == Class::Reactive && bytes <= SMALL_BYTES;
        let turns = if is_quick { &self.small_reactive } else { &self.others };
        turns.take(class).await
    }
}

/// The share of memory that one body has; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    memory: Arc<Semaphore>,
    share: Option<OwnedSemaphorePermit>,
    /// What it suffices for.
    bytes: usize,
}

impl Hold {
    /// Makes it suffice for a body of so many bytes.
    ///
    /// # Errors
    /// [`ApiError::IntakeFull`] if other bodies have the memory.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let more = (bytes - self.bytes).div_ceil(KILOBYTE);
        let permits = u32::try_from(more).map_err(|_| ApiError::IntakeFull)?;
        let share = Arc::clone(&self.memory).try_acquire_many_owned(permits).map_err(|_| ApiError::IntakeFull)?;
        self.bytes += more * KILOBYTE;
        match &mut self.share {
            Some(held) => held.merge(share),
            None => self.share = Some(share),
        }
        Ok(())
    }
}

/// Lets so many bytes a second through, whoever sends them.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When all that was let through is paid for; absent before the first.
    paid: Mutex<Option<Instant>>,
}

impl Pace {
    /// Waits until so many bytes more may be read after these.
    pub(crate) async fn let_through(&self, bytes: usize) {
        let paid = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let cost = Duration::from_secs_f64(bytes as f64 / LARGE_BYTES_A_SECOND);
            let until = paid.map_or(now, |paid| paid.max(now)) + cost;
            *paid = Some(until);
            until
        };
        tokio::time::sleep_until(paid).await;
    }
}

/// Some tenth of a core's time goes into reading and parsing so much; the longest body takes a sixth of a second.
const LARGE_BYTES_A_SECOND: f64 = 64e6;

/// A serial queue in which people go first.
#[derive(Debug, Default)]
struct Turns {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    is_taken: bool,
    reactive: VecDeque<oneshot::Sender<Turn>>,
    proactive: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to work; dropped, it goes to the next.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
}

impl Turns {
    async fn take(self: &Arc<Self>, class: Class) -> Turn {
        let (sender, receiver) = oneshot::channel();
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::replace(&mut queue.is_taken, true) {
                return Turn { turns: Arc::clone(self) };
            }
            queue.add(class, sender);
        }
        // Whoever has the turn passes it on, and the queue is never dropped while one waits in it.
        receiver.await.unwrap_or_else(|_| Turn { turns: Arc::clone(self) })
    }
}

impl Queue {
    /// Lets one wait. Those who have gone are forgotten now and then, so that they are never more than those who have not, but
    /// for a few.
    fn add(&mut self, class: Class, sender: oneshot::Sender<Turn>) {
        let waiting = match class {
            Class::Reactive => &mut self.reactive,
            Class::Proactive => &mut self.proactive,
        };
        if waiting.len() == waiting.capacity() {
            waiting.retain(|waiting| !waiting.is_closed());
            waiting.reserve(waiting.len().max(FEW));
        }
        waiting.push_back(sender);
    }

    /// Who is next; nobody has the turn if none waits.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let next = loop {
            match self.reactive.pop_front().or_else(|| self.proactive.pop_front()) {
                Some(gone) if gone.is_closed() => {}
                next => break next,
            }
        };
        self.is_taken = next.is_some();
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = self.turns.queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        if let Some(next) = next {
            // If that one has gone this moment, the turn comes back, is dropped here and goes on to the one after it.
            drop(next.send(Self { turns: Arc::clone(&self.turns) }));
        }
    }
}

/// Waiting requests that are not looked through.
const FEW: usize = 64;

const KILOBYTE: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn people_go_first_and_small_requests_wait_for_no_large_one() {
        let intake = Intake::new(1 << 20);
        let Poll::Ready(large) = poll(pin!(intake.turn(Class::Reactive, 1 << 20))) else { panic!("nobody has it") };
        let Poll::Ready(small) = poll(pin!(intake.turn(Class::Reactive, 100))) else { panic!("it has its own queue") };
        let mut background = pin!(intake.turn(Class::Proactive, 100));
        let mut person = pin!(intake.turn(Class::Reactive, 1 << 20));
        assert!(poll(background.as_mut()).is_pending());
        assert!(poll(person.as_mut()).is_pending());
        drop(large);
        assert!(poll(background.as_mut()).is_pending());
        let Poll::Ready(large) = poll(person.as_mut()) else { panic!("a person goes first") };
        drop(large);
        assert!(poll(background.as_mut()).is_ready());
        drop(small);
    }

    #[test]
    fn the_turn_of_one_that_has_gone_goes_to_the_next() {
        let intake = Intake::new(1 << 20);
        let Poll::Ready(first) = poll(pin!(intake.turn(Class::Proactive, 1))) else { panic!("nobody has it") };
        {
            let mut gone = pin!(intake.turn(Class::Reactive, 1 << 20));
            assert!(poll(gone.as_mut()).is_pending());
        }
        let mut next = pin!(intake.turn(Class::Proactive, 1));
        assert!(poll(next.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(next) = poll(next.as_mut()) else { panic!("it is free") };
        drop(next);
        assert!(poll(pin!(intake.turn(Class::Proactive, 1))).is_ready());
    }

    /// Clients that ask and go at once, while another has the turn.
    #[test]
    fn those_who_have_gone_take_neither_memory_nor_stack() {
        let intake = Intake::new(1 << 20);
        let Poll::Ready(first) = poll(pin!(intake.turn(Class::Proactive, 1))) else { panic!("nobody has it") };
        for _ in 0..100_000 {
            assert!(poll(pin!(intake.turn(Class::Proactive, 1))).is_pending());
        }
        assert!(intake.others.queue.lock().unwrap().proactive.len() <= 2 * FEW);
        let mut waiting: Vec<_> = (0..100_000).map(|_| Box::pin(intake.turn(Class::Proactive, 1))).collect();
        assert!(waiting.iter_mut().all(|turn| poll(turn.as_mut()).is_pending()));
        let last = waiting.pop();
        drop(waiting);
        drop(first);
        assert!(poll(last.unwrap().as_mut()).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_share_a_pace() {
        let intake = Intake::new(1 << 20);
        let begun = Instant::now();
        let send = async || {
            for _ in 0..100 {
                intake.pace().let_through(64_000).await;
            }
        };
        tokio::join!(send(), send());
        let took = begun.elapsed().as_secs_f64();
        assert!((took - 12.8e6 / LARGE_BYTES_A_SECOND).abs() < 0.1, "{took} s");
        tokio::time::sleep(Duration::from_secs(10)).await;
        let begun = Instant::now();
        intake.pace().let_through(64_000).await;
        assert!(begun.elapsed() < Duration::from_millis(10), "no debt is left, and no credit was saved");
    }

    #[test]
    fn memory_is_shared_until_it_is_given_back() {
        let intake = Intake::new(1 << 20);
        let mut one = intake.hold();
        assert!(one.grow(SMALL_BYTES).is_ok(), "small bodies take no share");
        assert!(one.grow(600 << 10).is_ok());
        assert!(one.grow(900 << 10).is_ok());
        let mut other = intake.hold();
        assert!(other.grow(SMALL_BYTES).is_ok());
        assert!(matches!(other.grow(600 << 10), Err(ApiError::IntakeFull)));
        drop(one);
        assert!(other.grow(600 << 10).is_ok());
        assert!(matches!(other.grow(2 << 20), Err(ApiError::IntakeFull)));
    }
}
