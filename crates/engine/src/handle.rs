//! The engine as its users hold it: submit, receive, cancel.

use crate::backend::Backend as _;
use crate::config::EngineConfig;
use crate::encoding::EncodeRequest;
use crate::exact::ExactCounts;
use crate::executors::LinearWork;
use crate::model_backend::ModelBackend;
use crate::observe::EngineSamples;
use crate::profile::Profile;
use crate::request::{EngineError, GenerateRequest, GenerationEvent};
use crate::runtime::{Cancel, Runtime};
use crate::start::start;
use crate::stats::{EngineStats, FlowView};
use duet_model::Model;
use duet_model::encoder::Encoder;
use duet_model::forward::{AttentionStats, ExpertStats};
use duet_scheduler::Machine;
use duet_types::{Class, RequestId, Tokens};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A running engine. Clones share it; when the last clone is dropped it stops: generations that are open fail with
/// `ShuttingDown`, and the drop returns when the kernel under way has ended.
#[derive(Clone)]
pub struct Engine {
    runtime: Arc<Runtime<ModelBackend>>,
    /// Linear work at the last samples.
    sampled: Arc<Mutex<LinearWork>>,
}

impl Engine {
    /// Starts the lanes. The first start of a model on a machine takes a second or two more, to measure it.
    ///
    /// # Errors
    /// If threads cannot be started, a file cannot be written, or the KV memory is too small for one context.
    pub fn start(model: Arc<Model>, config: EngineConfig) -> Result<Self, EngineError> {
        Ok(Self { runtime: Arc::new(start(model, config)?), sampled: Arc::default() })
    }

    /// The model it runs.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        self.runtime.backend().model()
    }

    /// Whether it predicts with an estimate, since its machine was not measured yet.
    #[must_use]
    pub fn is_estimated(&self) -> bool {
        self.machine().1 == Profile::NOT_MEASURED
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

    /// The encoder beside the model that answers, if there is one.
    #[must_use]
    pub fn encoder(&self) -> Option<&Arc<Encoder>> {
        self.runtime.backend().encoder()
    }

    /// Checks and queues texts for the encoder, to be read in one pass.
    ///
    /// # Errors
    /// [`EngineError`], before any work is done.
    pub fn encode(&self, request: EncodeRequest) -> Result<Generation, EngineError> {
        let (id, events) = self.runtime.encode(request)?;
        Ok(Generation { id, events, engine: self.runtime.canceller() })
    }

    /// Whether a request of this class would be queued now, so that a client can be refused before its prompt is read.
    ///
    /// # Errors
    /// As [`Self::submit`] would refuse it.
    pub fn has_room(&self, class: Class) -> Result<(), EngineError> {
        self.runtime.has_room(class)
    }

    /// What it has to do now, and how full its KV memory is.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.runtime.stats()
    }

    /// The flows that have requests or kept KV, by their numbers.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowView> {
        self.runtime.flows()
    }

    /// Whether it takes requests. It does until it is dropped. If an invariant of its scheduler is broken, the requests that
    /// are open fail and it goes on with a new scheduler; if even that fails, only a new engine helps.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.runtime.is_running()
    }

    /// The lanes with what they can do, as they were measured, and when that was in seconds since 1970.
    #[must_use]
    pub fn machine(&self) -> (&Machine, u64) {
        self.runtime.machine()
    }

    /// Names of the devices that were measured to be no gain beside the cores. They are used all the same: whoever started
    /// the engine asked for them.
    #[must_use]
    pub fn unpaying(&self) -> Vec<String> {
        self.runtime.unpaying()
    }

    /// Where linear work was done so far.
    #[must_use]
    pub fn linear_work(&self) -> LinearWork {
        self.runtime.backend().linear_work()
    }

    /// What became of graphs that a device made for exactly a prompt's rows.
    #[must_use]
    pub fn exact_graphs(&self) -> ExactCounts {
        self.runtime.exact()
    }

    /// What a device did with experts.
    #[must_use]
    pub fn expert_work(&self) -> ExpertStats {
        self.runtime.backend().expert_stats()
    }

    /// What devices did of the attention of prompts.
    #[must_use]
    pub fn attention_work(&self) -> AttentionStats {
        self.runtime.backend().attention_stats()
    }

    /// Its figures in Prometheus' text format.
    #[must_use]
    pub fn metrics_text(&self) -> String {
        self.runtime.metrics_text()
    }

    /// What was sampled since the last call, for benchmarks.
    #[must_use]
    pub fn take_samples(&self) -> EngineSamples {
        let now = self.linear_work();
        let before = std::mem::replace(&mut *self.sampled.lock().unwrap_or_else(PoisonError::into_inner), now.clone());
        EngineSamples { work: now.since(&before), ..self.runtime.take_samples() }
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
