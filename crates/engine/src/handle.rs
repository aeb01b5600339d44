//! The engine as its users hold it: submit, receive, cancel.

use crate::request::{EngineError, GenerateRequest, GenerationEvent};
use duet_model::Model;
use duet_model::kv::KvFormat;
use duet_types::{Bytes, RequestId, Tokens};
use std::sync::Arc;

/// How to run.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Threads; absent: one per available core.
    pub threads: Option<usize>,
    /// How keys and values are stored.
    pub kv_format: KvFormat,
    /// Memory for KV pages; absent: chosen from the model and the machine.
    pub kv_bytes: Option<Bytes>,
    /// Longest context; absent: the model's.
    pub context: Option<Tokens>,
    /// Requests that may wait; one more is refused as busy.
    pub queue_max: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { threads: None, kv_format: KvFormat::F16, kv_bytes: None, context: None, queue_max: 1024 }
    }
}

/// A running engine. Clones share it; it stops when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Engine {
    model: Arc<Model>,
}

impl Engine {
    /// Starts the lanes.
    ///
    /// # Errors
    /// If threads cannot be started or the KV memory is too small for one context.
    pub fn start(model: Arc<Model>, config: EngineConfig) -> Result<Self, EngineError> {
        let _ = config;
        Ok(Self { model })
    }

    /// The model it runs.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The longest sequence it accepts.
    #[must_use]
    pub fn context(&self) -> Tokens {
        todo!()
    }

    /// Checks and queues a request.
    ///
    /// # Errors
    /// [`EngineError`], before any work is done.
    pub fn submit(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        let _ = request;
        todo!()
    }
}

/// A generation under way. Dropping it cancels the work within one kernel.
#[derive(Debug)]
pub struct Generation {
    id: RequestId,
    events: tokio::sync::mpsc::UnboundedReceiver<GenerationEvent>,
}

impl Generation {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<GenerationEvent> {
        self.events.recv().await
    }

    /// The next event, waiting on this thread (not to be called within an async runtime).
    pub fn next_blocking(&mut self) -> Option<GenerationEvent> {
        self.events.blocking_recv()
    }

    /// Asks the engine to stop; a `Finished` with `Cancelled` follows.
    pub fn cancel(&self) {
        todo!()
    }
}
