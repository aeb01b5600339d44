//! What happens when something panics under the engine's lock.
//!
//! A panic there is a broken invariant: of the scheduler, its policy, the world, or an observer. Which request is to
//! blame cannot be told, since what would tell it is what is broken. So all requests that are open fail, their KV and
//! graphs are given back, and a new scheduler begins with nothing; requests that come from then on are served.
//! What is recorded of the run ends there, counting goes on.
//!
//! Invariants: no panic leaves the lock's holder; every open request gets exactly one end, at once or, if its kernel is on
//! a lane, when that has ended; the new scheduler begins nothing before all of the old one's has come back
//! ([`crate::past`]). Should even the beginning fail, nothing is scheduled any more: what is open fails, what comes is
//! refused, and the helpers end.

use super::{Health, Shared, State};
use crate::backend::Backend;
use crate::pass::panic_message;
use crate::request::EngineError;
use duet_scheduler::Scheduler;
use duet_types::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};

impl<B: Backend> Shared<B> {
    /// The state, whoever held it before: what a panic left was put in order by its holder.
    pub(super) fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something under the lock. If it panics, everything begins anew.
    pub(super) fn guarded<R>(&self, work: impl FnOnce(&mut State<B>, Instant) -> R) -> Result<R, EngineError> {
        let mut state = self.state();
        if state.health == Health::Failed {
            return Err(failed("no new scheduler could be begun"));
        }
        // Read under the lock, so that time never goes backwards.
        let now = self.clock.now();
        let result = catch_unwind(AssertUnwindSafe(|| work(&mut state, now))).map_err(|panic| {
            let error = failed(panic_message(&*panic));
            tracing::error!("{error}; all open requests fail, and a new scheduler begins");
            self.begin_anew(&mut state, now, &error);
            error
        });
        let ended = state.world.world.take_ended();
        drop(state);
        drop(ended);
        result
    }

    fn begin_anew(&self, state: &mut State<B>, now: Instant, error: &EngineError) {
        let begun = catch_unwind(AssertUnwindSafe(|| {
            state.world.world.begin_anew(error);
            state.scheduler = Scheduler::new(self.config.clone(), self.policy.policy());
            state.world.observer.begin_anew(now);
        }));
        if begun.is_ok() {
            return;
        }
        tracing::error!("no new scheduler could be begun: the engine has to be started again");
        state.health = Health::Failed;
        if catch_unwind(AssertUnwindSafe(|| state.world.world.abandon())).is_err() {
            tracing::error!("what was open could not be dropped");
        }
    }
}

fn failed(why: &str) -> EngineError {
    EngineError::Internal(format!("the scheduler failed: {why}"))
}
