//! What agents need of a model's text: calls of tools, reasoning, and answers of a given form.
//!
//! Text and tokens in, pieces and masks out: there is no engine, server, file or clock in here. Two halves, which the
//! families of chat templates ([`ToolFormat`], [`ReasoningFormat`]) join:
//!
//! | what | file |
//! | --- | --- |
//! | what a request may ask for | `tool.rs`, `grammar/answer.rs` |
//! | families, by their templates | `format.rs`, `reasoning.rs` |
//! | values that are written as text | `parameter.rs` |
//! | a model's text to calls and reasoning | `calls/`, `split.rs`, `channels.rs` |
//! | a request to a grammar | `grammar/` |
//! | a grammar to the tokens that may come next | `automaton/` |
//!
//! Invariants:
//! - the halves agree: what a grammar of [`constraint`] lets a model write, [`CallParser`] reads as calls;
//! - nothing that a model writes is an error: what is no call is text, as it was written;
//! - how text is cut into pushes changes no piece, only when it comes;
//! - what a client sends (schemas, grammars) is bounded in size, time and memory, or [`Refused`] with the place.

mod automaton;
mod calls;
mod channels;
mod format;
mod grammar;
mod parameter;
mod part;
mod reasoning;
mod refused;
mod split;
mod tool;

pub use automaton::{Automaton, Limits, Mask, NotAllowed, Stuck, TokenText, Vocabulary};
pub use calls::{CallParser, Piece};
pub use format::ToolFormat;
pub use grammar::{Calls, Certain, Grammar, ResponseFormat, Thinking, Turn, constraint};
pub use part::{Part, Place};
pub use reasoning::{Begins, ReasoningFormat};
pub use refused::Refused;
pub use split::ReasoningSplit;
pub use tool::{Parallel, Strictness, Tool, ToolChoice};
