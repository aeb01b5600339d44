//! How much memory keys and values get, and how long a sequence that allows.

use crate::config::EngineConfig;
use crate::machine_memory::MachineMemory;
use crate::request::EngineError;
use duet_scheduler::machine::ExactGraphs;
use duet_types::{Bytes, Tokens};

/// KV memory in tokens, and the longest sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) pool: Tokens,
    pub(crate) context: Tokens,
}

/// Divides memory. A context that was asked for is given or refused; the model's own is cut to what memory holds.
pub(crate) fn budget(
    config: &EngineConfig,
    model_context: Tokens,
    page_tokens: usize,
    page_bytes: Bytes,
    available: Bytes,
) -> Result<Budget, EngineError> {
    let page_tokens = page_tokens as u64;
    let wanted = config.context.unwrap_or(model_context).min(model_context);
    let wanted_pages = u64::from(wanted.0).div_ceil(page_tokens);
    let bytes = config.kv_bytes.unwrap_or(Bytes(available.0 / AVAILABLE_SHARE));
    let mut pages = bytes.0 / page_bytes.0.max(1);
    let is_asked_for = config.context.is_some();
    if is_asked_for && config.kv_bytes.is_none() {
        pages = pages.max(wanted_pages);
    }
    if pages == 0 || (is_asked_for && pages < wanted_pages) {
        let needed = if is_asked_for { Bytes(wanted_pages * page_bytes.0) } else { page_bytes };
        return Err(EngineError::OutOfMemory(format!("{bytes} were given and {needed} are needed")));
    }
    pages = pages.min(u64::from(u32::MAX) / page_tokens);
    let pool = Tokens((pages * page_tokens) as u32);
    Ok(Budget { pool, context: wanted.min(pool) })
}

/// What KV pages have left, and what those of a draft model get.
pub(crate) fn with_draft_model(config: &EngineConfig, available: Bytes) -> (EngineConfig, Bytes, Bytes) {
    if config.draft.is_none() || !config.speculate.has_model() {
        return (config.clone(), available, Bytes(0));
    }
    let left = |bytes: Bytes| Bytes(bytes.0 - bytes.0 / DRAFT_MODEL_SHARE);
    let all = config.kv_bytes.unwrap_or(Bytes(available.0 / AVAILABLE_SHARE));
    let config = EngineConfig { kv_bytes: config.kv_bytes.map(left), ..config.clone() };
    (config, left(available), Bytes(all.0 / DRAFT_MODEL_SHARE))
}

/// How many graphs that are made for one prompt memory holds, one of which takes so much; no more than `most`.
pub(crate) fn graphs_held(config: &EngineConfig, available: Bytes, one: Bytes, most: usize) -> usize {
    let bytes = config.graph_bytes.unwrap_or(Bytes(available.0 / ExactGraphs::SHARE_OF_FREE));
    ExactGraphs::held(bytes, one, most)
}

/// Memory that this machine, or the container that this is, could give a new program. Where the system does not tell, the
/// log says what is assumed.
pub(crate) fn available() -> Bytes {
    MachineMemory::now().available.unwrap_or_else(|| {
        tracing::warn!(
            "this system does not say how much memory is free: {AVAILABLE_UNKNOWN} are assumed, of which keys and values \
             get a quarter unless they are given another size (--kv-memory)"
        );
        AVAILABLE_UNKNOWN
    })
}

/// KV may take a quarter of what is available: duet shares the machine with what its user does.
const AVAILABLE_SHARE: u64 = 4;
/// Of that a draft model gets an eighth: its keys and values are smaller, and only of those that decode.
const DRAFT_MODEL_SHARE: u64 = 8;
/// Assumed where the system does not tell: a small laptop's spare memory.
const AVAILABLE_UNKNOWN: Bytes = Bytes(4 << 30);

#[cfg(test)]
mod tests {
    use super::*;
    use duet_speculate::Method;

    fn check(context: Option<u32>, kv_bytes: Option<u64>, expected: Result<(u32, u32), &str>) {
        let config =
            EngineConfig { context: context.map(Tokens), kv_bytes: kv_bytes.map(Bytes), ..EngineConfig::default() };
        // Pages of 64 tokens and 1000 bytes; a quarter of the machine is 10 of them.
        let budget = budget(&config, Tokens(1000), 64, Bytes(1000), Bytes(40_000));
        let budget = budget.map(|budget| (budget.pool.0, budget.context.0)).map_err(|error| error.to_string());
        assert_eq!(budget, expected.map_err(str::to_owned));
    }

    #[test]
    fn what_a_draft_model_gets_is_a_part_of_what_there_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        let load =
            |path: &str| duet_model::Model::load(path.as_ref(), &duet_model::LoadOptions::default(), &mut |_| {});
        let draft = Some(std::sync::Arc::new(load(path).unwrap()));
        let shares = |kv_bytes: Option<u64>| {
            let (draft, speculate) = (draft.clone(), Method::DuetDraft);
            let kv_bytes = kv_bytes.map(Bytes);
            let config = EngineConfig { kv_bytes, draft, speculate, ..EngineConfig::default() };
            let (config, available, share) = with_draft_model(&config, Bytes(3200));
            (config.kv_bytes, available, share)
        };
        assert_eq!(shares(None), (None, Bytes(2800), Bytes(100)), "of a quarter of 3200 an eighth");
        assert_eq!(shares(Some(1600)), (Some(Bytes(1400)), Bytes(2800), Bytes(200)));
        let config = EngineConfig::default();
        assert_eq!(with_draft_model(&config, Bytes(3200)).2, Bytes(0), "without one");
    }

    #[test]
    fn there_are_as_many_graphs_as_memory_holds() {
        let held = |graph_bytes: Option<u64>, one| {
            let config = EngineConfig { graph_bytes: graph_bytes.map(Bytes), ..EngineConfig::default() };
            graphs_held(&config, Bytes(8_000), Bytes(one), 4)
        };
        assert_eq!([300, 400, 1_000, 1_001, u64::MAX].map(|one| held(None, one)), [3, 2, 1, 0, 0]);
        assert_eq!([(0, 1), (5, 2), (u64::MAX, 0)].map(|(bytes, one)| held(Some(bytes), one)), [0, 2, 4]);
    }

    #[test]
    fn memory_is_divided_in_pages() {
        check(None, None, Ok((640, 640)));
        check(None, Some(100_000), Ok((6400, 1000)));
        check(Some(1000), None, Ok((1024, 1000)));
        check(Some(5000), Some(100_000), Ok((6400, 1000)));
        check(Some(100), Some(2_000), Ok((128, 100)));
        check(Some(100), Some(1_000), Err("out of KV cache memory: 1000 B were given and 2.0 KiB are needed"));
        check(None, Some(999), Err("out of KV cache memory: 999 B were given and 1000 B are needed"));
    }
}
