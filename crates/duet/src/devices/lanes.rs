//! The cores as duet's own kernels use them, and what they can do at this moment.

use super::{Lanes, ShapesReport};
use duet_device::available_cores;
use duet_kernels::crew::Scoped;
use duet_kernels::isa::{Isa, IsaError};
use duet_kernels::probe::{ReadProbe, int8_macs_per_second};

pub(super) fn look() -> Result<Lanes, IsaError> {
    let (isa, crew) = (Isa::chosen()?, Scoped { threads: available_cores().len() });
    let read = ReadProbe::new(READ_BYTES);
    // The best of a few: what disturbs a probe makes it slower, never faster.
    let best = |probe: &dyn Fn() -> f64| (0..PROBES).map(|_| probe()).fold(0.0, f64::max) / 1e9;
    Ok(Lanes {
        full_name: first_value("/proc/cpuinfo", "model name"),
        cores: crew.threads,
        isa: isa.to_string(),
        memory_bytes: memory(),
        int8_gmacs: best(&|| int8_macs_per_second(isa, &crew)),
        read_gbs: best(&|| read.bytes_per_second(isa, &crew)),
        shapes: ShapesReport::Dynamic,
    })
}

const PROBES: usize = 5;

/// More than any cache, little enough to be written in a tenth of a second.
const READ_BYTES: usize = 128 << 20;

fn memory() -> Option<u64> {
    let kibibytes: u64 = first_value("/proc/meminfo", "MemTotal")?.strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The value of the first line `key : value` of a file of Linux; absent elsewhere.
fn first_value(path: &str, key: &str) -> Option<String> {
    value(&std::fs::read_to_string(path).ok()?, key)
}

fn value(text: &str, key: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_what_follows_its_key() {
        let text = "model\t: 85\nmodel name\t: A processor: fast\nmodel name\t: another\n";
        assert_eq!(value(text, "model name").as_deref(), Some("A processor: fast"));
        assert_eq!(value(text, "MemTotal"), None);
    }

    #[test]
    fn the_cores_multiply_and_read() {
        let lanes = look().unwrap();
        assert!(lanes.cores > 0 && lanes.int8_gmacs > 0.0 && lanes.read_gbs > 0.0, "{lanes:?}");
    }
}
