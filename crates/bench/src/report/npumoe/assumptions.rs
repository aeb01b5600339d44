//! What no profile says: facts on which the paper is silent or can be read in several ways.
//!
//! None is chosen from a result that is compared. Each is swept over its interval, one at a time.

/// What is assumed beside a machine's profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Assumptions {
    /// Gigabytes a second that one core copies: norms, gather, scatter.
    pub(super) copy_gb_s: f64,
    /// Picojoules for a byte that the memory moves.
    pub(super) memory_pj: f64,
    /// The capacity where all experts have the same one.
    pub(super) room: Room,
    /// The least share of a launch in what a graph of the naive baseline takes.
    pub(super) naive_dispatch: f64,
    /// The share of the naive baseline's expert graphs that run on the CPU after all.
    pub(super) naive_fallback: f64,
    /// What experts on the CPU compute where no technique of the paper is used.
    pub(super) cpu_experts: CpuExperts,
    /// Cores that count as busy.
    pub(super) counting: Counting,
}

/// A single capacity for all experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The mean load.
    Base,
    /// What the busiest is expected to be given.
    Busiest,
    /// The whole chunk: nothing is ever dropped.
    Chunk,
}

/// What an expert on the CPU computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuExperts {
    /// The rows that it is given.
    Rows,
    /// A static graph's slots: Core ML models have fixed shapes on the CPU as well.
    Slots,
}

/// Which cores a cycle counter sees busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// All of them during products, none while the NPU is waited for.
    AllCores,
    /// During products one of each cluster, which feeds its matrix unit; one that spins while the NPU works.
    MatrixUnits,
}

/// One of them, for the page.
pub(super) struct Assumed {
    pub(super) name: &'static str,
    /// As it is taken.
    pub(super) value: &'static str,
    pub(super) low: &'static str,
    pub(super) high: &'static str,
    pub(super) source: &'static str,
    /// With which it is another than it is taken to be.
    pub(super) ends: [fn(Assumptions) -> Assumptions; 2],
}

impl Assumptions {
    /// As they are taken.
    pub(super) const NOMINAL: Self = Self {
        copy_gb_s: 20.0,
        memory_pj: 40.0,
        room: Room::Busiest,
        naive_dispatch: 0.0,
        naive_fallback: 0.0,
        cpu_experts: CpuExperts::Rows,
        counting: Counting::AllCores,
    };
}

/// All of them.
pub(super) const ALL: [Assumed; 7] = [
    Assumed {
        name: "copying by one core, GB/s (norms, masks, gather, scatter)",
        value: "20",
        low: "8",
        high: "60",
        source: "estimate: indexed rows, by a core that could stream several times as much",
        ends: [|of| Assumptions { copy_gb_s: 8.0, ..of }, |of| Assumptions { copy_gb_s: 60.0, ..of }],
    },
    Assumed {
        name: "memory, pJ for each byte moved",
        value: "40",
        low: "25",
        high: "60",
        source: "estimate: LPDDR5 takes some 5 pJ a bit with its interface (3 to 8 are published)",
        ends: [|of| Assumptions { memory_pj: 25.0, ..of }, |of| Assumptions { memory_pj: 60.0, ..of }],
    },
    Assumed {
        name: "the single capacity of Ours-base and of CoreML (naïve)",
        value: "the busiest expert's expected load",
        low: "the mean load",
        high: "the whole chunk",
        source: "§5.8 says \"fixed expert shape\" and no more; §4.1 has all three (Fig. 10 b and c)",
        ends: [|of| Assumptions { room: Room::Base, ..of }, |of| Assumptions { room: Room::Chunk, ..of }],
    },
    Assumed {
        name: "CoreML (naïve): the least share of the launch in a graph's time",
        value: "0 (the profile's launch)",
        low: "0",
        high: "0.6",
        source: "\"more than 60 % of runtime in the worst case\" (§1, Fig. 8), which the fit of Table 5 does not have",
        ends: [|of| of, |of| Assumptions { naive_dispatch: 0.6, ..of }],
    },
    Assumed {
        name: "CoreML (naïve): the share of expert graphs that fall back to the CPU",
        value: "0",
        low: "0",
        high: "1",
        source: "\"at runtime, Core ML decides if experts can run on NPU\" (§5.1); how many do is not said",
        ends: [|of| of, |of| Assumptions { naive_fallback: 1.0, ..of }],
    },
    Assumed {
        name: "CoreML (CPU) and ANEMLL: what experts compute on the CPU",
        value: "the rows they are given",
        low: "the rows they are given",
        high: "padded slots of the single capacity",
        source: "the best that a baseline can do; Core ML models of fixed shapes would pad (§5.1 is silent)",
        ends: [|of| of, |of| Assumptions { cpu_experts: CpuExperts::Slots, ..of }],
    },
    Assumed {
        name: "the cores that CPU cycles are of",
        value: "all during products, none while the NPU is waited for",
        low: "all during products, none while the NPU is waited for",
        high: "one a cluster during products, one while the NPU is waited for",
        source: "estimate: Apple's matrix units belong to clusters (six and three here), and a core feeds each; whether a \
                 waiting thread sleeps or spins is not said",
        ends: [|of| of, |of| Assumptions { counting: Counting::MatrixUnits, ..of }],
    },
];
