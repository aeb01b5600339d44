//! The runtime: the scheduler and its world behind one lock, and the threads that come to it.
//!
//! There is no thread of its own. Whoever brings an event (a client that submits or cancels, a lane whose kernel
//! ended) takes the lock, runs the driver's loop until nothing more is known to happen, and leaves. The lock is held for
//! microseconds: kernels, sampling and text are done outside. Completions run the scheduler inline.

use crate::backend::Backend;
use crate::clock::Clock;
use crate::handle::EngineStats;
use crate::outbox::Outbox;
use crate::parameters::validate;
use crate::request::{EngineError, GenerateRequest, GenerationEvent};
use crate::sequence::{Sequence, Workspace};
use crate::world::EngineWorld;
use duet_device::{Accelerator, Cpu, CpuConfig};
use duet_kernels::crew::Crew;
use duet_scheduler::policy::Fcfs;
use duet_scheduler::{Event, Kernel, Scheduler, SchedulerConfig};
use duet_types::{RequestId, Tokens};
use std::any::Any;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// How a runtime cuts and queues work.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeConfig {
    pub(crate) cpu: CpuConfig,
    pub(crate) chunk: Tokens,
    pub(crate) span_nodes: Option<usize>,
    pub(crate) queue_max: usize,
}

/// A running engine over some backend. Dropping it fails what is open and joins the lanes.
pub(crate) struct Runtime<B: Backend> {
    shared: Arc<Shared<B>>,
    /// Dropped after the stop, and by nobody else: its threads must not join themselves.
    _cpu: Cpu,
}

/// What clients and lanes share.
pub(crate) struct Shared<B: Backend> {
    backend: Arc<B>,
    clock: Clock,
    queue_max: usize,
    /// Makes seeds for requests that have none.
    seeds: RandomState,
    state: Mutex<State<B>>,
}

struct State<B: Backend> {
    scheduler: Scheduler,
    world: EngineWorld<B>,
}

/// Lets a client cancel without knowing the backend.
pub(crate) trait Cancel: Send + Sync {
    /// Always safe; does nothing if the request has ended.
    fn cancel(&self, request: RequestId);
}

impl<B: Backend> Runtime<B> {
    pub(crate) fn start(backend: B, config: &RuntimeConfig) -> std::io::Result<Self> {
        let cpu = Cpu::start(&config.cpu)?;
        let lanes = cpu.lanes();
        let backend = Arc::new(backend);
        let scheduler_config = SchedulerConfig {
            lanes: lanes.descriptor().lanes,
            nodes: backend.shape().nodes,
            chunk: config.chunk,
            span_nodes: config.span_nodes,
        };
        let scheduler = Scheduler::new(scheduler_config, Box::new(Fcfs));
        let shared = Arc::new_cyclic(|shared| {
            let world = EngineWorld::new(Arc::clone(&backend), lanes, shared.clone());
            Shared {
                backend,
                clock: Clock::start(),
                queue_max: config.queue_max,
                seeds: RandomState::new(),
                state: Mutex::new(State { scheduler, world }),
            }
        });
        Ok(Self { shared, _cpu: cpu })
    }

    pub(crate) fn backend(&self) -> &Arc<B> {
        &self.shared.backend
    }

    /// Checks and queues a request; its events come out of the receiver.
    pub(crate) fn submit(
        &self,
        request: GenerateRequest,
    ) -> Result<(RequestId, UnboundedReceiver<GenerationEvent>), EngineError> {
        let shared = &self.shared;
        validate(&request, &shared.backend.shape())?;
        let (sender, receiver) = unbounded_channel();
        let class = request.class;
        let seed = shared.seeds.hash_one(shared.clock.now());
        let sequence = Sequence::new(&*shared.backend, request, seed, Outbox::new(sender), shared.clock);
        let id = shared.enter(|world, now| world.submit(now, class, sequence, shared.queue_max))??;
        Ok((id, receiver))
    }

    /// For clients that may outlive the runtime.
    pub(crate) fn canceller(&self) -> std::sync::Weak<dyn Cancel> {
        let shared: std::sync::Weak<Shared<B>> = Arc::downgrade(&self.shared);
        shared
    }

    pub(crate) fn stats(&self) -> EngineStats {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).world.stats()
    }
}

impl<B: Backend> Drop for Runtime<B> {
    fn drop(&mut self) {
        // If the scheduler has failed, everything is already abandoned.
        let _ = self.shared.enter(EngineWorld::stop);
    }
}

impl<B: Backend> Shared<B> {
    /// Lets something happen in the world, and drives the scheduler until nothing more does.
    fn enter<R>(&self, happen: impl FnOnce(&mut EngineWorld<B>, duet_types::Instant) -> R) -> Result<R, EngineError> {
        let mut state = self.state.lock().map_err(|_| scheduler_failed())?;
        let State { scheduler, world } = &mut *state;
        // Read under the lock, so that time never goes backwards.
        let result = happen(world, self.clock.now());
        duet_driver::run(scheduler, world);
        Ok(result)
    }

    /// Runs a kernel and reports it, on the leading lane of its team.
    pub(crate) fn run_kernel(
        &self,
        kernel: &Kernel,
        mut sequence: Box<Sequence<B>>,
        mut workspace: Workspace,
        crew: &dyn Crew,
    ) {
        let run = AssertUnwindSafe(|| sequence.execute(kernel, &*self.backend, crew, &mut workspace));
        let result = catch_unwind(run).unwrap_or_else(|panic| Err(EngineError::Internal(message(&*panic))));
        let event = match result {
            Ok(outcome) => Event::KernelDone { kernel: kernel.id, outcome },
            Err(error) => {
                tracing::error!(request = kernel.request.0, "a kernel failed: {error}");
                sequence.fail(error);
                Event::KernelFailed { kernel: kernel.id }
            }
        };
        let report = AssertUnwindSafe(|| {
            self.enter(|world, now| world.kernel_ended(now, kernel.request, sequence, workspace, event))
        });
        if catch_unwind(report).is_err() {
            // A broken invariant of the scheduler or the world. The lock is poisoned, so nothing more can be asked of
            // them; let nobody wait for an answer.
            self.state.lock().unwrap_or_else(PoisonError::into_inner).world.abandon();
        }
    }
}

impl<B: Backend> Cancel for Shared<B> {
    fn cancel(&self, request: RequestId) {
        // If the scheduler has failed, the request has ended.
        let _ = self.enter(|world, now| world.happened(now, Event::Cancelled(request)));
    }
}

fn scheduler_failed() -> EngineError {
    EngineError::Internal("the scheduler failed".to_owned())
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a kernel panicked: {}", text.unwrap_or("no message"))
}
