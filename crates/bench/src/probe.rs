//! The machine's ceilings and the process's memory.

use crate::ceiling::{Peak, peak};
use crate::samples::median;
use duet_kernels::crew::Crew;
use duet_kernels::isa::Isa;
use duet_kernels::probe::{ReadProbe, int8_macs_per_second, time_to_meet};
use serde::Serialize;
use std::time::Instant;

/// What the machine can do at most, as the crew that was measured reached it: medians of the ceilings beside the samples.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ceilings {
    /// Integer multiply-accumulates, 10⁹ a second.
    pub int8_gmacs: f64,
    /// Bytes read from memory, 10⁹ a second.
    pub read_gbs: f64,
    /// Nanoseconds that its cores take to meet, measured whenever reading is: it says how near they are to each other, which on
    /// a virtual machine may change.
    pub meeting_ns: f64,
    /// Ceilings that were found.
    pub found: usize,
    /// Those of them whose probes never agreed: the best probe is what was taken.
    #[serde(skip_serializing_if = "is_zero")]
    pub unsettled: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Ceilings found beside samples, by the rule of [`crate::ceiling`].
pub(crate) struct Ceiling<'a> {
    isa: Isa,
    crew: &'a dyn Crew,
    read: Option<ReadProbe>,
    int8: Vec<Peak>,
    bytes: Vec<Peak>,
    meetings: Vec<f64>,
}

/// Far more than any cache, little enough to be read in 20 ms.
const READ_BYTES: usize = 256 << 20;

impl<'a> Ceiling<'a> {
    pub(crate) fn new(isa: Isa, crew: &'a dyn Crew) -> Self {
        Self { isa, crew, read: None, int8: Vec::new(), bytes: Vec::new(), meetings: Vec::new() }
    }

    /// Integer multiply-accumulates a second, now.
    pub(crate) fn int8(&mut self) -> Peak {
        let start = Instant::now();
        let found = peak(|| int8_macs_per_second(self.isa, self.crew), || start.elapsed());
        self.int8.push(found);
        found
    }

    /// Bytes read a second, now. Its buffer is only allocated by the first call.
    pub(crate) fn read(&mut self) -> Peak {
        let probe = self.read.get_or_insert_with(|| ReadProbe::new(READ_BYTES));
        let start = Instant::now();
        let found = peak(|| probe.bytes_per_second(self.isa, self.crew), || start.elapsed());
        self.bytes.push(found);
        self.meetings.push(time_to_meet(self.crew).as_secs_f64() * 1e9);
        found
    }

    pub(crate) fn ceilings(&self) -> Ceilings {
        let giga = |peaks: &[Peak]| median(peaks.iter().map(|peak| peak.rate).collect()).unwrap_or(0.0) / 1e9;
        let all = || self.int8.iter().chain(&self.bytes);
        Ceilings {
            int8_gmacs: giga(&self.int8),
            read_gbs: giga(&self.bytes),
            meeting_ns: median(self.meetings.clone()).unwrap_or(0.0),
            found: all().count(),
            unsettled: all().filter(|peak| !peak.settled).count(),
        }
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
