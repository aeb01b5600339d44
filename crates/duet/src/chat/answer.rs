//! One answer: streamed as it is made, and stopped by Ctrl-C.

use crate::spoken::Spoken;
use duet_device::leave;
use duet_engine::{Generation, GenerationEvent, Usage};
use duet_types::FinishReason;
use std::pin::pin;

/// An answer, whole or as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What was said, without what was thought.
    pub(crate) text: String,
    /// Why it ended.
    pub(crate) reason: FinishReason,
    /// What it took.
    pub(crate) usage: Usage,
}

/// Whether Ctrl-C ends the answer or, as in any pipe, the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The answer. A second one, while the engine does not react, ends the program.
    Answer,
    /// The program.
    Program,
}

/// Shows the text of `generation` as it comes. If that fails, the work is cancelled.
pub(crate) async fn stream(
    mut generation: Generation,
    interrupt: Interrupt,
    mut spoken: Spoken,
) -> anyhow::Result<Answer> {
    let mut stopping = false;
    // One listener for the whole answer, so that no Ctrl-C falls between two tokens.
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        let event = loop {
            tokio::select! {
                event = generation.next() => break event,
                _ = &mut interrupted, if interrupt == Interrupt::Answer => {
                    if stopping {
                        leave(INTERRUPTED);
                    }
                    stopping = true;
                    generation.cancel();
                    interrupted.set(tokio::signal::ctrl_c());
                }
            }
        };
        match event {
            Some(GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_)) => {}
            Some(GenerationEvent::Token { text, .. }) => spoken.say(&text)?,
            Some(GenerationEvent::Finished { text, reason, usage }) => {
                spoken.say(&text)?;
                spoken.end()?;
                return Ok(Answer { text: spoken.answer().to_owned(), reason, usage });
            }
            Some(GenerationEvent::Failed(error)) => return Err(error.into()),
            None => anyhow::bail!("the engine stopped before the answer was complete"),
        }
    }
}

/// What a shell expects of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
