//! Whether a thread takes part in teams, or stays away while other programs have its core.
//!
//! A team goes on when the last of its threads has come. A thread that shares its core with another program, a compiler
//! say, has it for some milliseconds and then not for as many, and the others wait for it: one busy program on one of
//! two cores makes both of them slower than one is alone. So a thread that waits for its core for more than it is worth
//! to its team stays away from teams: it parks, the other program has that core, and the team has the others. When some
//! time has passed it is tried again, and stays away for twice as long if it has to wait again.
//!
//! How long threads wait for their cores is known where the operating system tells ([`CoreTime`]); elsewhere none stays
//! away.

use crate::core_time::CoreTime;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a lane's threads stay away from teams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absences {
    /// Threads that are away now.
    pub away: u32,
    /// How often one of them began to stay away.
    pub begun: u64,
}

/// A thread's absences from teams. Teams' leaders ask and tell, on threads of their own.
#[derive(Debug, Default)]
pub(crate) struct Absence {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the thread was last looked at, and what it had got of its core by then.
    seen: Option<(Instant, CoreTime)>,
    /// When its last absence ends, or ended, and how long that is.
    last: Option<(Instant, Duration)>,
    /// How many there were.
    begun: u64,
}

impl Absence {
    /// When the thread may take part again, if it is away.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.state().last.map(|(until, _)| until).filter(|&until| now < until)
    }

    /// How many absences there were, with the one that it is in.
    pub(crate) fn begun(&self) -> u64 {
        self.state().begun
    }

    /// Called where the thread took part in a team of `size` threads. Looks now and then what the thread got of its core
    /// since the last look, by `read`, and lets it stay away if that was too little.
    pub(crate) fn look(&self, now: Instant, size: usize, read: impl FnOnce() -> Option<CoreTime>) {
        let mut state = self.state();
        if state.seen.is_some_and(|(seen, _)| now < seen + LOOK_EVERY) {
            return;
        }
        let Some(time) = read() else { return };
        let before = state.seen.replace((now, time));
        if before.is_some_and(|(_, before)| size > 1 && holds_up(time.since(before), size)) {
            state.stay_away(now);
        }
    }

    /// Has the thread stay away from `now` on. Returns until when.
    #[cfg(test)]
    pub(crate) fn begin(&self, now: Instant) -> Instant {
        self.state().stay_away(now);
        self.until(now).expect("it is away")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn stay_away(&mut self, now: Instant) {
        let length = match self.last {
            // It was back for no longer than it had been away.
            Some((until, length)) if now < until + length => (2 * length).min(LONGEST),
            _ => SHORTEST,
        };
        self.last = Some((now + length, length));
        self.begun += 1;
    }
}

/// Whether a team of `size` threads is faster without one that got this of its core. Without it the team loses one part in
/// `size` of its speed at most, where computing is the bottleneck, and less where memory is; with it, it loses what the
/// thread waits, and some more: what it has of its share when it loses its core, nobody can take over.
fn holds_up(time: CoreTime, size: usize) -> bool {
    let wanted = time.ran.0 + time.waited.0;
    wanted >= LEAST_WANTED.as_nanos() as u64 && time.waited.0 * (size as u64 + 1) > wanted
}

/// From one look to the next at least: some slices of a core's time, each of which one thread has for itself.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a thread must have wanted of its core between two looks: waits for less say little.
const LEAST_WANTED: Duration = Duration::from_millis(4);

/// How long a thread stays away at first: a few times what it takes to see that it must.
const SHORTEST: Duration = Duration::from_millis(40);

/// And at most: to try a thread again costs some 10 ms, so that is 2 % of the time.
const LONGEST: Duration = Duration::from_millis(640);

#[cfg(test)]
mod tests {
    use super::*;
    use duet_types::Nanos;

    /// A thread of a team of two, looked at every 10 ms.
    struct Thread {
        absence: Absence,
        now: Instant,
        time: CoreTime,
    }

    impl Thread {
        fn new() -> Self {
            let thread = Self { absence: Absence::default(), now: Instant::now(), time: CoreTime::default() };
            thread.absence.look(thread.now, 2, || Some(thread.time));
            thread
        }

        /// It wants its core for 10 ms, and waits for it for `waits` of them. Returns how long it is away then, in ms.
        fn works(&mut self, waits: u64, size: usize) -> u128 {
            self.time.ran.0 += 1_000_000 * (10 - waits);
            self.time.waited.0 += 1_000_000 * waits;
            self.passes(10);
            self.absence.look(self.now, size, || Some(self.time));
            self.absence.until(self.now).map_or(0, |until| (until - self.now).as_millis())
        }

        fn passes(&mut self, millis: u64) {
            self.now += Duration::from_millis(millis);
        }
    }

    #[test]
    fn a_thread_that_has_its_core_takes_part() {
        let mut thread = Thread::new();
        assert!((0..10).all(|_| thread.works(0, 2) == 0));
        assert!((0..10).all(|_| thread.works(3, 2) == 0), "it is worth more than it waits");
    }

    #[test]
    fn the_smaller_its_part_the_less_it_may_wait() {
        assert_eq!(Thread::new().works(3, 2), 0);
        assert_eq!(Thread::new().works(3, 3), 40);
        assert_eq!(Thread::new().works(1, 8), 0);
        assert_eq!(Thread::new().works(2, 8), 40);
    }

    #[test]
    fn absences_become_longer_while_others_have_the_core() {
        let mut thread = Thread::new();
        let mut lengths = Vec::new();
        for _ in 0..6 {
            let length = thread.works(5, 2);
            lengths.push(length);
            thread.passes(length as u64);
            assert_eq!(thread.absence.until(thread.now), None, "it is tried again");
        }
        assert_eq!(lengths, [40, 80, 160, 320, 640, 640]);
        assert_eq!(thread.absence.begun(), 6);
        assert!((0..70).all(|_| thread.works(0, 2) == 0));
        assert_eq!(thread.works(5, 2), 40, "it was back for longer than it had been away");
    }

    #[test]
    fn a_thread_alone_takes_part_however_long_it_waits() {
        let mut thread = Thread::new();
        assert_eq!(thread.works(9, 1), 0);
        assert_eq!(thread.works(0, 2), 0, "and what it waited then is not held against it later");
    }

    #[test]
    fn who_had_little_to_do_or_is_not_told_about_takes_part() {
        let mut thread = Thread::new();
        thread.time.waited = Nanos(3_000_000);
        thread.passes(10);
        thread.absence.look(thread.now, 2, || Some(thread.time));
        assert_eq!(thread.absence.until(thread.now), None);
        thread.passes(10);
        thread.absence.look(thread.now, 2, || None);
        assert_eq!(thread.absence.until(thread.now), None);
    }
}
