//! What a profile means to the scheduler and to the virtual world.

use super::profile::{SocProfile, UnitProfile};
use crate::dram;
use duet_scheduler::annotation::{Demand, demand};
use duet_scheduler::heg::{Heg, Load};
use duet_scheduler::machine::{Anchors, Capabilities, Contention, FewRows, Lane, Machine, PerRow};
use duet_types::{Nanos, Tokens};

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
        let compile = Nanos((self.graphs.compile_s.value * 1e9) as u64);
        let lanes = vec![
            lane("npu", Capabilities::static_with(compile), &self.npu),
            lane("igpu", Capabilities::DYNAMIC, &self.igpu),
        ];
        let contention = self.contention(heg, &lanes);
        Machine { contention, ..Machine::of(lanes) }
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
