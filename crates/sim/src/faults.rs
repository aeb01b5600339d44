//! Faults of the machine. Those of a request are with its [client](crate::Client).

use duet_types::{Instant, LaneId};

/// What goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Lanes that are lost, but for the last one that takes any shape: without it there is no machine.
    pub lost: Vec<(Instant, LaneId)>,
    /// Lanes that are slow, and from when to when: nothing new goes there.
    pub slow: Vec<(Instant, Instant, LaneId)>,
    /// When lost lanes work again, if somebody looks.
    pub works_again: Vec<(Instant, LaneId)>,
    /// Spills that fail, counted from 0.
    pub spills: Vec<u32>,
    /// Loads of a device's graphs that fail, counted from 0.
    pub graph_loads: Vec<u32>,
}
