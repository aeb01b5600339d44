//! The engine as its users hold it: submit, receive, cancel.

use crate::memory::{available, budget};
use crate::model_backend::ModelBackend;
use crate::request::{EngineError, GenerateRequest, GenerationEvent};
use crate::runtime::{Cancel, Runtime, RuntimeConfig};
use duet_device::{CpuConfig, available_cores};
use duet_model::Model;
use duet_model::kv::{KvFormat, PAGE_TOKENS};
use duet_scheduler::SchedulerConfig;
use duet_types::{Bytes, RequestId, Tokens};
use std::fmt;
use std::sync::{Arc, Weak};

/// How to run.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Threads; absent: one per available core.
    pub threads: Option<usize>,
    /// How keys and values are stored.
    pub kv_format: KvFormat,
    /// Memory for KV pages; absent: chosen from the model and the machine.
    pub kv_bytes: Option<Bytes>,
    /// Longest context; absent: the model's, or what KV memory holds if that is less.
    pub context: Option<Tokens>,
    /// Requests that may wait; one more is refused as busy.
    pub queue_max: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { threads: None, kv_format: KvFormat::F16, kv_bytes: None, context: None, queue_max: 1024 }
    }
}

/// A running engine. Clones share it; when the last clone is dropped it stops: generations that are open fail with
/// `ShuttingDown`, and the drop returns when the kernel under way has ended.
#[derive(Clone)]
pub struct Engine {
    runtime: Arc<Runtime<ModelBackend>>,
}

/// What an engine has to do, and with what memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests that wait for their first kernel.
    pub queued: usize,
    /// Requests that have begun.
    pub running: usize,
    /// Ended requests whose KV is kept for the turns that follow.
    pub flows_kept: usize,
    /// KV pages in use, kept ones included.
    pub kv_pages_used: usize,
    /// KV pages there are.
    pub kv_pages: usize,
}

impl Engine {
    /// Starts the lanes.
    ///
    /// # Errors
    /// If threads cannot be started or the KV memory is too small for one context.
    pub fn start(model: Arc<Model>, config: EngineConfig) -> Result<Self, EngineError> {
        let chunk = SchedulerConfig::CHUNK_DEFAULT;
        let page_bytes = model.kv_pool(config.kv_format, Tokens(PAGE_TOKENS as u32)).page_bytes();
        let budget = budget(&config, model.config().context, PAGE_TOKENS, page_bytes, available())?;
        tracing::info!(context = budget.context.0, kv_tokens = budget.pool.0, "KV memory");
        let pool = model.kv_pool(config.kv_format, budget.pool);
        let threads = config.threads.unwrap_or_else(|| available_cores().len());
        let runtime_config = RuntimeConfig {
            cpu: CpuConfig::prefill_and_decode(threads),
            chunk,
            span_nodes: None,
            queue_max: config.queue_max,
        };
        let backend = ModelBackend::new(model, pool, budget.context, chunk);
        let runtime = Runtime::start(backend, &runtime_config)
            .map_err(|error| EngineError::Internal(format!("a lane could not be started: {error}")))?;
        Ok(Self { runtime: Arc::new(runtime) })
    }

    /// The model it runs.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        self.runtime.backend().model()
    }

    /// The longest sequence it accepts.
    #[must_use]
    pub fn context(&self) -> Tokens {
        use crate::backend::Backend as _;
        self.runtime.backend().shape().context
    }

    /// Checks and queues a request.
    ///
    /// # Errors
    /// [`EngineError`], before any work is done.
    pub fn submit(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        let (id, events) = self.runtime.submit(request)?;
        Ok(Generation { id, events, engine: self.runtime.canceller() })
    }

    /// What it has to do now, and how full its KV memory is.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.runtime.stats()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// A generation under way. Dropping it cancels the work within one kernel. It does not keep the engine running.
pub struct Generation {
    pub(crate) id: RequestId,
    pub(crate) events: tokio::sync::mpsc::UnboundedReceiver<GenerationEvent>,
    pub(crate) engine: Weak<dyn Cancel>,
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

    /// Asks the engine to stop; a `Finished` with `Cancelled` follows, unless it has ended already. Does not wait for it.
    pub fn cancel(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.cancel(self.id);
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        // The sending end goes when the request has ended: then there is nothing to cancel.
        if !self.events.is_closed() {
            self.cancel();
        }
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation").field("id", &self.id).finish_non_exhaustive()
    }
}
