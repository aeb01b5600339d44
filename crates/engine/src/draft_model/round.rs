//! A round of drafting: the steps of a draft model between two passes of the model that verifies.
//!
//! A step is one pass of the draft model over the rows that it lacks of a path: what it has not read of the sequence's own
//! tokens, then the tokens that all drafters together hold likeliest, as far as the place that it is asked of. It says
//! what it thinks after each of them. If it thinks otherwise, the likeliest path turns there, and the rows beyond are
//! forgotten.

use super::costs::{Cost, FEW};
use super::worth::{Prospect, Terms};
use super::{DraftModel, Guest};
use crate::backend::{Accepted, Backend, Refused, Rows, Table as _};
use crate::executors::Site;
use crate::request::EngineError;
use crate::sampling::{Candidate, likeliest};
use duet_speculate::{Ahead, ROWS_MAX, Said, Told};
use duet_types::{TokenId, Tokens};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A round under way.
pub(super) struct Round<'a, 'g, B: Backend> {
    model: &'a DraftModel<B>,
    guests: &'a mut [Guest<'g>],
    readers: Vec<Reader<B::Table>>,
    terms: &'a Terms,
    site: Site<'a>,
    goes_on: &'a dyn Fn() -> bool,
}

/// What the model has read of a guest's text, and has said.
struct Reader<T> {
    /// Absent while a pass has it, and once it is lost.
    table: Option<T>,
    /// The sequence's own tokens that it holds.
    read: usize,
    /// Behind these the tokens of the path that it was asked along.
    path: Vec<TokenId>,
    /// What it said: at the end of the sequence, and after each token of the path.
    said: Vec<Said>,
}

/// Rows that a guest's table lacks.
struct Step {
    guest: usize,
    /// Tokens of the path whose rows stay.
    keeps: usize,
    path: Vec<TokenId>,
    /// The sequence's own tokens before the path.
    own: usize,
    /// Tokens that it brings.
    gain: f64,
}

/// Why a step was not taken.
enum Stopped {
    /// A person waits.
    Interrupted,
    /// There is no room for one of the guests, who has no part in it from now on.
    NoRoom,
    /// The model failed.
    Failed,
}

impl Step {
    fn rows(&self) -> usize {
        self.own + self.path.len() - self.keeps
    }

    /// Rows whose logits are wanted: of the sequence's own the last.
    fn wanted(&self) -> usize {
        self.path.len() - self.keeps + usize::from(self.own > 0)
    }
}

impl<'a, 'g, B: Backend> Round<'a, 'g, B> {
    pub(super) fn begin(
        model: &'a DraftModel<B>,
        guests: &'a mut [Guest<'g>],
        terms: &'a Terms,
        site: Site<'a>,
        goes_on: &'a dyn Fn() -> bool,
    ) -> Self {
        // What is beside the cores computes the large model only.
        let site = Site::new(site.lanes, site.crew);
        Self { model, guests, readers: Vec::new(), terms, site, goes_on }
    }

    pub(super) fn run(mut self) {
        self.take_tables();
        let ended = self.read_on().and_then(|()| self.draft());
        if let Err(Stopped::Interrupted) = ended {
            self.model.counters.interrupted.fetch_add(1, Ordering::Relaxed);
        }
        self.put_tables();
        for (guest, reader) in self.guests.iter_mut().zip(&self.readers) {
            guest.speculation.told(&Told { path: &reader.path, said: &reader.said });
        }
    }

    fn take_tables(&mut self) {
        let mut tables = self.model.tables();
        let shape = self.model.backend.shape();
        for guest in &*self.guests {
            // The last token's row is computed again: what it says is wanted.
            let text = &guest.tokens[..guest.tokens.len() - 1];
            let fits = guest.tokens.len() + ROWS_MAX < shape.context.as_usize() && self.model.knows(guest.tokens);
            let table = fits.then(|| tables.take(guest.tenant, text).unwrap_or_else(|| self.model.backend.table()));
            let read = table.as_ref().map_or(0, |table| table.len().as_usize());
            self.readers.push(Reader { table, read, path: Vec::new(), said: Vec::new() });
        }
    }

    fn put_tables(&mut self) {
        let mut tables = self.model.tables();
        for (guest, reader) in self.guests.iter().zip(&mut self.readers) {
            if let Some(table) = reader.table.take() {
                let tokens = [&guest.tokens[..reader.read], &reader.path].concat();
                tables.put(guest.tenant, tokens, table);
            }
        }
    }

    /// Reads on in texts of which much was not read, where that pays: no longer than a person notices between two tokens.
    fn read_on(&mut self) -> Result<(), Stopped> {
        let cost = self.cost();
        let mut rows_left = cost.rows_in(READ_S);
        for index in 0..self.guests.len() {
            let (guest, read) = (&self.guests[index], self.readers[index].read);
            let lacks = guest.tokens.len() - 1 - read;
            let is_short = lacks <= FEW || self.readers[index].table.is_none();
            if is_short || rows_left == 0 || !self.terms.reading_pays(lacks, &prospect(guest), &cost) {
                continue;
            }
            let own = lacks.min(rows_left);
            rows_left -= own;
            match self.compute(&[Step { guest: index, keeps: 0, path: Vec::new(), own, gain: 0.0 }], Head::No) {
                Err(Stopped::NoRoom) => continue,
                computed => computed?,
            };
            self.readers[index].read += own;
            self.model.counters.read.fetch_add(own as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn draft(&mut self) -> Result<(), Stopped> {
        loop {
            let cost = self.cost();
            let mut steps: Vec<Step> = (0..self.guests.len()).filter_map(|index| self.step(index)).collect();
            steps.sort_by(|a, b| b.gain.total_cmp(&a.gain));
            let places: Vec<(f64, usize)> = steps.iter().map(|step| (step.gain, step.rows())).collect();
            steps.truncate(self.terms.paying(&places, &cost));
            let mut rows = 0;
            steps.retain(|step| {
                rows += step.rows();
                rows <= PASS_ROWS
            });
            if steps.is_empty() {
                return Ok(());
            }
            let said = match self.compute(&steps, Head::Yes) {
                Err(Stopped::NoRoom) => continue,
                computed => computed?,
            };
            let mut said = said.iter().map(|likeliest| self.model.said_of(likeliest));
            for step in steps {
                self.model.counters.read.fetch_add(step.own as u64, Ordering::Relaxed);
                let drafted = (step.path.len() - step.keeps) as u64;
                self.model.counters.drafted.fetch_add(drafted, Ordering::Relaxed);
                let (reader, wanted) = (&mut self.readers[step.guest], step.wanted());
                reader.read += step.own;
                reader.said.truncate(if step.own > 0 { 0 } else { step.keeps + 1 });
                reader.said.extend(said.by_ref().take(wanted));
                reader.path = step.path;
                let told = Told { path: &reader.path, said: &reader.said };
                self.guests[step.guest].speculation.told(&told);
            }
        }
    }

    /// The step that brings a guest most, if it was read far enough for one.
    fn step(&mut self, index: usize) -> Option<Step> {
        let (guest, reader) = (&mut self.guests[index], &self.readers[index]);
        let own = guest.tokens.len() - reader.read;
        if own > FEW + 1 || reader.table.is_none() {
            return None;
        }
        let ahead = guest.speculation.outlook(guest.room);
        let (at, gain) = self.terms.best_place(&ahead, guest.room, &prospect(guest))?;
        let path: Vec<TokenId> = ahead[..at].iter().filter_map(next).collect();
        let keeps = path.iter().zip(&reader.path).take_while(|(one, other)| one == other).count();
        if !self.model.knows(&path) {
            return None;
        }
        let step = Step { guest: index, keeps, path, own, gain };
        // Of a place that was computed nothing new would be said.
        (step.wanted() > 0).then_some(step)
    }

    fn cost(&self) -> Cost {
        self.model.costs().on(self.site.lanes, self.terms.pass)
    }

    /// Runs the model over the rows of some guests. What it holds likeliest after the wanted ones.
    fn compute(&mut self, steps: &[Step], head: Head) -> Result<Vec<Vec<Candidate>>, Stopped> {
        let begun = Instant::now();
        let mut pass = self.begin_pass(steps)?;
        let backend = &self.model.backend;
        let rows: usize = steps.iter().map(Step::rows).sum();
        let first = match (head, steps.first()) {
            (Head::Yes, Some(step)) => step.rows() - step.wanted(),
            _ => rows,
        };
        backend.set_head_rows(&mut pass, first..rows);
        for node in 0..backend.nodes() {
            if !(self.goes_on)() {
                self.take_back(steps, backend.abandon(pass));
                return Err(Stopped::Interrupted);
            }
            if backend.run(&mut pass, node..node + 1, 0..rows, self.site).is_err() {
                self.take_back(steps, backend.abandon(pass));
                return Err(Stopped::Failed);
            }
        }
        let found = self.said(&mut pass, steps, head);
        self.take_back(steps, backend.finish(pass, &vec![Accepted::All; steps.len()]));
        self.model.counters.passes.fetch_add(1, Ordering::Relaxed);
        self.model.costs().learn(self.site.lanes, rows, begun.elapsed().as_secs_f64());
        found
    }

    fn said(&self, pass: &mut B::Pass, steps: &[Step], head: Head) -> Result<Vec<Vec<Candidate>>, Stopped> {
        if head == Head::No {
            return Ok(Vec::new());
        }
        let (mut end, mut wanted) = (0, Vec::new());
        for step in steps {
            end += step.rows();
            wanted.extend(end - step.wanted()..end);
        }
        let (backend, mut logits) = (&self.model.backend, Vec::new());
        backend.logits(pass, &wanted, &mut logits, self.site).map_err(|_| Stopped::Failed)?;
        let vocabulary = backend.shape().vocabulary;
        Ok(likeliest(&logits[..wanted.len() * vocabulary], vocabulary, LIKELIEST, self.site.crew))
    }

    /// Begins a pass; where there is no room, others' tables are given up until there is, and then the last guest's.
    fn begin_pass(&mut self, steps: &[Step]) -> Result<B::Pass, Stopped> {
        loop {
            let rows = steps.iter().map(|step| self.rows_of(step)).collect::<Option<Vec<_>>>();
            let Some(rows) = rows else { return Err(Stopped::Failed) };
            match self.model.backend.begin(rows) {
                Ok(pass) => return Ok(pass),
                Err(Refused { tables, error: EngineError::OutOfMemory(_) }) => {
                    self.take_back(steps, tables);
                    self.model.counters.given_up.fetch_add(1, Ordering::Relaxed);
                    if !self.model.tables().give_up() {
                        self.leave_out(steps);
                        return Err(Stopped::NoRoom);
                    }
                }
                Err(Refused { tables, error }) => {
                    tracing::warn!("the draft model cannot draft: {error}");
                    self.take_back(steps, tables);
                    return Err(Stopped::Failed);
                }
            }
        }
    }

    /// The last of the guests has no room, now or later: what is given up for it in vain would be read again and again.
    fn leave_out(&mut self, steps: &[Step]) {
        let Some(step) = steps.last() else { return };
        self.readers[step.guest].table = None;
        self.guests[step.guest].speculation.leave_out_model();
    }

    /// A step's rows, and the table that they follow.
    fn rows_of(&mut self, step: &Step) -> Option<Rows<B::Table>> {
        let (guest, reader) = (&self.guests[step.guest], &mut self.readers[step.guest]);
        let mut table = reader.table.take()?;
        table.truncate(Tokens((reader.read + step.keeps) as u32));
        reader.path.truncate(step.keeps);
        let own = &guest.tokens[reader.read..reader.read + step.own];
        Some(Rows {
            request: None,
            table,
            tokens: [own, &step.path[step.keeps..]].concat(),
            texts: None,
            parents: None,
        })
    }

    fn take_back(&mut self, steps: &[Step], tables: Vec<B::Table>) {
        for (step, table) in steps.iter().zip(tables) {
            self.readers[step.guest].table = Some(table);
        }
    }
}

/// Whether it is wanted what the model says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    Yes,
    No,
}

fn prospect(guest: &Guest<'_>) -> Prospect {
    let generated = guest.generated as f64;
    let left = (guest.speculation.answer_expected() - generated).max(generated).max(LEFT_MIN);
    Prospect {
        told: f64::from(guest.speculation.told_chance()),
        tokens: guest.speculation.pace(),
        left: left.min(guest.left as f64),
    }
}

fn next(ahead: &Ahead) -> Option<TokenId> {
    ahead.next.map(|(token, _)| token)
}

/// Rows of a step, of all guests together, at most.
pub(crate) const PASS_ROWS: usize = 256;
/// A text is read for so long between two passes: a person who reads along does not notice.
const READ_S: f64 = 0.05;
/// Tokens whose logits stand for all: the others' share is next to nothing where it matters.
const LIKELIEST: usize = 16;
/// An answer goes on for so many tokens at least, as far as anybody knows.
const LEFT_MIN: f64 = 16.0;
