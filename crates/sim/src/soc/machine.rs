//! What a profile means to the scheduler and to the virtual world.

use super::profile::{SocProfile, UnitProfile};
use crate::dram;
use duet_scheduler::annotation::{Demand, demand};
use duet_scheduler::heg::{Heg, Load};
use duet_scheduler::machine::{Anchors, Capabilities, Contention, Covers, ExactGraphs, FewRows, Lane, Machine, PerRow};
use duet_types::{Bytes, Nanos, Tokens};

/// Power of the lanes, in watts.
#[derive(Clone, Debug, PartialEq)]
pub struct Power {
    /// One for each lane.
    pub lanes: Vec<UnitPower>,
    /// Of the CPU thread that compiles graphs.
    pub compile: f64,
}

/// Power of a unit, and how busy it shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitPower {
    /// While it reads prompts.
    pub prefill: f64,
    /// While it decodes.
    pub decode: f64,
    /// While it does nothing.
    pub idle: f64,
    /// How busy the system's monitor shows it while it decodes.
    pub decode_busy: f64,
}

impl SocProfile {
    /// The NPU and the iGPU, as the scheduler sees them when they run this model.
    #[must_use]
    pub fn accelerators(&self, heg: &Heg) -> Machine {
        let npu = Capabilities { exact: Some(self.exact_graphs(heg)), ..Capabilities::STATIC };
        let lanes = vec![lane("npu", npu, &self.npu), lane("igpu", Capabilities::DYNAMIC, &self.igpu)];
        let contention = self.contention(heg, &lanes);
        Machine { contention, ..Machine::of(lanes) }
    }

    /// Graphs for exactly a prompt's rows, all of a layer in them. Compiling goes with the work of the products, of which a
    /// row has the same everywhere; that of attention, a few hundredths of it in prompts of this context, is left out. The
    /// graphs hold the layers' weights, as those of the engine do, and loading brings them into memory.
    fn exact_graphs(&self, heg: &Heg) -> ExactGraphs {
        let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
        let row_gmac = heg.layers as f64 * (heg.qkv.macs_per_row + heg.ffn.macs_per_row) / 1e9;
        let bytes = layers_bytes(heg);
        ExactGraphs {
            compile: nanos(bytes / self.graph_bytes_per_s()),
            compile_per_row: nanos(self.graphs.compile_s.value * row_gmac / self.graphs.compile_gmac.value),
            bytes: Bytes(bytes as u64),
            covers: Covers::Layers,
        }
    }

    /// For how many prompts there may be graphs at once, by the engine's rule: in an eighth of what memory the model leaves
    /// free.
    #[must_use]
    pub fn graphs_held(&self, heg: &Heg) -> usize {
        let left = (self.memory.free_gb.value * 1e9 - layers_bytes(heg) - heg.head.all_weights()).max(0.0);
        let memory = Bytes(left as u64 / ExactGraphs::SHARE_OF_FREE);
        ExactGraphs::held(memory, Bytes(layers_bytes(heg) as u64), self.graphs.resident.value as usize)
    }

    /// Bytes a second of a graph that is being loaded, when nothing disturbs it.
    #[must_use]
    pub fn graph_bytes_per_s(&self) -> f64 {
        self.graphs.load_gb_s.value * 1e9
    }

    /// Writing so many positions' keys and values to disk, or reading them.
    pub(crate) fn page_io(&self, heg: &Heg, page: Tokens) -> Nanos {
        let bytes = heg.layers as f64 * heg.attention.bytes_per_position * f64::from(page.0);
        Nanos((bytes / self.graph_bytes_per_s() * 1e9) as u64)
    }

    /// The CPU alone: what CPU serving has.
    #[must_use]
    pub fn cpu_only(&self) -> Machine {
        let lanes = vec![lane("cpu", Capabilities::CORES, &self.cpu)];
        Machine::of(lanes)
    }

    /// Power of the lanes of a machine of this profile, by their names.
    #[must_use]
    pub fn power(&self, machine: &Machine) -> Power {
        let unit = |lane: &Lane| match lane.name.as_str() {
            "npu" => power(&self.npu),
            "igpu" => power(&self.igpu),
            _ => power(&self.cpu),
        };
        Power { lanes: machine.lanes.iter().map(unit).collect(), compile: self.graphs.compile_w.value }
    }

    /// Bytes a second that all lanes get together.
    #[must_use]
    pub fn shared_bytes_per_s(&self) -> f64 {
        self.memory.shared_gb_s.value * 1e9
    }

    /// What a chunk on the NPU and decode on the iGPU do to each other: the factors that the scheduler knows of.
    fn contention(&self, heg: &Heg, lanes: &[Lane]) -> Contention {
        let rows = Tokens(self.chunk.rows.value as u32);
        let chunk = Load::default().with_rows(Tokens(0)..rows, duet_scheduler::Yields::Context);
        let token = Load::default().with_rows(rows..rows + Tokens(1), duet_scheduler::Yields::Token);
        let moved = |Demand { seconds, bytes }: Demand| bytes / seconds;
        let whole = 0..heg.nodes();
        let compute = moved(demand(heg, &lanes[0].anchors, &chunk, &whole));
        let [npu, igpu] = [0, 1].map(|lane: usize| moved(demand(heg, &lanes[lane].anchors, &token, &whole)));
        let slower = |demands: [f64; 2], of: usize| 1.0 / dram::speeds(self.shared_bytes_per_s(), &demands)[of];
        Contention {
            memory_beside_memory: slower([npu, igpu], 1),
            memory_beside_compute: slower([compute, igpu], 1),
            compute_beside_memory: slower([compute, igpu], 0),
            compute_beside_compute: slower([compute, compute], 0),
        }
    }
}

/// Weights of all layers.
fn layers_bytes(heg: &Heg) -> f64 {
    heg.layers as f64 * (heg.qkv.all_weights() + heg.ffn.all_weights())
}

fn lane(name: &str, capabilities: Capabilities, unit: &UnitProfile) -> Lane {
    // Two operations are one multiply-accumulate.
    let macs = |tflops: f64| tflops * 1e12 / 2.0;
    let anchors = Anchors {
        macs_per_s: macs(unit.gemm_tflops.value),
        attention_macs_per_s: macs(unit.attention_tflops.value),
        bytes_per_s: unit.read_gb_s.value * 1e9,
        launch: Nanos((unit.launch_ms.value * 1e6) as u64),
        exposed: unit.exposed.value,
        per_row: PerRow::NONE,
        few_rows: FewRows::NONE,
    };
    Lane::new(name, capabilities, anchors)
}

fn power(unit: &UnitProfile) -> UnitPower {
    UnitPower {
        prefill: unit.prefill_w.value,
        decode: unit.decode_w.value,
        idle: unit.idle_w.value,
        decode_busy: unit.decode_busy.value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelShape, Simulation, SocProfile, soc};
    use duet_scheduler::policy::PolicyName;

    fn intel() -> SocProfile {
        soc::built_in().find(|soc| soc.name == "intel-core-ultra-5-125h").unwrap()
    }

    #[test]
    fn graphs_of_a_larger_model_take_as_much_longer_as_they_have_more_work() {
        let graphs = |name: &str| intel().exact_graphs(&ModelShape::named(name).unwrap().heg());
        let (small, large) = (graphs("llama-3.2-3b"), graphs("llama-3.1-8b"));
        // Published parameters of the layers: 2.82 and 6.98 thousand millions, a byte each, a product each.
        let ratio = |figure: fn(&ExactGraphs) -> u64| figure(&large) as f64 / figure(&small) as f64;
        let figures: [fn(&ExactGraphs) -> u64; 3] = [|of| of.compile_per_row.0, |of| of.bytes.0, |of| of.compile.0];
        for figure in figures {
            assert!((ratio(figure) - 6.98 / 2.82).abs() < 0.01, "{}", ratio(figure));
        }
        assert!(large.ready_after(Tokens(1024)) - large.ready_after(Tokens(0)) > Nanos(6_000_000_000));
    }

    #[test]
    fn there_are_as_many_graphs_as_memory_holds_and_none_of_the_large_model() {
        let graphs = |free_gb: f64, name: &str| {
            let mut soc = intel();
            soc.memory.free_gb.value = free_gb;
            Simulation::on_soc(&soc, &ModelShape::named(name).unwrap().heg(), PolicyName::Duet).config.limits.graphs
        };
        let [small, large] = ["llama-3.2-3b", "llama-3.1-8b"];
        assert_eq!([60.0, 20.0, 1.0].map(|free| graphs(free, small)), [2, 0, 0]);
        assert_eq!([60.0, 70.0, 1000.0].map(|free| graphs(free, large)), [0, 1, 4]);
    }
}
