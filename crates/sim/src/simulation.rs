//! One simulation: a machine, a model by its shape, a policy and its traffic.

use crate::answers::{Answers, KnownLengths};
use crate::client::Client;
use crate::figures::Figures;
use crate::latencies::Latencies;
use crate::meter::Meter;
use crate::soc::{Power, SocProfile};
use crate::truth::Truth;
use crate::world::VirtualWorld;
use duet_driver::{Observed, run};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Heg, Limits, Machine, Mechanisms, MemoryLimits, Scheduler, SchedulerConfig};
use duet_types::{Nanos, Tokens};

/// All that a run depends on: the same simulation has the same figures, to the bit.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// Who decides.
    pub policy: PolicyName,
    /// What it is told.
    pub config: SchedulerConfig,
    /// How the machine truly is.
    pub truth: Truth,
    /// Power of the lanes, if it is known.
    pub power: Option<Power>,
}

impl Simulation {
    /// A model on a SoC. `cpu-batching` has the CPU, the others the NPU and the iGPU, of which policies for one device use
    /// the iGPU.
    #[must_use]
    pub fn on_soc(soc: &SocProfile, heg: &Heg, policy: PolicyName) -> Self {
        let machine = match policy {
            PolicyName::CpuBatching => soc.cpu_only(),
            _ => soc.accelerators(heg),
        };
        let limits = Limits {
            chunk: Tokens(soc.chunk.rows.value as u32),
            prefill_rows: Tokens(soc.chunk.context.value as u32),
            preempt: PREEMPT,
            decode_stall: DECODE_STALL,
            graph_expiry: GRAPH_EXPIRY,
            stretch: STRETCH,
            graphs: soc.graphs_held(heg),
            ..Limits::default()
        };
        let power = Some(soc.power(&machine));
        let config = config(machine, heg, limits);
        let truth = Truth {
            shared_bytes_per_s: Some(soc.shared_bytes_per_s()),
            graph_bytes_per_s: Some(soc.graph_bytes_per_s()),
            page_io: soc.page_io(heg, config.memory.page),
            ..Truth::of(&config)
        };
        Self { policy, config, truth, power }
    }

    /// A model on a machine that was measured, with the engine's own settings.
    #[must_use]
    pub fn on_machine(machine: Machine, heg: &Heg, policy: PolicyName) -> Self {
        let config = config(machine, heg, Limits::default());
        Self { policy, truth: Truth::of(&config), config, power: None }
    }

    /// Serves some clients, who come for `window`.
    #[must_use]
    pub fn run(&self, clients: Vec<Client>, window: Nanos) -> Figures {
        let answers = KnownLengths::of(&clients);
        self.run_with(clients, window, answers).0
    }

    /// Serves some clients, with answers of which more than their length is known.
    #[must_use]
    pub fn run_with<A: Answers>(&self, clients: Vec<Client>, window: Nanos, answers: A) -> (Figures, VirtualWorld<A>) {
        let world = VirtualWorld::with_answers(clients, &self.config, &self.truth, answers);
        let mut observed = Observed { world, observer: (Latencies::default(), Meter::of(window)) };
        run(&mut Scheduler::new(self.config.clone(), self.policy.policy()), &mut observed);
        let (latencies, meter) = &observed.observer;
        let (compiled, kept) = (observed.world.compiled(), observed.world.kept());
        let power = self.power.as_ref();
        let figures = Figures::new(latencies, meter, &self.config.machine, power, window, compiled, kept);
        (figures, observed.world)
    }
}

/// With memory for everything, and every mechanism.
fn config(machine: Machine, heg: &Heg, limits: Limits) -> SchedulerConfig {
    let memory = MemoryLimits::UNBOUNDED;
    SchedulerConfig {
        machine,
        heg: heg.clone(),
        encoder: None,
        limits,
        memory,
        mechanisms: Mechanisms::ALL,
        graphs: None,
    }
}

/// The paper's bound on preemption. (Agent.xpu §4.4 ②)
const PREEMPT: Nanos = Nanos(100_000_000);
/// On these machines a token of an 8B model alone takes 120 ms.
const DECODE_STALL: Nanos = Nanos(1_000_000_000);
/// Longer than most prompts wait: a graph that expires before its prompt is read was compiled for nothing.
const GRAPH_EXPIRY: Nanos = Nanos(60_000_000_000);
/// Background work may make a token this much later. It was chosen by what came out of 0.05 to 0.3 (`duet simulate
/// --stretch`) on the traffic that the report judges by: more hardly helps background work, and less costs it much more
/// than it gives the person. The report says so and shows the sweep; serving has the default.
const STRETCH: f64 = 0.2;
