//! What observers make of a run, by hand-made events and by the real scheduler's.

mod by_hand;
mod digest;
mod trace;
mod world;
