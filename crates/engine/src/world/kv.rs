//! Where the keys and values of requests are, and how they come there: from what ended requests left, to disk and back.
//!
//! A request that continues what is on its way to disk waits until that is there, and reads it.

use super::{EngineWorld, Open, Place};
use crate::backend::{Backend, Table};
use crate::kept::{Asker, Found, Owner};
use crate::past::When;
use crate::sequence::{Sequence, Start};
use crate::spill::{Job, Moved, SpillFile};
use duet_scheduler::{Event, Source};
use duet_types::{Class, Instant, RequestId, Tokens};
use std::sync::Arc;

impl<B: Backend> EngineWorld<B> {
    /// A table has arrived, on disk or in memory.
    pub(crate) fn moved(&mut self, now: Instant, moved: Moved<B::Table>) {
        if self.past.moved() == When::Present {
            self.arrived(now, moved);
        }
    }

    fn arrived(&mut self, now: Instant, moved: Moved<B::Table>) {
        match moved {
            Moved::Saved { request, result } => self.saved(now, request, result),
            Moved::Loaded { request, result } => self.loaded(now, request, result),
        }
    }

    fn saved(&mut self, now: Instant, request: RequestId, result: Result<SpillFile, (B::Table, std::io::Error)>) {
        if let Err((_, error)) = &result {
            tracing::warn!("KV could not be written to disk: {error}");
        }
        let event = match result {
            Ok(_) => Event::Spilled { request },
            Err(_) => Event::SpillFailed { request },
        };
        match self.open.remove(&request) {
            Some(Open { owner, tokens, continues, place: Place::Moving(mut sequence, _) }) => {
                let place = match result {
                    Ok(file) => Place::OnDisk(sequence, Arc::new(file)),
                    Err((table, _)) => {
                        sequence.put_back(table);
                        Place::Here(sequence)
                    }
                };
                self.open.insert(request, Open { owner, tokens, continues, place });
            }
            other => {
                if let Some(other) = other {
                    self.open.insert(request, other);
                }
                self.kept.moved(request, result.map_err(|(table, _)| table));
            }
        }
        self.happened(now, event);
        // Somebody may have waited for exactly this.
        let awaiting = self.open.iter().filter(|(_, open)| matches!(open.place, Place::Awaiting(_)));
        let mut awaiting: Vec<RequestId> = awaiting.map(|(&request, _)| request).collect();
        awaiting.sort_unstable();
        awaiting.into_iter().for_each(|request| self.restore(now, request));
    }

    fn loaded(&mut self, now: Instant, request: RequestId, result: std::io::Result<B::Table>) {
        let Some(open) = self.open.get_mut(&request) else { return };
        let place = std::mem::replace(&mut open.place, Place::InHand);
        let Place::Moving(mut sequence, source) = place else { panic!("{request} was not being read") };
        open.continues = None;
        let taken = match source {
            Some(Source::TakenOver(of)) => Some(of),
            _ => None,
        };
        let (mut table, source) = match result {
            Ok(table) => (table, source),
            Err(error) => {
                // Nothing is lost but time: what was computed is computed again.
                tracing::warn!("KV could not be read from disk, it is computed again: {error}");
                let mut table = self.backend.table();
                // The scheduler may count on what was lost not to be whole.
                table.expect(Tokens(u32::MAX));
                (table, None)
            }
        };
        table.expect(sequence.expects());
        let cached = if source.is_none() { sequence.put_back(table) } else { sequence.attach(table) };
        open.place = Place::Here(sequence);
        if let Some(of) = taken {
            self.kept.forget(of);
            if source.is_none() {
                self.happened(now, Event::Dropped { request: of });
            }
        }
        self.happened(now, Event::Restored { request, cached, source });
    }

    pub(super) fn restore(&mut self, now: Instant, request: RequestId) {
        match self.take(request) {
            Place::OnDisk(sequence, file) => {
                let (prefix, positions) = (file.len(), sequence.expects());
                self.put(request, Place::Moving(sequence, None));
                self.move_table(now, Job::Load { request, file, prefix, positions });
            }
            Place::Here(sequence) | Place::Awaiting(sequence) => self.restore_from_kept(now, request, sequence),
            _ => panic!("{request} has its KV"),
        }
    }

    fn restore_from_kept(&mut self, now: Instant, request: RequestId, mut sequence: Box<Sequence<B>>) {
        let (found, positions) = (self.find_kept(request, &sequence), sequence.expects());
        let (mut table, source) = match found {
            Found::Here(table, source) if table.would_pass(positions) => {
                self.put(request, Place::Moving(sequence, Some(source)));
                return self.move_table(now, Job::LetPass { request, table, positions });
            }
            Found::Here(table, source) => (table, Some(source)),
            Found::Nothing => (self.backend.table(), None),
            Found::OnDisk { file, prefix, source } => {
                self.put(request, Place::Moving(sequence, Some(source)));
                return self.move_table(now, Job::Load { request, file, prefix, positions });
            }
            Found::Moving => return self.put(request, Place::Awaiting(sequence)),
        };
        self.has_started(request);
        table.expect(positions);
        let cached = sequence.attach(table);
        self.put(request, Place::Here(sequence));
        self.happened(now, Event::Restored { request, cached, source });
    }

    fn find_kept(&mut self, request: RequestId, sequence: &Sequence<B>) -> Found<B::Table> {
        let others_want: Vec<RequestId> =
            self.open.iter().filter(|(id, _)| **id != request).filter_map(|(_, open)| open.continues).collect();
        let Owner { tenant, class, .. } = self.open[&request].owner;
        let asker = Asker { tenant, class, others_want: &others_want };
        match sequence.start() {
            Start::Anywhere => self.kept.find(asker, sequence.tokens()),
            Start::FirstToken => Found::Nothing,
        }
    }

    /// It has what it continues.
    fn has_started(&mut self, request: RequestId) {
        if let Some(open) = self.open.get_mut(&request) {
            open.continues = None;
        }
    }

    fn move_table(&mut self, now: Instant, job: Job<B::Table>) {
        if let Some(helpers) = &self.helpers {
            self.past.moves();
            let class = |request: &RequestId| self.open.get(request).map_or(Class::Proactive, |open| open.owner.class);
            let (Job::Save { request, .. } | Job::Load { request, .. } | Job::LetPass { request, .. }) = &job;
            return helpers.mover.queue(class(request), job);
        }
        // The engine stops: everything is cancelled, and nobody will want the KV.
        let stopped = || std::io::Error::other("the engine stops");
        self.arrived(
            now,
            match job {
                Job::Save { request, table } => Moved::Saved { request, result: Err((table, stopped())) },
                Job::Load { request, .. } | Job::LetPass { request, .. } => {
                    Moved::Loaded { request, result: Err(stopped()) }
                }
            },
        );
    }

    pub(super) fn spill(&mut self, now: Instant, request: RequestId) {
        if !self.open.contains_key(&request) {
            return self.spill_kept(now, request);
        }
        self.undo_pass_of(request);
        let Place::Here(mut sequence) = self.take(request) else { panic!("{request} is not idle") };
        let table = sequence.take_table().unwrap_or_else(|| self.backend.table());
        self.put(request, Place::Moving(sequence, None));
        self.move_table(now, Job::Save { request, table });
    }

    fn spill_kept(&mut self, now: Instant, request: RequestId) {
        match self.kept.start_moving(request) {
            Some(table) => self.move_table(now, Job::Save { request, table }),
            // It was taken over just now; the scheduler will hear of it.
            None => self.happened(now, Event::SpillFailed { request }),
        }
    }

    pub(super) fn discard(&mut self, request: RequestId) {
        self.discards += 1;
        // Where it happens it happens often.
        if self.discards == 1 {
            tracing::warn!(
                "a request begins again: neither memory nor the disk that --spill gives has room for its keys and values, \
                 or --policy wants it so; `duet_kv_discarded_tokens_total` counts what is given up"
            );
        }
        self.undo_pass_of(request);
        let mut place = self.take(request);
        if let Place::Here(sequence) = &mut place {
            sequence.take_table();
        }
        self.put(request, place);
    }
}
