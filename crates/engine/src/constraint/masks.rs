//! The masks of a pass's rows, computed on a thread of their own while the pass runs: people's before the background's.

use crate::by_class::Queue;
use duet_agents::{Automaton, Mask};
use duet_speculate::Draft;
use duet_types::{Class, TokenId};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread that computes masks. Without constrained generations it sleeps.
pub(crate) struct MaskMaker {
    orders: Arc<Queue<Box<Order>>>,
    thread: Option<JoinHandle<()>>,
}

/// What is to be computed.
struct Order {
    automaton: Automaton,
    /// Of each row of the draft, the row before it, counted from the last token's, which is 0; and its token.
    rows: Vec<(usize, TokenId)>,
    to: SyncSender<Masks>,
}

/// Masks that are on their way.
pub(crate) struct Ordered(Receiver<Masks>);

/// The automaton behind the last chosen token, and what may be chosen from each row of the pass.
pub(crate) struct Masks {
    automaton: Automaton,
    /// Absent of rows that the grammar does not let come, and where nothing can follow.
    rows: Vec<Option<Mask>>,
    /// How long they took to make, until somebody asked.
    took: Duration,
}

impl MaskMaker {
    pub(crate) fn start() -> std::io::Result<Self> {
        let orders = Arc::<Queue<Box<Order>>>::default();
        let theirs = Arc::clone(&orders);
        let work = move || {
            let _abandons = theirs.abandons();
            while let Some(order) = theirs.next() {
                let Order { automaton, rows, to } = *order;
                // Whoever ordered may be gone.
                let _ = to.send(Masks::compute(automaton, &rows));
            }
        };
        let thread = std::thread::Builder::new().name("duet-masks".to_owned()).spawn(work)?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Orders the masks of the pass that verifies a draft of a request of this class.
    pub(crate) fn order(&self, class: Class, automaton: Automaton, draft: &Draft) -> Ordered {
        let rows = draft.rows().iter().map(|row| (row.parent.map_or(0, |parent| parent + 1), row.token)).collect();
        let (to, masks) = sync_channel(1);
        self.orders.add(class, Box::new(Order { automaton, rows, to }));
        Ordered(masks)
    }
}

impl Drop for MaskMaker {
    fn drop(&mut self) {
        self.orders.close();
        if let Some(thread) = self.thread.take() {
            // A panic has been told.
            let _ = thread.join();
        }
    }
}

impl Ordered {
    /// Waits; nothing if a panic took them.
    pub(super) fn wait(self) -> Option<Masks> {
        self.0.recv().ok()
    }
}

impl Masks {
    /// No masks yet: nothing was drafted, and the first is computed when it is asked for.
    pub(super) fn none(automaton: Automaton) -> Self {
        Self { automaton, rows: Vec::new(), took: Duration::ZERO }
    }

    fn compute(mut automaton: Automaton, rows: &[(usize, TokenId)]) -> Self {
        let begun = Instant::now();
        let mut masks = vec![mask(&mut automaton)];
        for row in 0..rows.len() {
            let path = path(rows, row);
            // Rows of a forced run need no other than what comes next; that is what the grammar says of them, too.
            let taken = path.iter().take_while(|&&token| automaton.commit(token).is_ok()).count();
            masks.push(if taken == path.len() { mask(&mut automaton) } else { None });
            if automaton.rollback(taken).is_err() {
                masks.resize_with(rows.len() + 1, || None);
                break;
            }
        }
        Self { automaton, rows: masks, took: begun.elapsed() }
    }

    pub(super) fn of_row(&mut self, row: usize) -> Option<&Mask> {
        if self.rows.is_empty() && row == 0 {
            self.rows.push(mask(&mut self.automaton));
        }
        self.rows.get(row)?.as_ref()
    }

    /// How long they took to make, if nobody has asked yet.
    pub(super) fn take_took(&mut self) -> Duration {
        std::mem::take(&mut self.took)
    }

    pub(super) fn automaton(&mut self) -> &mut Automaton {
        &mut self.automaton
    }

    pub(super) fn into_automaton(self) -> Automaton {
        self.automaton
    }
}

/// The drafted tokens from the last token on to a row.
fn path(rows: &[(usize, TokenId)], row: usize) -> Vec<TokenId> {
    let before = |&row: &usize| rows[row].0.checked_sub(1);
    let mut path: Vec<TokenId> = std::iter::successors(Some(row), before).map(|row| rows[row].1).collect();
    path.reverse();
    path
}

fn mask(automaton: &mut Automaton) -> Option<Mask> {
    let found = automaton.mask().cloned();
    if let Err(stuck) = &found {
        tracing::warn!("an answer cannot go on in its form: {stuck}");
    }
    found.ok()
}
