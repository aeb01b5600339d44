//! Ageing: no proactive request waits for ever.
//!
//! A proactive request older than the threshold is *overdue*. It then has the paper's two privileges, neither of which
//! suspends reactive work: its prefill may use the dynamic lane while reactive prefill stays on the static one, and
//! after it, it joins the decode batch whatever the cap says. (Agent.xpu §4.5 ③)
//!
//! Where lanes are not enough for that (all of them may be a reactive request's team), overdue work is *owed* a share of
//! machine time, 5 % by default: it accrues with the clock while anything is overdue and is paid in kernels between
//! reactive ones, the oldest first that can run. Nothing accrues while none can: all wait for memory or for a disk, could not use
//! their share, and paid at once when they can, that would keep a person waiting. So a request that has memory ends at the latest
//! `age + work / share` after its arrival, where its work is its own time alone on the machine and that of those overdue
//! before it, and what its disk takes comes on top.

use duet_types::{Instant, Nanos};

/// What overdue work is owed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ageing {
    share: f64,
    age: Nanos,
    owed: f64,
    since: Instant,
}

impl Ageing {
    pub(crate) fn new(share: f64, age: Nanos) -> Self {
        Self { share, age, owed: 0.0, since: Instant::default() }
    }

    /// Whether something that arrived then is overdue.
    pub(crate) fn is_overdue(&self, now: Instant, arrived: Instant) -> bool {
        now - arrived >= self.age
    }

    /// When something that arrived then will be overdue.
    pub(crate) fn due(&self, arrived: Instant) -> Instant {
        arrived + self.age
    }

    /// Lets time pass; `overdue` says whether anything was overdue in it.
    pub(crate) fn advance(&mut self, now: Instant, overdue: Overdue) {
        let passed = now - self.since;
        self.since = now;
        self.owed = match overdue {
            Overdue::Nothing => 0.0,
            Overdue::WithoutMemory => self.owed,
            Overdue::Something => self.owed + self.share * passed.0 as f64,
        };
    }

    /// Overdue work ran for so long on this part of the machine, where a kernel of its own takes so long by prediction.
    pub(crate) fn pay(&mut self, time: Nanos, part: f64, own: Nanos) {
        // What it got beyond its due is not held against it for longer than one kernel, and one that hung was of no use.
        self.owed = (self.owed - time.0 as f64 * part).max(-(own.0 as f64));
    }

    /// Whether a kernel of this length is owed.
    pub(crate) fn owes(&self, time: Nanos) -> bool {
        self.owed >= time.0 as f64
    }
}

/// Whether anything is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    Nothing,
    /// It is, and waits for memory or for a disk.
    WithoutMemory,
    /// It is, and can run.
    Something,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_had_in_advance_counts_as_one_kernel() {
        let mut ageing = Ageing::new(0.2, Nanos(1_000));
        let own = Nanos(5_000);
        for _ in 0..3 {
            ageing.pay(Nanos(40_000), 1.0, own);
        }
        ageing.advance(Instant(24_000), Overdue::Something);
        assert!(!ageing.owes(Nanos(0)));
        ageing.advance(Instant(25_000), Overdue::Something);
        assert!(ageing.owes(Nanos(0)) && !ageing.owes(Nanos(1)));
    }

    #[test]
    fn a_twentieth_of_the_time_is_owed_and_paid() {
        let mut ageing = Ageing::new(0.05, Nanos(1_000));
        let kernel = Nanos(5_000);
        let (mut paid, mut now) = (0, Instant(0));
        while now < Instant(10_000_000) {
            now = now + Nanos(10_000);
            ageing.advance(now, Overdue::Something);
            if ageing.owes(kernel) {
                ageing.pay(kernel, 1.0, kernel);
                paid += kernel.0;
            }
        }
        assert!((paid as f64 / 10_000_000.0 - 0.05).abs() < 0.001, "{paid}");
        ageing.advance(now + Nanos(1_000_000_000), Overdue::WithoutMemory);
        assert!(!ageing.owes(kernel), "what cannot run is owed nothing more");
        ageing.advance(now + Nanos(1_000_000_000), Overdue::Nothing);
        assert!(!ageing.owes(Nanos(1)), "nothing is owed to nobody");
    }
}
