//! The sending end of a generation: any number of tokens, then exactly one end, whatever happens.

use crate::request::{EngineError, GenerationEvent};
use tokio::sync::mpsc::UnboundedSender;

/// Sends a generation's events. If it is dropped before the end was sent, it sends that the request was lost.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Absent once the end was sent.
    sender: Option<UnboundedSender<GenerationEvent>>,
}

impl Outbox {
    pub(crate) fn new(sender: UnboundedSender<GenerationEvent>) -> Self {
        Self { sender: Some(sender) }
    }

    /// Sends an event that is not the end. The channel is unbounded because a generation is bounded by the context.
    pub(crate) fn send(&self, event: GenerationEvent) {
        if let Some(sender) = &self.sender {
            // A client that went away is no error: its cancellation is on the way.
            let _ = sender.send(event);
        }
    }

    /// Sends the end.
    pub(crate) fn end(&mut self, event: GenerationEvent) {
        self.send(event);
        self.sender = None;
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.end(GenerationEvent::Failed(EngineError::Internal("the request was lost".to_owned())));
    }
}
