//! Whether a model's weights have room in memory, and what would have: asked before anything is loaded or downloaded.

use crate::bad_input::BadInput;
use crate::models::{ALIASES, Role};
use crate::progress::eprintln_quiet;
use crate::weights::Weights;
use duet_engine::MachineMemory;
use duet_types::Bytes;
use std::path::Path;

/// Refuses a model whose weights alone are more than all the memory there is, container or machine. Less than that may
/// still be more than is free just now: the system then makes room, or swaps, and the person is warned.
pub(crate) fn check(
    path: &Path,
    weights: Weights,
    expert_memory: Option<Bytes>,
    memory: MachineMemory,
) -> Result<(), BadInput> {
    let (shown, needed) = (path.display(), weights.with(expert_memory));
    let advice = advice(weights, expert_memory, memory);
    match memory {
        MachineMemory { total: Some(total), available } if needed > total => {
            let free = available.map_or_else(String::new, |free| format!(", {free} of them free"));
            let text =
                format!("{shown}: its weights take {needed} of memory, and there are {total} in all{free}; {advice}");
            Err(BadInput(text))
        }
        MachineMemory { available: Some(available), .. } if needed > available => {
            eprintln_quiet(&format!(
                "warning: the weights of {shown} take {needed} of memory, and {available} are free now; {advice}"
            ));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// What would fit.
fn advice(weights: Weights, expert_memory: Option<Bytes>, memory: MachineMemory) -> String {
    let room = room(memory);
    let instead = room.and_then(largest).map_or_else(String::new, |name| format!(" (`{name}` would fit)"));
    let smaller = format!("take a smaller model{instead}");
    let for_experts = room.and_then(|room| whole_mebibytes(room.0.checked_sub(weights.least().0)?));
    match (for_experts, expert_memory, weights.experts) {
        (_, _, Bytes(0)) => format!("{smaller}, or one of fewer bits"),
        (Some(fits), None, experts) => {
            format!(
                "leave some of its {experts} of experts on disk: there is room for --expert-memory {fits}M; or {smaller}"
            )
        }
        (None, None, experts) => format!(
            "{smaller}, one of fewer bits, or leave some of its {experts} of experts on disk with --expert-memory"
        ),
        (Some(fits), Some(_), _) => {
            format!("give experts less with --expert-memory (there is room for {fits}M), or {smaller}")
        }
        (None, Some(_), _) => format!("give experts less with --expert-memory, or {smaller}"),
    }
}

/// Memory for weights: what is free, without the quarter of it that keys and values are given.
fn room(memory: MachineMemory) -> Option<Bytes> {
    let free = memory.available.or(memory.total)?;
    Some(Bytes(free.0 / 4 * 3))
}

/// The largest model with a short name that answers and has room in so many bytes.
fn largest(room: Bytes) -> Option<&'static str> {
    let fits = ALIASES.iter().filter(|alias| alias.role == Role::Answers && alias.size <= room);
    fits.max_by_key(|alias| alias.size).map(|alias| alias.name)
}

fn whole_mebibytes(bytes: u64) -> Option<u64> {
    Some(bytes >> 20).filter(|mebibytes| *mebibytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(all: u64, experts: u64) -> Weights {
        Weights { all: Bytes(all * MIB), experts: Bytes(experts * MIB) }
    }

    fn memory(total: u64, available: u64) -> MachineMemory {
        MachineMemory { total: Some(Bytes(total * MIB)), available: Some(Bytes(available * MIB)) }
    }

    fn refused(weights: Weights, expert_memory: Option<Bytes>, memory: MachineMemory) -> String {
        check(Path::new("m.gguf"), weights, expert_memory, memory).unwrap_err().to_string()
    }

    #[test]
    fn a_model_that_can_never_fit_is_refused_with_the_sizes_and_what_would() {
        let text = refused(of(3000, 0), None, memory(2048, 1000));
        for words in ["m.gguf", "take 2.9 GiB", "2.0 GiB in all", "1000.0 MiB of them free", "` would fit"] {
            assert!(text.contains(words), "{text}");
        }
        assert!(refused(of(3000, 0), None, memory(64, 10)).contains("take a smaller model, or one of fewer bits"));
        let path = Path::new("m.gguf");
        assert!(check(path, of(2048, 0), None, memory(2048, 0)).is_ok());
        assert!(check(path, of(2048, 0), None, MachineMemory::default()).is_ok(), "what nobody knows refuses nothing");
    }

    #[test]
    fn a_mixture_that_does_not_fit_may_leave_experts_on_disk_and_is_told_how_many_fit() {
        let (mixture, little) = (of(3000, 2000), memory(2048, 1600));
        let text = refused(mixture, None, little);
        assert!(text.contains("room for --expert-memory 200M") && text.contains("2.0 GiB of experts"), "{text}");
        assert!(check(Path::new("m.gguf"), mixture, Some(Bytes(200 * MIB)), little).is_ok());
        let text = refused(mixture, Some(Bytes(1900 * MIB)), little);
        assert!(text.contains("less with --expert-memory (there is room for 200M)"), "{text}");
        let text = refused(mixture, None, memory(2048, 1000));
        assert!(text.contains("with --expert-memory") && !text.contains("room for"), "{text}");
    }
}
