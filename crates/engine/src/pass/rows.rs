//! The rows of a pass: the sequences that they are of, and what the model holds of them between nodes.

use crate::backend::{Accepted, Backend, Refused};
use crate::executors::Site;
use crate::request::EngineError;
use crate::sequence::Sequence;
use duet_kernels::crew::Crew;
use duet_scheduler::Kernel;
use duet_types::RequestId;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Some rows on their way through the nodes.
pub(super) struct Rows<B: Backend> {
    /// In the order of their rows.
    pub(super) members: Vec<(RequestId, Box<Sequence<B>>)>,
    /// Present while it is under way.
    pub(super) pass: Option<B::Pass>,
    /// What its kernels took.
    pub(super) spent: Duration,
    life: Life,
}

/// Kernels may still come when the pass was undone: those that ran beside the one that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    NotBegun,
    UnderWay,
    Over,
}

impl<B: Backend> Rows<B> {
    pub(super) fn new(members: Vec<(RequestId, Box<Sequence<B>>)>) -> Self {
        Self { members, pass: None, spent: Duration::ZERO, life: Life::NotBegun }
    }

    /// What the nodes of a kernel read, if a device can do without the pass.
    pub(super) fn inputs(
        &mut self,
        kernel: &Kernel,
        backend: &B,
        site: Site<'_>,
    ) -> Result<Option<B::Inputs>, EngineError> {
        Ok(backend.inputs(self.begun(kernel, backend)?, kernel.nodes.clone(), site))
    }

    /// Takes what a device made of some rows.
    pub(super) fn join(&mut self, outputs: &[B::Outputs], backend: &B, crew: &dyn Crew) -> Result<(), EngineError> {
        outputs.iter().try_for_each(|outputs| backend.join(self.pass.as_mut().ok_or_else(lost)?, outputs, crew))
    }

    /// Gives the tables back with the rows that were accepted.
    pub(super) fn end(&mut self, backend: &B, accepted: &[Accepted]) -> Result<(), EngineError> {
        let pass = self.pass.take().ok_or_else(lost)?;
        self.life = Life::Over;
        self.put_back(backend.finish(pass, accepted));
        Ok(())
    }

    /// Undoes the pass over an error; what fails after that says nothing new.
    pub(super) fn break_with(&mut self, error: &EngineError, backend: &B) {
        if self.life == Life::Over {
            return;
        }
        for (_, sequence) in &mut self.members {
            sequence.fail(error.clone());
        }
        self.undo(backend);
    }

    /// Gives every sequence its table back, as it was before the pass.
    pub(super) fn undo(&mut self, backend: &B) {
        self.life = Life::Over;
        let Some(pass) = self.pass.take() else { return };
        // If the model cannot even give it up, the tables are lost, and their sequences will fail when they are run.
        if let Ok(tables) = catch_unwind(AssertUnwindSafe(|| backend.abandon(pass))) {
            self.put_back(tables);
        }
    }

    /// What the model holds of it, from the first kernel on.
    pub(super) fn begun(&mut self, kernel: &Kernel, backend: &B) -> Result<&mut B::Pass, EngineError> {
        if self.life == Life::NotBegun {
            self.begin(kernel, backend)?;
            self.life = Life::UnderWay;
        }
        self.pass.as_mut().ok_or_else(lost)
    }

    fn begin(&mut self, kernel: &Kernel, backend: &B) -> Result<(), EngineError> {
        let members = self.members.iter_mut().zip(&kernel.members);
        let rows: Vec<_> = members.map(|((_, sequence), member)| sequence.take_rows(backend, member)).collect();
        if rows.iter().any(Option::is_none) {
            // Somebody's keys and values are lost. The others' are not: each is run alone after this.
            for ((_, sequence), rows) in self.members.iter_mut().zip(rows) {
                rows.map(|rows| sequence.put_back(rows.table));
            }
            return Err(lost());
        }
        let rows = rows.into_iter().flatten().collect();
        match backend.begin(rows) {
            Ok(mut pass) => {
                backend.set_class(&mut pass, kernel.class());
                backend.set_head_rows(&mut pass, self.head_rows(kernel));
                self.pass = Some(pass);
            }
            Err(Refused { error, tables }) => {
                self.put_back(tables);
                return Err(error);
            }
        }
        Ok(())
    }

    fn put_back(&mut self, tables: Vec<B::Table>) {
        for ((_, sequence), table) in self.members.iter_mut().zip(tables) {
            sequence.put_back(table);
        }
    }
}

pub(super) fn lost() -> EngineError {
    EngineError::Internal("its keys and values are lost".to_owned())
}

/// What a kernel's panic said.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    format!("a kernel panicked: {}", panic_message(panic))
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}
