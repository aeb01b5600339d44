//! Progressive graph scheduling on a real device: a prompt is read while graphs are exchanged by a thread beside it.
//! (CoordGen §3.2)
//!
//! The plan is [`duet_scheduler::progressive`]'s, made of measured times; here it is followed, event by event, with its
//! own [`Progress`](duet_scheduler::progressive::Progress).
//!
//! | what | file |
//! | --- | --- |
//! | graphs of layers in every shape, compiled and kept in the cache | `layer_shelf.rs` |
//! | the same of a whole model, block by block | `shelf.rs` |
//! | a block's graphs, loaded | `block_graphs.rs` |
//! | which graphs of which blocks are loaded | `loaded.rs` |
//! | following a plan: the lane that computes and the thread that loads | `exchange.rs` |
//! | a prompt on its way through the blocks | `reading.rs` |
//! | all blocks as one device, for decoding | `assembled.rs` |
//! | a model on whatever graphs its blocks have, in serving | `resident.rs` |
//! | what that costs on a device, and the blocks and shapes that follow | `profile/` |
//!
//! Attention, rope and the cache stay on the CPU, as everywhere in this crate. The head has one graph of few rows, which
//! stays loaded: it runs for one row of a prompt only.
//!
//! Invariants:
//! - a graph is released when no plan wants it any more, before the next one is loaded;
//! - whoever waits is told when a load has failed; nobody waits for a thread that has ended.

mod assembled;
mod block_graphs;
mod error;
mod exchange;
mod layer_shelf;
mod loaded;
mod profile;
mod reading;
mod resident;
mod shelf;

pub use assembled::Assembled;
pub use block_graphs::{BlockGraphs, HeadGraph};
pub use error::SwitchingError;
pub use exchange::Exchange;
pub use layer_shelf::{LayerShelf, Placement};
pub use loaded::Loaded;
pub use profile::{
    Demand, GraphBudget, GraphCosts, GraphProfile, GraphProfileError, GraphSubject, LoadTime, Measuring, SHAPES,
    ShapeCost, Swept,
};
pub use reading::{Read, read};
pub use resident::ResidentModel;
pub use shelf::Shelf;
