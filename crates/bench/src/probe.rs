//! The machine's ceilings and the process's memory.

use crate::samples::median;
use duet_kernels::crew::Crew;
use duet_kernels::isa::Isa;
use duet_kernels::probe::{ReadProbe, int8_macs_per_second};
use serde::Serialize;

/// What the machine can do at most, as the crew that was measured reached it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ceilings {
    /// Integer multiply-accumulates, 10⁹ a second: the median of all probes.
    pub int8_gmacs: f64,
    /// Bytes read from memory, 10⁹ a second: the median of all probes.
    pub read_gbs: f64,
}

/// Probes taken beside samples.
pub(crate) struct Ceiling<'a> {
    isa: Isa,
    crew: &'a dyn Crew,
    read: Option<ReadProbe>,
    int8: Vec<f64>,
    bytes: Vec<f64>,
}

/// Far more than any cache, little enough to be read in 20 ms.
const READ_BYTES: usize = 256 << 20;

impl<'a> Ceiling<'a> {
    pub(crate) fn new(isa: Isa, crew: &'a dyn Crew) -> Self {
        Self { isa, crew, read: None, int8: Vec::new(), bytes: Vec::new() }
    }

    /// Integer multiply-accumulates a second, now.
    pub(crate) fn int8(&mut self) -> f64 {
        let rate = int8_macs_per_second(self.isa, self.crew);
        self.int8.push(rate);
        rate
    }

    /// Bytes read a second, now. Its buffer is only allocated by the first call.
    pub(crate) fn read(&mut self) -> f64 {
        let probe = self.read.get_or_insert_with(|| ReadProbe::new(READ_BYTES));
        let rate = probe.bytes_per_second(self.isa, self.crew);
        self.bytes.push(rate);
        rate
    }

    pub(crate) fn ceilings(&self) -> Ceilings {
        let giga = |rates: &[f64]| median(rates.to_vec()).unwrap_or(0.0) / 1e9;
        Ceilings { int8_gmacs: giga(&self.int8), read_gbs: giga(&self.bytes) }
    }
}

/// The most memory this process ever had in use; `None` where the system does not say.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// The memory that this process has in use now; `None` where the system does not say.
pub(crate) fn rss_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

fn status_bytes(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
