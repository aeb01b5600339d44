//! A profile as it is written: TOML, every constant with its source.

use super::constant::{Constant, Least};
use serde::Deserialize;

/// A system on a chip.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocProfile {
    /// By which it is asked for.
    pub name: String,
    /// What people call it.
    pub title: String,
    /// The memory that all units share.
    pub memory: MemoryProfile,
    /// The NPU, where prefill goes.
    pub npu: UnitProfile,
    /// The unit of the iGPU role, where decode goes.
    pub igpu: UnitProfile,
    /// The CPU, which compiles graphs, and is all that CPU serving has.
    pub cpu: UnitProfile,
    /// Compiling graphs for the NPU, and loading them.
    pub graphs: GraphProfile,
    /// How prompts are cut.
    pub chunk: ChunkProfile,
}

/// The memory that all units share.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryProfile {
    /// What units get together while several of them read.
    pub shared_gb_s: Constant,
    /// What is free before a model is loaded.
    pub free_gb: Constant,
}

/// One unit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitProfile {
    /// Matrix products of a chunk (`P_eff`); one multiply-accumulate is two operations.
    pub gemm_tflops: Constant,
    /// Attention of a long prompt.
    pub attention_tflops: Constant,
    /// Reading weights (`B_eff`).
    pub read_gb_s: Constant,
    /// From a launch to the first instruction, and from the last one to the completion.
    pub launch_ms: Constant,
    /// How much of the shorter of computing and reading is not hidden by the longer: 0 is the paper's roofline.
    pub exposed: Constant,
    /// Power while it reads prompts.
    pub prefill_w: Constant,
    /// Power while it decodes.
    pub decode_w: Constant,
    /// Power while it does nothing.
    pub idle_w: Constant,
    /// How busy the system's monitor shows it while it decodes; it is all busy while it reads prompts.
    pub decode_busy: Constant,
}

/// Compiling graphs for the NPU, and loading them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphProfile {
    /// Compiling some graph, on one thread.
    pub compile_s: Constant,
    /// The work of that graph, 10⁹ multiply-accumulates in all layers that it serves: a prompt's graphs take as much longer
    /// as they have more work.
    pub compile_gmac: Constant,
    /// Power of the CPU thread that compiles.
    pub compile_w: Constant,
    /// Graphs for single prompts that may be there at once.
    pub resident: Constant,
    /// Loading a compiled graph with its weights: what the disk gives, which it gives to KV, too.
    pub load_gb_s: Constant,
}

/// How prompts are cut.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkProfile {
    /// Rows of a chunk kernel (`S_chk`).
    pub rows: Constant,
    /// Longest context of an activation buffer.
    pub context: Constant,
}

/// A constant's place in a profile: `igpu.read_gb_s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path(pub(crate) &'static str, pub(crate) &'static str);

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl SocProfile {
    /// All constants, with their places.
    #[must_use]
    pub fn constants(&self) -> Vec<(Path, &Constant)> {
        let mut all = vec![
            (Path("memory", "shared_gb_s"), &self.memory.shared_gb_s),
            (Path("memory", "free_gb"), &self.memory.free_gb),
        ];
        for (unit, profile) in [("npu", &self.npu), ("igpu", &self.igpu), ("cpu", &self.cpu)] {
            all.extend(profile.constants().map(|(name, constant)| (Path(unit, name), constant)));
        }
        all.push((Path("graphs", "compile_s"), &self.graphs.compile_s));
        all.push((Path("graphs", "compile_gmac"), &self.graphs.compile_gmac));
        all.push((Path("graphs", "compile_w"), &self.graphs.compile_w));
        all.push((Path("graphs", "resident"), &self.graphs.resident));
        all.push((Path("graphs", "load_gb_s"), &self.graphs.load_gb_s));
        all.push((Path("chunk", "rows"), &self.chunk.rows));
        all.push((Path("chunk", "context"), &self.chunk.context));
        all
    }

    /// The same profile with one constant changed: for sweeps of its interval.
    ///
    /// # Panics
    /// If `path` is not one of [`Self::constants`].
    #[must_use]
    pub fn with(&self, path: Path, value: f64) -> Self {
        let mut changed = self.clone();
        let constant = changed.constant_mut(path).unwrap_or_else(|| panic!("a profile has no {path}"));
        constant.value = value;
        changed
    }

    fn constant_mut(&mut self, Path(part, name): Path) -> Option<&mut Constant> {
        match (part, name) {
            ("memory", "shared_gb_s") => Some(&mut self.memory.shared_gb_s),
            ("memory", "free_gb") => Some(&mut self.memory.free_gb),
            ("npu", name) => self.npu.constant_mut(name),
            ("igpu", name) => self.igpu.constant_mut(name),
            ("cpu", name) => self.cpu.constant_mut(name),
            ("graphs", "compile_s") => Some(&mut self.graphs.compile_s),
            ("graphs", "compile_gmac") => Some(&mut self.graphs.compile_gmac),
            ("graphs", "compile_w") => Some(&mut self.graphs.compile_w),
            ("graphs", "resident") => Some(&mut self.graphs.resident),
            ("graphs", "load_gb_s") => Some(&mut self.graphs.load_gb_s),
            ("chunk", "rows") => Some(&mut self.chunk.rows),
            ("chunk", "context") => Some(&mut self.chunk.context),
            _ => None,
        }
    }

    /// What is impossible in it: the place, and why.
    pub(crate) fn problem(&self) -> Option<(Path, String)> {
        self.constants().into_iter().find_map(|(path, constant)| {
            let least = match path.1 {
                "gemm_tflops" | "attention_tflops" | "read_gb_s" | "shared_gb_s" | "compile_gmac" | "load_gb_s"
                | "rows" | "context" => Least::Positive,
                _ => Least::Zero,
            };
            constant.problem(least).map(|problem| (path, problem))
        })
    }
}

impl UnitProfile {
    fn constants(&self) -> impl Iterator<Item = (&'static str, &Constant)> {
        [
            ("gemm_tflops", &self.gemm_tflops),
            ("attention_tflops", &self.attention_tflops),
            ("read_gb_s", &self.read_gb_s),
            ("launch_ms", &self.launch_ms),
            ("exposed", &self.exposed),
            ("prefill_w", &self.prefill_w),
            ("decode_w", &self.decode_w),
            ("idle_w", &self.idle_w),
            ("decode_busy", &self.decode_busy),
        ]
        .into_iter()
    }

    fn constant_mut(&mut self, name: &str) -> Option<&mut Constant> {
        match name {
            "gemm_tflops" => Some(&mut self.gemm_tflops),
            "attention_tflops" => Some(&mut self.attention_tflops),
            "read_gb_s" => Some(&mut self.read_gb_s),
            "launch_ms" => Some(&mut self.launch_ms),
            "exposed" => Some(&mut self.exposed),
            "prefill_w" => Some(&mut self.prefill_w),
            "decode_w" => Some(&mut self.decode_w),
            "idle_w" => Some(&mut self.idle_w),
            "decode_busy" => Some(&mut self.decode_busy),
            _ => None,
        }
    }
}
