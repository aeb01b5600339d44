//! A world that begins anew, after a violated invariant of the scheduler or of the world itself.
//!
//! Nothing that either of them believed can be relied on, so no request is saved: each is told, its KV and graphs are
//! given back, and what is still under way is [of the past](crate::past).

use super::{EngineWorld, Life, Open, Place};
use crate::backend::Backend;
use crate::request::EngineError;
use duet_scheduler::GraphLoad;
use duet_scheduler::progressive::{Exchange, Role};
use duet_types::RequestId;

impl<B: Backend> EngineWorld<B> {
    /// Ends every request with `error`, gives up all that was kept, and leaves the world as a new scheduler expects it.
    /// Members of a pass whose kernels are on lanes are told when these have left them.
    pub(crate) fn begin_anew(&mut self, error: &EngineError) {
        for (_, Open { place, .. }) in self.open.drain() {
            match place {
                Place::Here(mut sequence)
                | Place::Moving(mut sequence, _)
                | Place::Awaiting(mut sequence)
                | Place::OnDisk(mut sequence, _) => sequence.finish_failed(error.clone()),
                Place::InPass(_) | Place::InHand => {}
            }
        }
        for (_, pass) in std::mem::take(&mut self.passes) {
            pass.fail(&self.backend, error);
        }
        self.events.clear();
        self.kept.clear();
        self.exact.reclaim_all();
        self.past.begin(RequestId(self.next_request));
        self.load_first_graphs();
        self.watched.forget();
        // The new scheduler takes all lanes for well.
        self.hear_of_failed(self.heard);
    }

    /// A new scheduler takes it that all blocks have their prefill graphs.
    fn load_first_graphs(&mut self) {
        let Some(loader) = self.helpers.as_ref().and_then(|helpers| helpers.exchange.as_ref()) else { return };
        for block in 0..loader.blocks() {
            loader.load(GraphLoad { block, role: Role::Prefill, exchange: Exchange::InPlace });
            self.past.loads_first();
        }
    }

    /// Drops everything and begins nothing any more. Clients are told by their outboxes.
    pub(crate) fn abandon(&mut self) {
        self.life = Life::Stopping;
        self.helpers = None;
        self.exact.stop();
        self.open.clear();
        self.passes.clear();
        self.kept.clear();
        self.events.clear();
    }
}
