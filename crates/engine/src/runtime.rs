//! The runtime: the scheduler and its world behind one lock, and the threads that come to it.
//!
//! No thread of its own schedules. Whoever brings an event (a client that submits or cancels, a lane whose kernel ended,
//! the alarm clock, a table that arrived on disk) takes the lock, runs the driver's loop until nothing more is known to
//! happen, and leaves. The lock is held for microseconds: kernels, sampling, text and files are done outside.
//! Completions run the scheduler inline.
//!
//! A panic under the lock (a broken invariant of the scheduler or its world, an observer's) ends the requests that are
//! open and not the engine: a new scheduler begins with nothing ([`recovery`]).

mod recovery;

use crate::backend::Backend;
use crate::calibration::Calibrate;
use crate::clock::Clock;
use crate::constraint::{Constrained, Constraint, MaskMaker};
use crate::draft_model::DraftModel;
use crate::drafting::{Drafting, Past};
use crate::encoding::{EncodeRequest, Encodes};
use crate::exact::{ExactCounts, ExactGraphs};
use crate::exchange::{ExchangesGraphs, GraphLoader};
use crate::executors::Site;
use crate::lane_watch::LaneWatch;
use crate::learned::LearnedFile;
use crate::observe::{Elsewhere, EngineSamples, Metrics, Observers, Samples};
use crate::outbox::Outbox;
use crate::parameters::validate;
use crate::pass::{Drafters, Way};
use crate::past::OnLanes;
use crate::people::People;
use crate::preparer::Preparer;
use crate::prober::Prober;
use crate::request::{EngineError, FlowKey, GenerateRequest, GenerationEvent};
use crate::sequence::{Sequence, Workspace};
use crate::speculation::Speculation;
use crate::speed_probe::SpeedProbe;
use crate::spill::Mover;
use crate::stats::{EngineStats, FlowView, KeptView, RequestView};
use crate::timer::Timer;
use crate::world::{EngineWorld, Held, Helpers, QueueLimit};
use duet_device::Cpu;
use duet_driver::{Observed, Observer, Probe};
use duet_kernels::crew::Crew;
use duet_model::Tell;
use duet_model::forward::{NotRun, PreparesRows, TokenWise};
use duet_scheduler::machine::Joins;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Event, Kernel, Line, Machine, Outcome, PassId, Phase, Scheduler, SchedulerConfig};
use duet_speculate::Method;
use duet_types::{Class, Instant, LaneId, LaneSet, Nanos, RequestId, Tokens};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// How a runtime schedules and queues.
pub(crate) struct RuntimeConfig {
    pub(crate) scheduler: SchedulerConfig,
    /// When its machine was measured, in seconds since 1970.
    pub(crate) measured_at: u64,
    pub(crate) policy: PolicyName,
    /// Requests of a class that may wait.
    pub(crate) queue_max: usize,
    /// Tokens that open requests may hold.
    pub(crate) queue_tokens_max: Tokens,
    /// Where KV is spilled.
    pub(crate) spill_folder: PathBuf,
    /// What else observes it.
    pub(crate) observers: Vec<Box<dyn Observer + Send>>,
    /// Tells the observers how fast the machine is.
    pub(crate) probe: Option<SpeedProbe>,
    /// How answers are drafted.
    pub(crate) speculate: Method,
    pub(crate) calibrate: Calibrate,
    /// What they are drafted from beside themselves.
    pub(crate) past: Option<Past>,
    /// What was learned of the drafters is kept there.
    pub(crate) learned: Option<LearnedFile>,
    /// Exchanges its graphs as the scheduler asks.
    pub(crate) exchanges: Option<Arc<dyn ExchangesGraphs>>,
    /// Makes graphs for exactly a prompt's rows, if a lane runs such.
    pub(crate) prepares: Option<(LaneId, Arc<dyn PreparesRows>)>,
}

/// What a kernel runs with.
pub(crate) struct Resources<'a> {
    pub(crate) lanes: LaneSet,
    pub(crate) crew: &'a dyn Crew,
    /// Kernels for exactly its rows.
    pub(crate) exact: Option<Arc<dyn TokenWise>>,
}

/// A running engine over some backend. Dropping it fails what is open and joins the threads.
pub(crate) struct Runtime<B: Backend> {
    shared: Arc<Shared<B>>,
    helpers: Vec<JoinHandle<()>>,
    /// Dropped after the stop, and by nobody else: its threads must not join themselves.
    _cpu: Cpu,
}

/// What clients and lanes share.
pub(crate) struct Shared<B: Backend> {
    backend: Arc<B>,
    clock: Clock,
    drafting: Arc<Drafting>,
    /// Present if a draft model is among the drafters.
    draft_model: Option<DraftModel<B>>,
    people: People,
    /// Started with the first answer that is held to a grammar.
    masks: OnceLock<Arc<MaskMaker>>,
    queue_max: usize,
    queue_tokens_max: Tokens,
    /// Makes seeds for requests that have none.
    seeds: RandomState,
    /// What a new scheduler begins with.
    config: SchedulerConfig,
    measured_at: u64,
    policy: PolicyName,
    state: Mutex<State<B>>,
}

struct State<B: Backend> {
    scheduler: Scheduler,
    world: Observed<EngineWorld<B>, Observers>,
    health: Health,
}

/// Whether there is a scheduler to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Running,
    /// It failed, and no new one could be begun.
    Failed,
}

/// Lets a client cancel without knowing the backend.
pub(crate) trait Cancel: Send + Sync {
    /// Always safe; does nothing if the request has ended.
    fn cancel(&self, request: RequestId);
}

impl<B: Backend> Runtime<B> {
    /// Starts over lanes that run already; they must be those of the configuration's machine.
    pub(crate) fn start(
        backend: B,
        draft_model: Option<DraftModel<B>>,
        cpu: Cpu,
        config: RuntimeConfig,
    ) -> std::io::Result<Self> {
        let backend = Arc::new(backend);
        let clock = Clock::start();
        // The helpers find what they report to when it is there.
        let cell: Arc<Mutex<Weak<Shared<B>>>> = Arc::default();
        let reach = |cell: &Arc<Mutex<Weak<Shared<B>>>>| {
            let cell = Arc::clone(cell);
            move || cell.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
        };
        let ring = reach(&cell);
        let (timer, timer_thread) = Timer::start(clock, move || {
            ring().map(|shared| shared.enter(|world, now| world.happened(now, Event::Timer)));
        })?;
        let done = reach(&cell);
        let (mover, mover_thread) = Mover::start(Arc::clone(&backend), config.spill_folder, move |moved| {
            done().map(|shared| shared.enter(|world, now| world.moved(now, moved)));
        })?;
        let mut helpers = vec![timer_thread, mover_thread];
        let mut watch = None;
        if !backend.device_lanes().is_empty() {
            let tell = reach(&cell);
            let (started, thread) = Timer::start(clock, move || {
                tell().map(|shared| shared.enter(EngineWorld::look_for_slow));
            })?;
            watch = Some(started);
            helpers.push(thread);
        }
        let mut prober = None;
        if let Some(probe) = config.probe {
            let tell = reach(&cell);
            let report = move |probe| {
                if let Some(shared) = tell() {
                    shared.probed(&probe);
                }
            };
            let (started, thread) = Prober::start(probe, LaneWatch::new(cpu.lanes()), report)?;
            prober = Some(started);
            helpers.push(thread);
        }
        let mut exact = None;
        if let Some((lane, device)) = config.prepares {
            let tell = reach(&cell);
            let (preparer, thread) = Preparer::start(device, move |graph, made| {
                tell().map(|shared| shared.enter(|world, now| world.prepared(now, graph, made)));
            })?;
            exact = Some((lane, preparer));
            helpers.push(thread);
        }
        let mut exchange = None;
        if let Some(device) = config.exchanges {
            let tell = reach(&cell);
            let blocks = config.scheduler.graphs.as_ref().map_or(0, |graphs| graphs.blocks.count());
            let (loader, thread) = GraphLoader::start(device, blocks, move |event| {
                tell().map(|shared| shared.enter(|world, now| world.graph_loaded(now, event)));
            })?;
            exchange = Some(loader);
            helpers.push(thread);
        }
        let lanes = config.scheduler.machine.lanes.len();
        let metrics = Metrics::new(&config.scheduler);
        let scheduler = Scheduler::new(config.scheduler.clone(), config.policy.policy());
        let observer = Observers::new(Samples::new(lanes), metrics, config.observers);
        let shared = Arc::new_cyclic(|shared| {
            let helpers = Helpers { timer, watch, mover, exchange, _prober: prober };
            let world =
                EngineWorld::new(Arc::clone(&backend), cpu.lanes(), shared.clone(), helpers, ExactGraphs::new(exact));
            Shared {
                backend,
                clock,
                masks: OnceLock::new(),
                drafting: Drafting::new(config.speculate, config.calibrate, config.past, config.learned),
                draft_model,
                people: People::default(),
                queue_max: config.queue_max,
                queue_tokens_max: config.queue_tokens_max,
                seeds: RandomState::new(),
                config: config.scheduler,
                measured_at: config.measured_at,
                policy: config.policy,
                state: Mutex::new(State { scheduler, world: Observed { world, observer }, health: Health::Running }),
            }
        });
        *cell.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&shared);
        // Those that failed while they were measured.
        let _ = shared.enter(EngineWorld::hear_of_failed);
        Ok(Self { shared, helpers, _cpu: cpu })
    }

    /// The lanes, as they were measured, and when that was.
    pub(crate) fn machine(&self) -> (&Machine, u64) {
        (&self.shared.config.machine, self.shared.measured_at)
    }

    /// Devices that are no gain, by their names.
    pub(crate) fn unpaying(&self) -> Vec<String> {
        let SchedulerConfig { machine, heg, limits, .. } = &self.shared.config;
        let lanes = machine.all().iter().filter(|&lane| machine.lane(lane).capabilities.joins == Joins::Rows);
        let unpaying = lanes.filter(|&lane| !duet_scheduler::pays(machine, heg, lane, limits.prefill_rows));
        unpaying.map(|lane| machine.lane(lane).name.clone()).collect()
    }

    pub(crate) fn backend(&self) -> &Arc<B> {
        &self.shared.backend
    }

    /// Checks and queues a request; its events come out of the receiver.
    pub(crate) fn submit(
        &self,
        mut request: GenerateRequest,
    ) -> Result<(RequestId, UnboundedReceiver<GenerationEvent>), EngineError> {
        let shared = &self.shared;
        validate(&request, &shared.backend.shape())?;
        let (sender, receiver) = unbounded_channel();
        let class = request.class;
        let tokens = Tokens((request.prompt.len() + request.predicted.len()) as u32);
        let owner = (request.tenant, request.flow.clone());
        let seed = shared.seeds.hash_one(shared.clock.now());
        let guided = (
            Speculation::begin(&shared.drafting, &request),
            shared.constrained(request.class, request.constraint.take())?,
        );
        let sequence = Sequence::new(&*shared.backend, request, guided, seed, Outbox::new(sender), shared.clock)
            .waited_for(shared.people.came(class));
        let id = shared.drive(|scheduler, world, now| {
            let limit = shared.queue_limit(scheduler, world, class);
            world.submit(now, class, owner, sequence, tokens, limit)
        })??;
        Ok((id, receiver))
    }

    /// Checks and queues texts for the encoder; what comes of them comes out of the receiver.
    pub(crate) fn encode(
        &self,
        request: EncodeRequest,
    ) -> Result<(RequestId, UnboundedReceiver<GenerationEvent>), EngineError> {
        let shared = &self.shared;
        let encodes = if shared.backend.has_encoder() { Encodes::Texts } else { Encodes::Nothing };
        request.validate(encodes)?;
        let (sender, receiver) = unbounded_channel();
        let (class, tokens, owner) = (request.class, request.rows(), (request.tenant, None));
        let sequence = Sequence::encoding(&*shared.backend, request.texts, Outbox::new(sender), shared.clock)
            .waited_for(shared.people.came(class));
        let id = shared.drive(|scheduler, world, now| {
            let limit = shared.queue_limit(scheduler, world, class);
            world.submit(now, class, owner, sequence, tokens, limit)
        })??;
        Ok((id, receiver))
    }

    /// Whether a request of this class would be queued now, so that a client can be refused before its prompt is read.
    pub(crate) fn has_room(&self, class: Class) -> Result<(), EngineError> {
        let state = self.shared.state();
        let world = &state.world.world;
        world.has_room(Tokens::ZERO, self.shared.queue_limit(&state.scheduler, world, class))
    }

    /// Tells the scheduler what never happened.
    #[cfg(test)]
    pub(crate) fn lie(&self, event: Event) -> Result<(), EngineError> {
        self.shared.enter(|world, now| world.happened(now, event))
    }

    /// For clients that may outlive the runtime.
    pub(crate) fn canceller(&self) -> Weak<dyn Cancel> {
        let shared: Weak<Shared<B>> = Arc::downgrade(&self.shared);
        shared
    }

    pub(crate) fn stats(&self) -> EngineStats {
        let state = self.shared.state();
        let queued = [Class::Reactive, Class::Proactive].map(|class| state.scheduler.queue_len(Line::Queued, class));
        let queued: usize = queued.iter().sum();
        let pages = self.shared.backend.kv_pages();
        EngineStats {
            queued,
            running: state.world.world.open().saturating_sub(queued),
            flows_kept: state.world.world.kept().len(),
            kv_pages_used: pages.capacity - pages.free,
            kv_pages: pages.capacity,
            kv_pages_spilled: state.scheduler.pages().on_disk,
        }
    }

    /// What was sampled since the last call.
    pub(crate) fn take_samples(&self) -> EngineSamples {
        let mut state = self.shared.state();
        state.world.observer.samples.take(self.shared.clock.now())
    }

    /// Whether it still schedules.
    pub(crate) fn is_running(&self) -> bool {
        self.shared.state().health == Health::Running
    }

    /// The figures as Prometheus reads them.
    pub(crate) fn metrics_text(&self) -> String {
        let (drafting, history) = (self.shared.drafting.cost(), self.shared.drafting.history());
        let (experts, expert_memory) = (self.backend().expert_stats(), self.backend().expert_memory_stats());
        let exposition = {
            let state = self.shared.state();
            let waiting = |line, class| state.scheduler.queue_len(line, class);
            let world = &state.world.world;
            let (pages, exact, absences) = (state.scheduler.pages(), world.exact(), world.absences());
            let by_model = self.shared.draft_model.as_ref().map(DraftModel::work);
            let elsewhere = Elsewhere { drafting, by_model, history, exact, experts, expert_memory, absences };
            state.world.observer.metrics.expose(waiting, &pages, elsewhere)
        };
        exposition.text()
    }

    /// What became of graphs for exactly a prompt's rows.
    pub(crate) fn exact(&self) -> ExactCounts {
        self.shared.state().world.world.exact()
    }

    /// All flows that have requests or kept KV.
    pub(crate) fn flows(&self) -> Vec<FlowView> {
        let state = self.shared.state();
        let now = self.shared.clock.now();
        let mut flows: BTreeMap<_, FlowView> = BTreeMap::new();
        let mut of = |owner: &crate::kept::Owner, change: &mut dyn FnMut(&mut FlowView)| {
            let key: Option<FlowKey> = owner.key.clone();
            let (flow, tenant) = (owner.flow, owner.tenant);
            let new = || FlowView { flow, key, tenant, requests: Vec::new(), kept: Vec::new() };
            change(flows.entry(flow).or_insert_with(new));
        };
        for (request, phase, progress, arrived) in state.scheduler.requests() {
            let Some(owner) = state.world.world.owner(request.id) else { continue };
            let view = RequestView {
                request: request.id,
                class: request.class,
                stage: progress.stage,
                is_waiting: !matches!(phase, Phase::InPass(_)),
                prompt: request.prompt,
                computed: progress.computed,
                generated: progress.generated,
                node: match phase {
                    Phase::InPass(pass) => state.scheduler.pass(pass).map_or(0, |pass| pass.node),
                    _ => 0,
                },
                age: now - arrived.min(now),
            };
            of(owner, &mut |flow| flow.requests.push(view));
        }
        let page = state.scheduler.config().memory;
        for (owner, tokens, place) in state.world.world.kept().iter() {
            let pages = page.pages_of(tokens);
            of(owner, &mut |flow| flow.kept.push(KeptView { tokens, pages, place }));
        }
        flows.into_values().collect()
    }
}

impl<B: Backend> Drop for Runtime<B> {
    fn drop(&mut self) {
        if self.shared.enter(EngineWorld::stop).is_err() {
            // The scheduler failed over it; its helpers end all the same.
            self.shared.state().world.world.abandon();
        }
        for helper in self.helpers.drain(..) {
            // They catch nothing and report nothing.
            let _ = helper.join();
        }
    }
}

impl<B: Backend> Shared<B> {
    /// Each class has its own queue: background work never fills the one that people wait in.
    fn queue_limit(&self, scheduler: &Scheduler, world: &EngineWorld<B>, class: Class) -> QueueLimit {
        let known: usize = [Line::Queued, Line::Prefill].map(|line| scheduler.queue_len(line, class)).iter().sum();
        QueueLimit { waiting: known + world.unheard(), max: self.queue_max, tokens_max: self.queue_tokens_max }
    }

    /// What holds an answer to a constraint, if it has one.
    fn constrained(
        &self,
        class: Class,
        constraint: Option<Constraint>,
    ) -> Result<Option<Box<Constrained>>, EngineError> {
        let Some(constraint) = constraint else { return Ok(None) };
        if self.masks.get().is_none() {
            let maker = MaskMaker::start()
                .map_err(|error| EngineError::Internal(format!("a thread could not be started: {error}")))?;
            // Of two at once, one is dropped.
            let _ = self.masks.set(Arc::new(maker));
        }
        Ok(self.masks.get().map(|maker| Box::new(Constrained::new(maker, class, constraint))))
    }

    /// Lets something happen in the world, and drives the scheduler until nothing more does.
    fn enter<R>(&self, happen: impl FnOnce(&mut EngineWorld<B>, Instant) -> R) -> Result<R, EngineError> {
        self.drive(|_, world, now| happen(world, now))
    }

    fn drive<R>(&self, happen: impl FnOnce(&Scheduler, &mut EngineWorld<B>, Instant) -> R) -> Result<R, EngineError> {
        self.guarded(|state, now| {
            let State { scheduler, world, .. } = state;
            let result = happen(scheduler, &mut world.world, now);
            duet_driver::run(scheduler, world);
            world.observer.samples.decided(Nanos((self.clock.now() - now).0));
            result
        })
    }

    /// The machine was probed. Nobody decides by it.
    fn probed(&self, probe: &Probe) {
        // If the scheduler has failed, the record ends there.
        let _ = self.guarded(|state, now| state.world.observer.probe(now, probe));
    }

    fn drafters(&self) -> Drafters<'_, B> {
        Drafters { model: self.draft_model.as_ref(), people: &self.people, config: &self.config }
    }

    /// Runs a kernel and reports it, on the thread that leads its team. If the scheduler fails over the report, its clients
    /// are told.
    pub(crate) fn run_kernel(
        &self,
        kernel: &Kernel,
        mut held: Held<B>,
        mut workspace: Workspace,
        resources: Resources<'_>,
    ) {
        let Resources { lanes, crew, exact } = resources;
        let site = Site { shares: &kernel.shares, on_miss: kernel.on_miss, ..Site::new(lanes, crew) };
        let on_device = Site { exact: exact.as_deref(), ..site };
        let backend = &*self.backend;
        let drafters = self.drafters();
        let mut ran =
            held.pass.settled(backend, || held.pass.run(kernel, backend, on_device, &mut workspace, &drafters));
        // Before anybody hears of it, so that the last one who has it is not this lane.
        drop(exact);
        let mut failed = self.backend.take_failures(lanes);
        let waits = matches!(ran, Ok(Outcome::Waits { .. }));
        if Way::of(kernel, lanes, backend) != Way::Whole && ran.is_ok() && !waits {
            let mut part = Some(held);
            let reported = self.enter(|world, now| world.part_ended(now, kernel, &mut workspace, &mut part, failed));
            let Some(last) = part else { return };
            if reported.is_err() {
                drop(last);
                // What came since waits for it.
                let _ = self.enter(|_, _| ());
                return;
            }
            ran = last.pass.settled(backend, || last.pass.complete(kernel, backend, site, &mut workspace, &drafters));
            held = last;
            failed = failed.union(self.backend.take_failures(lanes));
        }
        let event = ended(kernel, ran);
        let pass = Arc::downgrade(&held.pass);
        let reported = self.enter(|world, now| {
            world.kernel_ended(now, kernel, event, workspace, held, failed);
            world.shared()
        });
        if let (true, Ok(shared), Some(under_way)) = (waits, reported, pass.upgrade()) {
            // Not before it was heard that it waits. It may have been given up since, or go on already.
            under_way.when_ready(backend, data_ready(shared, kernel.pass));
        }
    }

    /// Tries whether a lost lane's device works again, on its lane.
    pub(crate) fn run_probe(&self, lane: LaneId, guard: Arc<OnLanes>) {
        let found = catch_unwind(AssertUnwindSafe(|| self.backend.probe(lane)));
        let found = match found.unwrap_or_else(|_| Err(NotRun::Failed("a probe panicked".to_owned()))) {
            Ok(()) => Event::LaneBack { lane },
            Err(error) => {
                tracing::warn!("lane {lane} does not work yet: {error}");
                Event::LaneLost { lane }
            }
        };
        let _ = self.enter(|world, now| {
            world.probed(now, found, &guard);
            drop(guard);
        });
    }
}

/// Lets the world know that what a pass waits for is there.
fn data_ready<B: Backend>(shared: Weak<Shared<B>>, pass: PassId) -> Tell {
    Box::new(move || {
        if let Some(shared) = shared.upgrade() {
            let _ = shared.enter(|world, now| world.data_ready(now, pass));
        }
    })
}

/// What the world hears of it.
fn ended(kernel: &Kernel, ran: Result<Outcome, EngineError>) -> Event {
    match ran {
        Ok(outcome) => Event::KernelDone { kernel: kernel.id, outcome },
        Err(error) => {
            tracing::error!(kernel = kernel.id.0, members = kernel.members.len(), "a kernel failed: {error}");
            Event::KernelFailed { kernel: kernel.id }
        }
    }
}

impl<B: Backend> Cancel for Shared<B> {
    fn cancel(&self, request: RequestId) {
        // If the scheduler has failed, the request has ended.
        let _ = self.enter(|world, now| world.happened(now, Event::Cancelled(request)));
    }
}
