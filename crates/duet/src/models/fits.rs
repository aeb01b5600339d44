//! What is refused before a byte of it is downloaded: a model whose weights this machine has no memory for, whatever is left
//! on disk, and a file that the disk has no room for.

use super::alias::Alias;
use super::fetch::FetchError;
use crate::bad_input::BadInput;
use crate::progress::eprintln_quiet;
use crate::weights::Weights;
use duet_engine::MachineMemory;
use duet_types::Bytes;
use std::path::Path;

/// That an alias's weights have room in all the memory there is. Experts may stay on disk.
pub(super) fn check_memory(alias: &Alias, memory: MachineMemory) -> Result<(), BadInput> {
    let Some(total) = memory.total else { return Ok(()) };
    let (name, size, least) = (alias.name, alias.size, alias.memory_least());
    if least <= total {
        return Ok(());
    }
    let at_least = if least < size { format!(", {least} of it even with its experts on disk") } else { String::new() };
    Err(BadInput(format!(
        "`{name}` was not downloaded: its weights take about {size} of memory{at_least}, and there are {total} in all; \
         take a smaller model (duet pull --list)"
    )))
}

/// The same of a file on a hub, by what its beginning says.
pub(super) fn check_weights(weights: Weights, total: Bytes) -> Result<(), FetchError> {
    if weights.least() > total {
        return Err(FetchError::NoMemory { needed: weights.all, least: weights.least(), total });
    }
    if weights.all > total {
        eprintln_quiet(&format!(
            "note: its weights take {} of memory, and there are {total} in all; run it with --expert-memory, which leaves some of \
             its {} of experts on disk",
            weights.all, weights.experts
        ));
    }
    Ok(())
}

/// That the disk of `folder` has room for so many bytes more.
pub(super) fn check_disk(folder: &Path, missing: Bytes, free: Option<Bytes>) -> Result<(), FetchError> {
    match free {
        Some(free) if free < missing => Err(FetchError::NoRoom { folder: folder.to_owned(), missing, free }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ALIASES;

    fn alias(name: &str) -> &'static Alias {
        ALIASES.iter().find(|alias| alias.name == name).unwrap()
    }

    fn with(total: u64) -> MachineMemory {
        MachineMemory { total: Some(Bytes(total)), available: None }
    }

    #[test]
    fn a_dense_model_is_refused_where_its_weights_are_more_than_all_memory() {
        let dense = alias("qwen3-4b");
        assert_eq!(check_memory(dense, with(dense.size.0)), Ok(()));
        assert_eq!(check_memory(dense, MachineMemory::default()), Ok(()), "what nobody knows refuses nothing");
        let refused = check_memory(dense, with(2_000_000_000)).unwrap_err().to_string();
        assert!(refused.contains("2.3 GiB") && refused.contains("1.9 GiB in all"), "{refused}");
    }

    #[test]
    fn experts_may_stay_on_disk() {
        let mixture = alias("qwen3-30b-a3b");
        assert_eq!(check_memory(mixture, with(16_000_000_000)), Ok(()));
        let refused = check_memory(mixture, with(1_000_000_000)).unwrap_err().to_string();
        assert!(refused.contains("even with its experts on disk"), "{refused}");
    }
}
