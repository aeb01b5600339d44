//! How a graph is compiled: OpenVINO's properties, typed.
//!
//! What is left out is left to the device. OpenVINO takes properties as texts, and plugins throw at what they do not know:
//! here a wrong one cannot be written down, and `offer.rs` leaves out what a device does not take.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

/// How a graph is compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CompileOptions {
    /// Threads of an inference (CPU).
    pub threads: Option<NonZeroU16>,
    /// Whether these threads stay on their cores (CPU).
    pub pinning: Option<Pinning>,
    /// How activations are quantised (CPU, GPU). It trades error for speed: set it where the result matters.
    pub activations: Option<Activations>,
    /// What is computed in. Left out, a CPU with units for 16 bits computes in these, and so does a GPU.
    pub precision: Option<Precision>,
    /// Inferences that run side by side (CPU, GPU).
    pub streams: Option<NonZeroU16>,
    /// Who computes what the NPU's plugin has taken apart (NPU).
    pub npu_front_end: Option<NpuFrontEnd>,
}

/// Who computes what the front end of the NPU's plugin (NPUW) has taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NpuFrontEnd {
    /// The CPU: graphs are looked at, cut and written down as for an NPU, where there is none.
    OnCpu,
}

/// Whether threads stay on their cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pinning {
    /// Each thread has a core.
    Pinned,
    /// The operating system moves threads as it likes.
    Floating,
}

/// How activations are quantised in products with quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Activations {
    /// They are not: the product is computed in floats.
    Floats,
    /// As eight bits, one scale for this number of inputs. A group that does not divide a product's inputs is not used there.
    // No wider than this: with the largest number that OpenVINO takes it silently computes in floats.
    Groups(NonZeroU32),
}

/// What is computed in, finest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Single precision's range in 16 bits.
    Bf16,
}

impl CompileOptions {
    /// One thread and one inference at a time: what a lane of one core wants.
    #[must_use]
    pub fn one_core() -> Self {
        Self { threads: Some(NonZeroU16::MIN), streams: Some(NonZeroU16::MIN), ..Self::default() }
    }

    /// A model's blocks, to run on `threads` threads of a device where it has such. With [`Activations::Floats`] nothing is
    /// rounded but the weights: half as fast, and what others are measured against. They are what is wanted:
    /// [`crate::Device::with_options`] leaves out what the device does not take.
    #[must_use]
    pub fn of_blocks(threads: u16, activations: Activations) -> Self {
        Self {
            threads: NonZeroU16::new(threads),
            activations: Some(activations),
            // Left to itself, a CPU that knows half precision computes in it.
            precision: Some(Precision::F32),
            streams: Some(NonZeroU16::MIN),
            ..Self::default()
        }
    }

    /// The same options, each by itself: what a device is asked about one after the other.
    pub(crate) fn one_by_one(&self) -> impl Iterator<Item = Self> + use<> {
        let nothing = Self::default();
        let each = [
            Self { threads: self.threads, ..nothing },
            Self { pinning: self.pinning, ..nothing },
            Self { activations: self.activations, ..nothing },
            Self { precision: self.precision, ..nothing },
            Self { streams: self.streams, ..nothing },
        ];
        each.into_iter().filter(move |one| *one != nothing)
    }

    /// Those of both; where both have one, the other's.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            threads: other.threads.or(self.threads),
            pinning: other.pinning.or(self.pinning),
            activations: other.activations.or(self.activations),
            precision: other.precision.or(self.precision),
            streams: other.streams.or(self.streams),
            npu_front_end: other.npu_front_end.or(self.npu_front_end),
        }
    }

    /// OpenVINO's keys and values, those that are set only, always in this order.
    pub(crate) fn properties(&self) -> Vec<(&'static str, String)> {
        let number = |number: NonZeroU16| number.to_string();
        let properties = [
            ("INFERENCE_NUM_THREADS", self.threads.map(number)),
            ("ENABLE_CPU_PINNING", self.pinning.map(|pinning| pinning.value().to_owned())),
            ("DYNAMIC_QUANTIZATION_GROUP_SIZE", self.activations.map(Activations::value)),
            ("INFERENCE_PRECISION_HINT", self.precision.map(|precision| precision.value().to_owned())),
            ("NUM_STREAMS", self.streams.map(number)),
        ];
        let mut set: Vec<_> = properties.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        match self.npu_front_end {
            Some(NpuFrontEnd::OnCpu) => {
                set.extend([("NPU_USE_NPUW", "YES".to_owned()), ("NPUW_DEVICES", "CPU".to_owned())]);
            }
            None => {}
        }
        set
    }
}

impl Pinning {
    fn value(self) -> &'static str {
        match self {
            Self::Pinned => "YES",
            Self::Floating => "NO",
        }
    }
}

impl Activations {
    /// As duet's own kernels round them, to eight bits in groups of 32, where the device does so.
    pub const ROUNDED: Self = Self::Groups(NonZeroU32::new(32).unwrap());

    /// The same of rounding activations: eight bits round a group's values by a part in 250 of its largest.
    #[must_use]
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Floats => 0.0,
            Self::Groups(_) => 3e-2,
        }
    }

    fn value(self) -> String {
        match self {
            Self::Floats => "0".to_owned(),
            Self::Groups(inputs) => inputs.to_string(),
        }
    }
}

impl Precision {
    /// How far a block's results are from the reference interpreter's at most, where nothing else is rounded: the root mean
    /// square of the differences, in that of the results. A half has eleven bits and a bfloat eight; a feed-forward block
    /// rounds a dozen times one behind the other, and sums are taken in whatever order a device likes.
    #[must_use]
    pub fn tolerance(self) -> f64 {
        match self {
            Self::F32 => 1e-5,
            Self::F16 => 5e-3,
            Self::Bf16 => 3e-2,
        }
    }

    fn value(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

/// `INFERENCE_NUM_THREADS=1 NUM_STREAMS=1`: the same text for the same options, and only for these.
impl fmt::Display for CompileOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties = self.properties();
        let texts: Vec<_> = properties.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&texts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_not_said() {
        assert_eq!(CompileOptions::default().properties(), []);
        let options = CompileOptions { activations: Some(Activations::Floats), ..CompileOptions::one_core() };
        let shown = "INFERENCE_NUM_THREADS=1 DYNAMIC_QUANTIZATION_GROUP_SIZE=0 NUM_STREAMS=1";
        assert_eq!(options.to_string(), shown);
    }

    #[test]
    fn options_are_those_that_they_are_one_by_one() {
        let options =
            CompileOptions { pinning: Some(Pinning::Floating), ..CompileOptions::of_blocks(3, Activations::Floats) };
        let parts: Vec<_> = options.one_by_one().collect();
        assert_eq!(parts.len(), 5);
        assert!(parts.iter().all(|one| one.properties().len() == 1));
        assert_eq!(parts.into_iter().fold(CompileOptions::default(), CompileOptions::and), options);
        assert_eq!(CompileOptions::default().one_by_one().count(), 0);
    }
}
