//! The paper's system and its baselines: what each does with a request, and what that costs. (CoordGen §4.1)
//!
//! All read prompts on the NPU. Baselines that decode there have one graph for both, and every pass is padded to it; so has
//! the paper's system without its scheduling of graphs. With it, it has one of 256 rows and one of 32 in each of six
//! blocks, of which one is resident: what exchanging them takes while the prompt is read is the scheduler's own prediction
//! ([`duet_scheduler::progressive`]). With both resident, changing costs nothing; that is the bound of any such
//! scheduling. What a baseline may choose (the graph's rows, how much of a draft the CPU verifies) is the best over all
//! requests.

use super::assumptions::Assumptions;
use super::graph_blocks::{BLOCKS, Cut};
use super::schedules::Schedule;
use super::static_passes::{Graph, Heads, Network, Passes};
use crate::traces::RequestTrace;
use duet_scheduler::progressive::Pair;
use duet_sim::{DraftStep, SocProfile};
use duet_speculate::Method;
use std::ops::{Add, AddAssign};

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// Decodes token by token on the NPU.
    NpuVanilla,
    /// The same on the graph that prompts are best read on, if nothing is tuned.
    NpuPrefillGraph,
    /// Decodes token by token on the CPU.
    CpuVanilla,
    /// Verifies SAM's drafts on the NPU.
    NpuSam,
    /// Verifies SAM's drafts on the CPU.
    CpuSam,
    /// The paper's stand-in for EAGLE-2 on the NPU.
    NpuEagle,
    /// The same on the CPU.
    CpuEagle,
    /// Decodes token by token on a graph of its own.
    NpuGraph,
    /// Verifies SAM's drafts on a graph of its own.
    NpuSamGraph,
    /// CoordGen's drafts on one graph for both stages.
    CoordGenShared,
    /// CoordGen.
    CoordGen,
    /// CoordGen, if both graphs were resident.
    CoordGenBoth,
    /// Our drafts in the place of CoordGen's.
    Duet,
}

/// What requests cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Seconds of reading prompts, calibration included.
    pub(super) prefill_s: f64,
    /// Seconds from there to the end.
    pub(super) decode_s: f64,
    /// Of the units.
    pub(super) joules: f64,
    /// Tokens of the answers.
    pub(super) tokens: f64,
    /// How many requests.
    pub(super) requests: f64,
}

/// How a system is set, where it may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// The graph that prompts are read on.
    pub(super) prefill: Graph,
    decode: Decode,
}

/// Where tokens are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decode {
    /// On a graph of the NPU.
    Npu(Graph),
    /// On the CPU, with at most `drafted` rows of a draft.
    Cpu { drafted: usize },
}

/// A phone that serves a model, one request after the other.
#[derive(Clone, Debug)]
pub(super) struct SingleStream<'a> {
    pub(super) soc: &'a SocProfile,
    pub(super) passes: Passes,
    pub(super) assumptions: Assumptions,
}

/// Tokens a verification of EAGLE-2, which is fixed. (CoordGen §4.1)
const EAGLE_TOKENS: f64 = 5.5;
/// Passes of its drafter for each of them: one for each token that is drafted, as many as it takes to bring 5.5.
const EAGLE_DRAFTED: u32 = 5;
/// Rows of a draft that the CPU may verify.
const CPU_DRAFTED: [usize; 5] = [1, 3, 7, 15, 31];

impl System {
    /// All of them.
    pub(super) const ALL: [Self; 13] = [
        Self::NpuVanilla,
        Self::NpuPrefillGraph,
        Self::CpuVanilla,
        Self::NpuSam,
        Self::CpuSam,
        Self::NpuEagle,
        Self::CpuEagle,
        Self::NpuGraph,
        Self::NpuSamGraph,
        Self::CoordGenShared,
        Self::CoordGen,
        Self::CoordGenBoth,
        Self::Duet,
    ];

    /// Those that bars are drawn of; what graph scheduling is worth has a section of its own.
    pub(super) const DRAWN: [Self; 10] = [
        Self::NpuVanilla,
        Self::NpuPrefillGraph,
        Self::CpuVanilla,
        Self::NpuSam,
        Self::CpuSam,
        Self::NpuEagle,
        Self::CpuEagle,
        Self::CoordGenShared,
        Self::CoordGen,
        Self::Duet,
    ];

    /// What the page calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NpuVanilla => "NPU vanilla",
            Self::NpuPrefillGraph => "NPU vanilla, 256 rows",
            Self::CpuVanilla => "CPU vanilla",
            Self::NpuSam => "NPU-SAM",
            Self::CpuSam => "CPU-SAM",
            Self::NpuEagle => "NPU-EAGLE",
            Self::CpuEagle => "CPU-EAGLE",
            Self::CoordGenShared => "CoordGen, one graph",
            Self::CoordGen => "CoordGen",
            Self::NpuGraph => "NPU, two graphs",
            Self::NpuSamGraph => "NPU-SAM, two graphs",
            Self::CoordGenBoth => "CoordGen, both resident",
            Self::Duet => "duet",
        }
    }

    /// How it may be set.
    pub(super) fn settings(self) -> Vec<Setting> {
        let on_npu = |graph| Setting { prefill: graph, decode: Decode::Npu(graph) };
        let on_cpu = |drafted| Graph::SHARED.map(|prefill| Setting { prefill, decode: Decode::Cpu { drafted } });
        match self {
            Self::NpuVanilla | Self::NpuSam | Self::NpuEagle | Self::CoordGenShared => Graph::SHARED.map(on_npu).into(),
            Self::NpuPrefillGraph => vec![on_npu(Graph::PREFILL)],
            Self::CpuSam => CPU_DRAFTED.into_iter().flat_map(on_cpu).collect(),
            Self::CpuVanilla | Self::CpuEagle => on_cpu(0).into(),
            Self::NpuGraph | Self::NpuSamGraph | Self::CoordGen | Self::CoordGenBoth | Self::Duet => {
                vec![Setting { prefill: Graph::PREFILL, decode: Decode::Npu(Graph::DECODE) }]
            }
        }
    }

    /// Whose drafts it verifies.
    fn method(self) -> Method {
        match self {
            Self::NpuVanilla
            | Self::NpuPrefillGraph
            | Self::CpuVanilla
            | Self::NpuEagle
            | Self::CpuEagle
            | Self::NpuGraph => Method::None,
            Self::NpuSam | Self::CpuSam | Self::NpuSamGraph => Method::Sam,
            Self::CoordGenShared | Self::CoordGen | Self::CoordGenBoth => Method::CoordGen,
            Self::Duet => Method::Duet,
        }
    }

    /// How it comes from the graph that reads prompts to the one that decodes, if they are two.
    fn schedule(self) -> Schedule {
        match self {
            Self::CoordGenBoth => Schedule::Both,
            Self::Duet => Schedule::JustInTime,
            _ => Schedule::Greedy,
        }
    }

    /// Which rows of a pass that decodes go through the head: a graph that verifies drafts has it for all of its rows.
    fn verified_heads(self) -> Heads {
        if self.method() == Method::None { Heads::Last } else { Heads::All }
    }
}

impl SingleStream<'_> {
    /// What a system makes of a request.
    pub(super) fn serve(&self, system: System, setting: Setting, request: &RequestTrace) -> Cost {
        let prefill_s = self.prefill(system, setting, request.prompt.0);
        let decode_s = match system {
            System::NpuEagle | System::CpuEagle => self.eagle(setting, request),
            _ => self.steps(system, setting, request),
        };
        let (npu, cpu) = (&self.soc.npu, &self.soc.cpu);
        let (busy, rests) = match setting.decode {
            Decode::Npu(_) => (npu, cpu),
            Decode::Cpu { .. } => (cpu, npu),
        };
        let prefill_w = npu.prefill_w.value + cpu.idle_w.value;
        let decode_w = busy.decode_w.value + rests.idle_w.value;
        let joules = prefill_s * prefill_w + decode_s * decode_w;
        Cost { prefill_s, decode_s, joules, tokens: f64::from(request.output.0), requests: 1.0 }
    }

    fn prefill(&self, system: System, setting: Setting, prompt: u32) -> f64 {
        let plain = |heads| match setting.decode {
            Decode::Npu(graph) if graph != setting.prefill => {
                self.switched(system, setting.prefill, graph, prompt, heads)
            }
            Decode::Npu(_) | Decode::Cpu { .. } => self.passes.prefill(setting.prefill, prompt, heads),
        };
        match (system.method().learns().prompt, self.assumptions.calibration_ms) {
            (false, _) => plain(Heads::Last),
            (true, None) => plain(Heads::All),
            (true, Some(ms)) => plain(Heads::Last) + f64::from(prompt) * ms / 1e3,
        }
    }

    /// Until the prompt is read and the graphs that decode are there.
    fn switched(&self, system: System, prefill: Graph, decode: Graph, prompt: u32, heads: Heads) -> f64 {
        let heads = Pair { prefill: heads, decode: system.verified_heads() };
        let cut = Cut { graphs: Pair { prefill, decode }, ..Cut::paper(heads) };
        system.schedule().ready(&cut.profile(&self.passes), prompt)
    }

    /// Verify passes, one after the other.
    fn steps(&self, system: System, setting: Setting, request: &RequestTrace) -> f64 {
        let steps = &request.by(system.method()).steps;
        let cut;
        let steps = match setting.decode {
            Decode::Cpu { drafted } => {
                cut = DraftStep::cut(steps, drafted);
                &cut
            }
            Decode::Npu(_) => steps,
        };
        let draft_s = if system.method() == Method::None { 0.0 } else { self.assumptions.draft_ms / 1e3 };
        let heads = system.verified_heads();
        let mut context = request.prompt.0;
        let mut seconds = 0.0;
        for step in steps {
            seconds += draft_s + self.verify(setting, step.rows().0, context, heads);
            context += step.tokens().0;
        }
        seconds
    }

    fn verify(&self, setting: Setting, rows: u32, context: u32, heads: Heads) -> f64 {
        match setting.decode {
            Decode::Npu(graph) if graph != setting.prefill => self.passes.in_blocks(BLOCKS, graph, context, heads),
            Decode::Npu(graph) => self.passes.on_graph(Network::Model, graph, context, heads),
            Decode::Cpu { .. } => self.passes.on_cpu(Network::Model, rows, context),
        }
    }

    /// The paper's stand-in: the drafter's passes and one of the model for 5.5 tokens, whatever the text.
    fn eagle(&self, setting: Setting, request: &RequestTrace) -> f64 {
        let passes = f64::from(request.output.0.saturating_sub(1)) / EAGLE_TOKENS;
        let draft = |context| match setting.decode {
            Decode::Npu(graph) => self.passes.on_graph(Network::Drafter, graph, context, Heads::Last),
            Decode::Cpu { .. } => self.passes.on_cpu(Network::Drafter, 1, context),
        };
        // In the middle of the answer: what a pass takes grows with the context, and evenly.
        let context = request.prompt.0 + request.output.0 / 2;
        passes
            * (f64::from(EAGLE_DRAFTED) * draft(context) + self.verify(setting, 1 + EAGLE_DRAFTED, context, Heads::All))
    }
}

impl Cost {
    /// Milliseconds for each token of the answers, from the beginning to the end.
    pub(super) fn ms_per_token(&self) -> f64 {
        (self.prefill_s + self.decode_s) * 1e3 / self.tokens
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.prefill_s += other.prefill_s;
        self.decode_s += other.decode_s;
        self.joules += other.joules;
        self.tokens += other.tokens;
        self.requests += other.requests;
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}
