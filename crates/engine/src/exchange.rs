//! Exchanging a device's graphs as the scheduler asks: one thread that loads them, so that no lane does.
//! (CoordGen §3.2)
//!
//! What is loaded when is the scheduler's to say ([`duet_scheduler::GraphSet`]); the device only does it. Loads are made
//! one after the other, in the order in which they were asked for, and each is answered.

use duet_model::forward::NotRun;
use duet_scheduler::progressive::Blocks;
use duet_scheduler::{Event, GraphLoad};
use duet_types::Bytes;
use std::fmt::Debug;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// A device whose graphs can be exchanged while it runs others.
pub trait ExchangesGraphs: Debug + Send + Sync {
    /// Loads a graph, in the place of the block's other one or beside it.
    ///
    /// # Errors
    /// If it cannot be loaded.
    fn load(&self, load: GraphLoad) -> Result<(), NotRun>;
}

/// Graphs of a device that has no room for all of them. Its blocks have their prefill graphs when the engine starts.
#[derive(Clone, Debug)]
pub struct GraphExchange {
    /// Loads them.
    pub device: Arc<dyn ExchangesGraphs>,
    /// What they cost.
    pub blocks: Blocks,
    /// What they may take.
    pub budget: Bytes,
}

/// The thread, as the world holds it. Dropping it lets the thread end after what it was given.
#[derive(Debug)]
pub(crate) struct GraphLoader {
    loads: Sender<GraphLoad>,
    blocks: usize,
}

impl GraphLoader {
    /// Starts the thread for a device of so many blocks. `done` is called on it with what came of each load.
    pub(crate) fn start(
        device: Arc<dyn ExchangesGraphs>,
        blocks: usize,
        done: impl Fn(Event) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (loads, receiver) = channel();
        let work = move || {
            for load in receiver {
                done(loaded(&*device, load));
            }
        };
        let thread = std::thread::Builder::new().name("duet-exchange".to_owned()).spawn(work)?;
        Ok((Self { loads, blocks }, thread))
    }

    /// Blocks whose graphs it loads.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Queues a load.
    pub(crate) fn load(&self, load: GraphLoad) {
        // The thread ends only after this sender is gone.
        let _ = self.loads.send(load);
    }
}

fn loaded(device: &dyn ExchangesGraphs, load: GraphLoad) -> Event {
    let block = load.block;
    let result = catch_unwind(AssertUnwindSafe(|| device.load(load)));
    match result.unwrap_or_else(|_| Err(NotRun::Failed("loading panicked".to_owned()))) {
        Ok(()) => Event::GraphLoaded { block },
        Err(error) => {
            tracing::warn!("a graph of block {block} is not loaded, the CPU does its work: {error}");
            Event::GraphLoadFailed { block }
        }
    }
}
