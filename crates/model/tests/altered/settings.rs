//! Settings that no model has: an error or a model that runs, never a panic; and no memory for what is only claimed.

use crate::parts::{MODELS, Parts};
use duet_model::gguf::Value;

/// The memory that is measured is the process's; what other tests take beside this one is little.
#[test]
fn settings_are_checked_before_anything_is_made_of_their_size() {
    let before = peak_bytes();
    for name in MODELS {
        let parts = Parts::of(name);
        let Some((_, Value::String(architecture))) =
            parts.metadata.iter().find(|(key, _)| key == "general.architecture")
        else {
            panic!("{name} has no architecture");
        };
        let prefix = format!("{architecture}.");
        for (index, (key, value)) in parts.metadata.iter().enumerate() {
            for other in others(value).into_iter().filter(|_| key.starts_with(&prefix)) {
                let mut altered = parts.clone();
                altered.metadata[index].1 = other.clone();
                if let Err(error) = altered.load_and_run() {
                    assert!(!error.is_empty(), "{key}: {other:?}");
                }
            }
        }
    }
    let grown = peak_bytes().zip(before).map(|(after, before)| after - before);
    // The files have half a megabyte; 2^24 layers that are only claimed took four hundred.
    assert!(grown.is_none_or(|grown| grown < 100 << 20), "the peak grew by {grown:?} bytes");
}

fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::U32(number) => [0, 1, number.saturating_sub(1), number + 1, number * 2, 1024, 4096, 1 << 24, u32::MAX]
            .map(Value::U32)
            .to_vec(),
        Value::F32(_) => [0.0, -1.0, 1e-45, 1e-30, 1e38, f32::INFINITY, f32::NAN].map(Value::F32).to_vec(),
        _ => Vec::new(),
    }
}

/// The most memory that this process ever had; nothing where the system does not say.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10)
}
