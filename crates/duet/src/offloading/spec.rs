//! A device as a person writes it: `openvino:NPU`, `openvino:CPU,shapes=fixed,threads=1,name=npu`, `cpu`.

use crate::bad_input::BadInput;
use crate::cli;
use duet_scheduler::machine::RowsTaken;
use duet_types::Bytes;
use std::fmt;
use std::str::FromStr;

/// A device's name, with its runtime's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// The cores, on which duet's own kernels run.
    Cpu,
    /// One of OpenVINO's, by its name there.
    OpenVino(String),
    /// Qualcomm's HTP, maybe of a certain generation.
    #[cfg(feature = "qnn")]
    Qnn(String),
    /// A GPU by way of Vulkan, Metal or DirectX 12, by its number or without.
    #[cfg(feature = "gpu")]
    Gpu(String),
}

/// A device, and how it is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSpec {
    pub(crate) device: DeviceName,
    /// As it is called in figures, if not by its name.
    name: Option<String>,
    /// Which rows it gets, where it has the choice.
    pub(crate) shapes: Option<ShapesName>,
    /// Its threads, where it has such.
    threads: Option<u16>,
    /// What its graphs may take.
    pub(crate) graph_memory: Option<Bytes>,
    /// What a GPU may take of its memory.
    pub(crate) memory: Option<Bytes>,
}

/// Numbers of rows, as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShapesName {
    Any,
    Fixed,
}

impl DeviceName {
    /// Whether it computes on the cores that duet computes on.
    pub(crate) fn is_made_of_cores(&self) -> bool {
        match self {
            Self::Cpu => true,
            Self::OpenVino(device) => device.starts_with("CPU"),
            // Elsewhere it is an emulator.
            #[cfg(feature = "qnn")]
            Self::Qnn(_) => cfg!(not(target_arch = "aarch64")),
            // One that is a program on the processor is only used if it is asked for: it is for tests.
            #[cfg(feature = "gpu")]
            Self::Gpu(_) => false,
        }
    }

    /// Whether it takes compiled graphs.
    pub(crate) fn takes_graphs(&self) -> bool {
        *self != Self::Cpu && !self.is_gpu()
    }

    /// Whether it is a GPU with kernels of duet's own.
    fn is_gpu(&self) -> bool {
        match self {
            #[cfg(feature = "gpu")]
            Self::Gpu(_) => true,
            _ => false,
        }
    }

    /// Whether two names are of one device: OpenVINO calls the first of a kind with its number or without.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let whole = |name: &Self| name.to_string().trim_end_matches(".0").to_owned();
        whole(self) == whole(other)
    }
}

impl DeviceSpec {
    /// A device as it comes.
    pub(crate) fn of(device: DeviceName) -> Self {
        Self { device, name: None, shapes: None, threads: None, graph_memory: None, memory: None }
    }

    /// What the device is called in figures and timelines.
    pub(crate) fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.device.to_string())
    }

    /// Options that the cores do not take, and a GPU's kernels do not.
    pub(crate) fn check(&self) -> Result<(), BadInput> {
        match self.shapes {
            #[cfg(feature = "gpu")]
            _ if matches!(self.device, DeviceName::Gpu(_)) && self.has_options_of_graphs() => Err(BadInput(format!(
                "--device {self}: a GPU compiles no graphs and takes any rows: it has the options `name` and `memory`"
            ))),
            _ if self.memory.is_some() && !self.device.is_gpu() => Err(BadInput(format!(
                "--device {self}: `memory` is for a GPU, which then holds some layers; of graphs it is `graph-memory`"
            ))),
            // Lanes of cores are called so, and shares of lanes go by their names.
            _ if self.label().starts_with("cpu") => {
                Err(BadInput(format!("--device {self}: a name that begins with `cpu` is the cores'; take another")))
            }
            Some(ShapesName::Any) if self.graph_memory.is_some() => {
                Err(BadInput(format!("--device {self}: graphs that are exchanged have fixed shapes; leave one out")))
            }
            _ => Ok(()),
        }
    }

    #[cfg(feature = "gpu")]
    fn has_options_of_graphs(&self) -> bool {
        self.shapes.is_some() || self.threads.is_some() || self.graph_memory.is_some()
    }

    /// Its threads; those of a device of cores leave the others to the crew.
    pub(crate) fn threads_given(&self) -> Option<u16> {
        if self.device.is_made_of_cores() { Some(self.threads_taken()) } else { self.threads }
    }

    /// Cores that a device of cores takes from the crew.
    pub(crate) fn threads_taken(&self) -> u16 {
        self.threads.unwrap_or(1)
    }

    /// The rows that it gets, on a device that takes these.
    pub(crate) fn rows(&self, taken: RowsTaken) -> Result<RowsTaken, BadInput> {
        match (self.shapes, taken) {
            (Some(ShapesName::Any), RowsTaken::Chunk) => {
                Err(BadInput(format!("--device {self}: it takes fixed shapes only; leave `shapes=any` out")))
            }
            (Some(ShapesName::Fixed), _) | (None, RowsTaken::Chunk) => Ok(RowsTaken::Chunk),
            (Some(ShapesName::Any) | None, RowsTaken::Any) => Ok(RowsTaken::Any),
        }
    }
}

impl FromStr for DeviceName {
    type Err = BadInput;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.split_once(':') {
            None if name == "cpu" => Ok(Self::Cpu),
            Some(("openvino", device)) if !device.is_empty() => Ok(Self::OpenVino(device.to_owned())),
            #[cfg(feature = "gpu")]
            None if name == "gpu" => Ok(Self::Gpu(name.to_owned())),
            #[cfg(feature = "gpu")]
            Some(("gpu", number)) if number.parse::<usize>().is_ok() => Ok(Self::Gpu(name.to_owned())),
            #[cfg(feature = "qnn")]
            Some(("qnn", device)) if !device.is_empty() => Ok(Self::Qnn(device.to_owned())),
            #[cfg(not(feature = "gpu"))]
            _ if name == "gpu" || name.starts_with("gpu:") => {
                let text = "this duet was built without GPUs: build it with `--features gpu`";
                Err(BadInput(format!("there is no device `{name}`: {text}")))
            }
            _ => Err(BadInput(format!("there is no device `{name}`; `openvino:CPU` is one, `duet devices` lists all"))),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(',');
        let device = parts.next().unwrap_or_default().parse()?;
        let mut spec = Self::of(device);
        for option in parts {
            let refused = || BadInput(format!("{text}: {OPTIONS}, not `{option}`"));
            match option.split_once('=').ok_or_else(refused)? {
                ("name", name) if !name.is_empty() => spec.name = Some(name.to_owned()),
                ("shapes", "any") => spec.shapes = Some(ShapesName::Any),
                ("shapes", "fixed") => spec.shapes = Some(ShapesName::Fixed),
                ("threads", count) => {
                    spec.threads = Some(count.parse().ok().filter(|&count| count > 0).ok_or_else(refused)?);
                }
                ("memory", bytes) => spec.memory = Some(cli::bytes(bytes).map_err(|_| refused())?),
                ("graph-memory", bytes) => spec.graph_memory = Some(cli::bytes(bytes).map_err(|_| refused())?),
                _ => return Err(refused()),
            }
        }
        if spec.device == DeviceName::Cpu && text != "cpu" {
            return Err(BadInput(format!("{text}: the cores take no options here; --threads says how many")));
        }
        Ok(spec)
    }
}

/// What may follow a device's name.
const OPTIONS: &str =
    "after a device may follow shapes=any or shapes=fixed, threads=N, graph-memory=BYTES, memory=BYTES and name=NAME";

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::OpenVino(device) => write!(f, "openvino:{device}"),
            #[cfg(feature = "qnn")]
            Self::Qnn(device) => write!(f, "qnn:{device}"),
            #[cfg(feature = "gpu")]
            Self::Gpu(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_with_its_runtime() {
        assert_eq!("openvino:GPU.1".parse::<DeviceName>().unwrap().to_string(), "openvino:GPU.1");
        #[cfg(feature = "gpu")]
        assert_eq!("gpu:1".parse::<DeviceName>().unwrap().to_string(), "gpu:1");
        #[cfg(not(feature = "gpu"))]
        assert!("gpu".parse::<DeviceName>().unwrap_err().0.contains("--features gpu"));
        #[cfg(feature = "qnn")]
        assert_eq!("qnn:HTP.v79".parse::<DeviceName>().unwrap().to_string(), "qnn:HTP.v79");
        for wrong in ["", "CPU", "openvino", "openvino:", "cuda:0"] {
            assert!(wrong.parse::<DeviceName>().unwrap_err().0.contains("duet devices"), "{wrong}");
        }
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn a_gpu_has_a_name_and_no_options_of_graphs() {
        let check = |spec: &str| spec.parse::<DeviceSpec>().unwrap().check().map_err(|error| error.0);
        assert_eq!(check("gpu:0,name=igpu,memory=200M"), Ok(()));
        assert!(check("openvino:GPU,memory=200M").unwrap_err().contains("graph-memory"));
        for wrong in ["gpu,shapes=fixed", "gpu,threads=2", "gpu,graph-memory=1GiB"] {
            assert!(check(wrong).unwrap_err().contains("compiles no graphs"), "{wrong}");
        }
        assert!("gpu:first".parse::<DeviceName>().is_err());
    }

    #[test]
    fn what_a_device_can_is_what_it_gets() {
        let rows = |spec: &str, taken| spec.parse::<DeviceSpec>().unwrap().rows(taken).map_err(|error| error.0);
        assert_eq!(rows("openvino:NPU", RowsTaken::Chunk), Ok(RowsTaken::Chunk));
        assert_eq!(rows("openvino:GPU", RowsTaken::Any), Ok(RowsTaken::Any));
        assert_eq!(rows("openvino:GPU,shapes=fixed", RowsTaken::Any), Ok(RowsTaken::Chunk));
        assert!(rows("openvino:NPU,shapes=any", RowsTaken::Chunk).unwrap_err().contains("fixed shapes only"));
    }
}
