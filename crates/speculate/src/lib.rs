//! Drafting: which tokens may come next, so that one pass verifies several of them.
//!
//! It is sans-IO: tokens come in, drafts go out. There is no clock, thread, file, tensor or random choice in here, and
//! whether a draft is right is decided elsewhere, by the model: nothing in this crate can change an answer.
//!
//! Where the mechanisms of CoordGen (sd.npu) are:
//!
//! | mechanism | file |
//! | --- | --- |
//! | prompt lookup, the simplest baseline (PLD) | `prompt_lookup.rs` |
//! | suffix automaton, online (SAM) | `sam.rs`, over `suffix_automaton.rs` |
//! | the task-relevant database (§3.1) | `history.rs` |
//! | predicted outputs (OpenAI) | `prediction.rs` |
//! | in-context distribution calibration (§3.3) | `calibration.rs`, over `preferences.rs` and `successors.rs` |
//! | a draft model (Leviathan et al. 2023) | `draft_model.rs` |
//! | token recycling across requests (Luo et al. 2024) | `recycling.rs`, over `preferences.rs` |
//! | draft extension, or reuse (§3.4, eq. 3) | `extension.rs` |
//! | why drafts are rejected (Table 2) | `rejection.rs` |
//! | tree drafts from several sources (§3.3-3.4) | `speculator.rs`, `draft.rs` |
//! | what a grammar rules out or makes certain (ours) | `guide.rs` |
//! | competition of the sources (ours) | `confidence.rs` |
//! | valid, wasted and underutilised rows (sd.npu §3.2) | `utilisation.rs` |
//! | the methods by name | `method.rs` |
//!
//! Invariants:
//! - a step costs the same at any length of the sequence, and memory is bounded for each token;
//! - the first rows of a draft, however many, are a tree, and no row is worth less than one after it.

pub mod calibration;
pub mod confidence;
pub mod draft;
pub mod draft_model;
pub mod drafter;
pub mod extension;
pub mod guide;
pub mod history;
mod method;
pub mod prediction;
mod preferences;
pub mod prompt_lookup;
pub mod recycling;
pub mod rejection;
pub mod sam;
pub mod speculator;
pub mod successors;
pub mod suffix_automaton;
mod utilisation;

pub use draft::{Draft, DraftRow, ROWS_MAX, VerifyRows, WORTH_MIN};
pub use draft_model::{Said, Told};
pub use drafter::Drafter;
pub use guide::Guide;
pub use method::{Known, Learns, Method, UnknownMethod};
pub use rejection::{Rejection, Rejections};
pub use speculator::{Ahead, Speculator};
pub use utilisation::Utilisation;
