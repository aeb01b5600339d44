//! Whether a thread takes part in teams, or stays away while other programs have its core.
//!
//! A team goes on when the last of its threads has come. A thread that shares its core with another program, a compiler
//! say, has it for some milliseconds and then not for as many, and the others wait for it: one busy program on one of
//! two cores makes both of them slower than one is alone. So a thread that waits for its core for more than it is worth
//! to its team stays away from teams: it parks, the other program has that core, and the team has the others. When some
//! time has passed it is tried again, and stays away for twice as long if it has to wait again.
//!
//! Who leads a job runs it to its end, and a lane's only thread leads all of the lane's own jobs: they take part even while
//! they are away. How long threads wait for their cores is known where the operating system tells ([`CoreTime`]); elsewhere
//! none stays away.

use crate::core_time::CoreTime;
use crate::topology::Speed;
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
    /// Whether it held its team up when it was last looked at.
    noted: bool,
    /// When its last absence ends, or ended, and how long that is.
    last: Option<(Instant, Duration)>,
    /// How many there were.
    begun: u64,
}

/// What a look at a team's threads says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is worth more to its team than it waits.
    Helps,
    /// The team is faster without it.
    HoldsUp,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Looked {
    /// How fast the thread's core is.
    pub(crate) speed: Speed,
    /// What it got of it since the look before.
    pub(crate) time: CoreTime,
    /// Whether it has been away lately, so that one look that finds it holding its team up is enough.
    pub(crate) on_trial: bool,
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

    /// What the thread, which takes part in a team, got of its core since the last look; nothing if that is too short ago,
    /// if it wanted next to nothing, or if it is away already and leads all the same. `read` tells what it has got so far, of
    /// a core of this speed.
    pub(crate) fn look(&self, now: Instant, speed: Speed, read: impl FnOnce() -> Option<CoreTime>) -> Option<Looked> {
        if self.state().seen.is_some_and(|(seen, _)| now < seen + LOOK_EVERY) {
            return None;
        }
        // Without the lock, which others want at each launch.
        let time = read()?;
        let mut state = self.state();
        let (_, before) = state.seen.replace((now, time))?;
        let time = time.since(before);
        let is_told = time.ran.0 + time.waited.0 >= LEAST_WANTED.as_nanos() as u64;
        (is_told && !state.is_away(now)).then_some(Looked { speed, time, on_trial: state.is_on_trial(now) })
    }

    /// Lets the thread stay away if it holds its team up: at the second look that says so, since what happens once may be
    /// over; at the first if it has been away lately.
    pub(crate) fn judge(&self, now: Instant, verdict: Verdict) {
        let mut state = self.state();
        if state.is_away(now) {
            // Another leader has judged meanwhile.
            return;
        }
        let was_noted = std::mem::replace(&mut state.noted, verdict == Verdict::HoldsUp);
        if verdict == Verdict::HoldsUp && (was_noted || state.is_on_trial(now)) {
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
    fn is_away(&self, now: Instant) -> bool {
        self.last.is_some_and(|(until, _)| now < until)
    }

    /// Whether it has been back for no longer than it was away.
    fn is_on_trial(&self, now: Instant) -> bool {
        self.last.is_some_and(|(until, length)| now < until + length)
    }

    fn stay_away(&mut self, now: Instant) {
        let length = match self.last {
            Some((_, length)) if self.is_on_trial(now) => (2 * length).min(LONGEST),
            _ => SHORTEST,
        };
        self.last = Some((now + length, length));
        self.begun += 1;
        self.noted = false;
    }
}

/// Whom of those that were looked at a team is faster without. The team has `size` threads, whose speeds add up to `team`.
///
/// Without a thread the team loses the thread's part of its speed at most, where computing is the bottleneck, and less where
/// memory is. With it, it loses what the thread waits, and some more: what a thread has of its share when it loses its core,
/// nobody can take over. The fewer there are, the more each is worth, so they go one by one, who waits most first, as long
/// as the team gains; of those that wait about as long, one on trial; and one remains.
pub(crate) fn verdicts(looked: &[Looked], mut team: u64, mut size: usize) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Helps; looked.len()];
    while size > 1 {
        // The part of its time that a thread waits, over the part of the team's speed that it adds. Above 1 the team is faster
        // without it.
        let excess = |at: usize| {
            let Looked { speed, time, .. } = looked[at];
            let (speed, waited) = (f64::from(speed.0), time.waited.0 as f64);
            waited / (time.ran.0 as f64 + waited) * (team as f64 + speed) / speed
        };
        let left = (0..looked.len()).filter(|&at| verdicts[at] == Verdict::Helps);
        let too_slow = left.map(|at| (at, excess(at))).filter(|&(_, excess)| excess > 1.0);
        // Equally bad cores would take turns, each for the two looks of a first absence.
        let margin = |at: usize| if looked[at].on_trial { TRIAL_MARGIN } else { 1.0 };
        let worst = too_slow.max_by(|a, b| (a.1 * margin(a.0)).total_cmp(&(b.1 * margin(b.0))));
        let Some((most, _)) = worst else { break };
        verdicts[most] = Verdict::HoldsUp;
        team = team.saturating_sub(looked[most].speed.0.into());
        size -= 1;
    }
    verdicts
}

/// How much longer another thread must wait than one on trial to go first.
const TRIAL_MARGIN: f64 = 1.25;

/// From one look to the next at least: several of the slices in which a core's time is given to threads.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What a thread must have wanted of its core between two looks: waits for less say little.
const LEAST_WANTED: Duration = Duration::from_millis(4);

/// How long a thread stays away at first: a few times what it takes to see that it must.
const SHORTEST: Duration = Duration::from_millis(40);

/// And at most: to try one thread again costs some 10 ms, so that is 1 % of the time.
const LONGEST: Duration = Duration::from_millis(1280);

#[cfg(test)]
mod tests {
    use super::*;
    use duet_types::Nanos;

    fn got(ran_ms: u64, waited_ms: u64) -> CoreTime {
        CoreTime { ran: Nanos(1_000_000 * ran_ms), waited: Nanos(1_000_000 * waited_ms) }
    }

    /// A thread of a team of two whose other thread has its core, looked at every 10 ms.
    struct Thread {
        absence: Absence,
        now: Instant,
        time: CoreTime,
    }

    impl Thread {
        fn new() -> Self {
            let thread = Self { absence: Absence::default(), now: Instant::now(), time: CoreTime::default() };
            let first = thread.absence.look(thread.now, Speed::FULL, || Some(thread.time));
            assert_eq!(first, None, "since when is not known");
            thread
        }

        /// It wants its core for 10 ms, and waits for it for `waits` of them. Returns how long it is away then, in ms.
        fn works(&mut self, waits: u64) -> u128 {
            let got = got(10 - waits, waits);
            self.time =
                CoreTime { ran: Nanos(self.time.ran.0 + got.ran.0), waited: Nanos(self.time.waited.0 + got.waited.0) };
            self.passes(10);
            if let Some(looked) = self.absence.look(self.now, Speed::FULL, || Some(self.time)) {
                assert_eq!(looked.time, got);
                self.absence.judge(self.now, verdicts(&[looked], 2000, 2)[0]);
            }
            self.absence.until(self.now).map_or(0, |until| (until - self.now).as_millis())
        }

        fn passes(&mut self, millis: u64) {
            self.now += Duration::from_millis(millis);
        }
    }

    #[test]
    fn a_thread_that_has_its_core_takes_part() {
        let mut thread = Thread::new();
        assert!((0..10).all(|_| thread.works(0) == 0));
        assert!((0..10).all(|_| thread.works(3) == 0), "it is worth more than it waits");
        assert!((0..10).all(|at| thread.works(at % 2 * 5) == 0), "what happens once may be over");
    }

    #[test]
    fn absences_become_longer_while_others_have_the_core() {
        let mut thread = Thread::new();
        assert_eq!(thread.works(5), 0);
        let mut lengths = Vec::new();
        for _ in 0..7 {
            let length = thread.works(5);
            lengths.push(length);
            thread.passes(length as u64);
            assert_eq!(thread.absence.until(thread.now), None, "it is tried again");
        }
        assert_eq!(lengths, [40, 80, 160, 320, 640, 1280, 1280]);
        assert_eq!(thread.absence.begun(), 7);
        assert!((0..130).all(|_| thread.works(0) == 0));
        assert_eq!([thread.works(5), thread.works(5)], [0, 40], "it was back for longer than it had been away");
    }

    #[test]
    fn who_leads_while_it_is_away_is_not_judged() {
        let mut thread = Thread::new();
        assert_eq!([thread.works(5), thread.works(5)], [0, 40]);
        assert_eq!([thread.works(9), thread.works(9), thread.works(9)], [30, 20, 10]);
        assert_eq!(thread.works(0), 0);
        assert_eq!(thread.absence.begun(), 1);
    }

    #[test]
    fn who_had_little_to_do_or_is_not_told_about_takes_part() {
        let mut thread = Thread::new();
        thread.passes(10);
        assert_eq!(thread.absence.look(thread.now, Speed::FULL, || Some(got(0, 3))), None);
        thread.passes(10);
        assert_eq!(thread.absence.look(thread.now, Speed::FULL, || None), None);
    }

    fn looked(speed: u32, waited: u64) -> Looked {
        Looked { speed: Speed(speed), time: got(100 - waited, waited), on_trial: false }
    }

    /// How many of threads with the same speed their team is faster without, if they waited for these parts of 100 ms.
    fn left_out(waited: &[u64]) -> usize {
        let looked = |&waited: &u64| looked(1000, waited);
        let looked: Vec<Looked> = waited.iter().map(looked).collect();
        let verdicts = verdicts(&looked, 1000 * looked.len() as u64, looked.len());
        let out = verdicts.iter().filter(|&&verdict| verdict == Verdict::HoldsUp).count();
        let least_of_out = waited.iter().zip(&verdicts).filter(|(_, v)| **v == Verdict::HoldsUp).map(|(w, _)| w).min();
        let most_of_rest = waited.iter().zip(&verdicts).filter(|(_, v)| **v == Verdict::Helps).map(|(w, _)| w).max();
        assert!(least_of_out.is_none_or(|least| Some(least) >= most_of_rest), "who waits most goes first");
        out
    }

    #[test]
    fn the_smaller_its_part_the_less_a_thread_may_wait() {
        assert_eq!([left_out(&[0, 33]), left_out(&[0, 34])], [0, 1]);
        assert_eq!([left_out(&[0, 0, 0, 0, 0, 0, 0, 11]), left_out(&[0, 0, 12, 0, 0, 0, 0, 0])], [0, 1]);
        assert_eq!(left_out(&[50, 0, 50, 0]), 2);
    }

    #[test]
    fn as_many_remain_as_are_fastest_together() {
        assert_eq!(left_out(&[90]), 0);
        assert_eq!(left_out(&[50, 50]), 1);
        // n threads that each wait 11 % of the time do n × 0.89^n: eight and nine do most.
        assert_eq!(left_out(&[11; 16]), 8);
        assert_eq!(left_out(&[0; 16]), 0);
    }

    #[test]
    fn of_two_that_wait_about_as_long_the_one_on_trial_goes() {
        let of_two = |other, waited| {
            let tried = Looked { on_trial: true, ..looked(1000, waited) };
            verdicts(&[looked(1000, other), tried], 2000, 2)
        };
        assert_eq!(of_two(60, 50), [Verdict::Helps, Verdict::HoldsUp]);
        assert_eq!(of_two(66, 50), [Verdict::HoldsUp, Verdict::Helps]);
        assert_eq!(of_two(60, 30), [Verdict::HoldsUp, Verdict::Helps], "it is worth more than it waits");
    }

    #[test]
    fn a_fast_core_may_be_waited_for_longer() {
        let of_ten = |fast, slow| {
            let looked: Vec<Looked> =
                [looked(1000, fast), looked(1000, 0)].into_iter().chain([looked(550, slow); 8]).collect();
            verdicts(&looked, 2 * 1000 + 8 * 550, 10).iter().filter(|&&verdict| verdict == Verdict::HoldsUp).count()
        };
        assert_eq!([of_ten(13, 0), of_ten(14, 0)], [0, 1], "it is a sixth of the team");
        assert_eq!([of_ten(0, 7), of_ten(0, 8), of_ten(0, 9)], [0, 1, 2], "of a twelfth each");
    }
}
