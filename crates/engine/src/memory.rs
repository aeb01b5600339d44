//! How much memory keys and values get, and how long a sequence that allows.

use crate::config::EngineConfig;
use crate::machine_memory::MachineMemory;
use crate::request::EngineError;
use duet_model::Model;
use duet_model::kv::PAGE_TOKENS;
use duet_scheduler::machine::ExactGraphs;
use duet_scheduler::{MemoryLimits, StatePages, WindowPages};
use duet_types::{Bytes, Tokens};

/// KV memory in pages, and the longest sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) pages: usize,
    pub(crate) context: Tokens,
}

/// What the pages of a model are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageShape {
    pub(crate) tokens: Tokens,
    pub(crate) bytes: Bytes,
    pub(crate) states: StatePages,
    pub(crate) windows: WindowPages,
}

impl PageShape {
    /// Of a model's keys and values as they are asked for.
    pub(crate) fn of(model: &Model, config: &EngineConfig) -> Self {
        let kv = config.kv_format;
        let states = model.kv_states(kv).map_or(StatePages::NONE, |states| StatePages {
            pages: states.pages,
            every: Tokens(states.distance() as u32),
        });
        let bytes = Bytes(model.kv_layout(kv).page_bytes() as u64);
        Self { tokens: Tokens(PAGE_TOKENS as u32), bytes, states, windows: windows(model, config) }
    }

    /// So many of them.
    pub(crate) fn limits(&self, pages: usize, disk_pages: usize) -> MemoryLimits {
        MemoryLimits { page: self.tokens, pages, disk_pages, states: self.states, windows: self.windows }
    }
}

/// What a sequence that does not fit whole takes. Devices read pages where they are, and whole.
fn windows(model: &Model, config: &EngineConfig) -> WindowPages {
    let Some(window) = model.kv_window().filter(|_| config.devices.is_empty()) else { return WindowPages::NONE };
    let limits = config.limits(model.config().context);
    let [_, draft] = limits.draft;
    let layout = model.kv_layout(config.kv_format);
    WindowPages {
        // The pages at its beginning and its end are there in part.
        tail: window + limits.prefill_rows.max(draft) + Tokens(2 * PAGE_TOKENS as u32),
        lasting: Bytes(layout.lasting_bytes() as u64),
        whole: Bytes(layout.page_bytes() as u64),
    }
}

/// Divides memory. A context that was asked for is given or refused; the model's own is cut to what memory holds.
pub(crate) fn budget(
    config: &EngineConfig,
    model_context: Tokens,
    page: &PageShape,
    available: Bytes,
) -> Result<Budget, EngineError> {
    let wanted = config.context.unwrap_or(model_context).min(model_context);
    let wanted_pages = page.limits(0, 0).pages_of(wanted) as u64;
    let bytes = config.kv_bytes.unwrap_or(Bytes(available.0 / AVAILABLE_SHARE));
    let mut pages = bytes.0 / page.bytes.0.max(1);
    let is_asked_for = config.context.is_some();
    if is_asked_for && config.kv_bytes.is_none() {
        pages = pages.max(wanted_pages);
    }
    let least = if is_asked_for { wanted_pages } else { page.limits(0, 0).pages_of(Tokens(1)) as u64 };
    if pages < least {
        let needed = Bytes(least * page.bytes.0);
        return Err(EngineError::OutOfMemory(format!("{bytes} were given and {needed} are needed")));
    }
    let pages = pages.min(u64::from(u32::MAX) / u64::from(page.tokens.0)) as usize;
    let longest = page.limits(pages, 0).longest();
    Ok(Budget { pages, context: wanted.min(longest) })
}

/// Refuses keys and values that somebody asked for and that take more than all memory there is; warns of those that take more
/// than is free. Unasked they take a part of what is free.
pub(crate) fn check_room(budget: &Budget, page: &PageShape, memory: MachineMemory) -> Result<(), EngineError> {
    let (context, needed) = (budget.context.0, Bytes(budget.pages as u64 * page.bytes.0));
    match memory {
        MachineMemory { total: Some(total), .. } if needed > total => Err(EngineError::Configuration(format!(
            "keys and values for a context of {context} tokens would take {needed} of memory, and there are {total} in all: \
             lower --ctx or --kv-memory, or use --kv int4"
        ))),
        MachineMemory { available: Some(available), .. } if needed > available => {
            tracing::warn!("keys and values may take {needed} of memory, and {available} are free now");
            Ok(())
        }
        _ => Ok(()),
    }
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

    fn check(context: Option<u32>, kv_bytes: Option<u64>, expected: Result<(usize, u32), &str>) {
        let config =
            EngineConfig { context: context.map(Tokens), kv_bytes: kv_bytes.map(Bytes), ..EngineConfig::default() };
        // Pages of 64 tokens and 1000 bytes; a quarter of the machine is 10 of them.
        let page =
            PageShape { tokens: Tokens(64), bytes: Bytes(1000), states: StatePages::NONE, windows: WindowPages::NONE };
        let budget = budget(&config, Tokens(1000), &page, Bytes(40_000));
        let budget = budget.map(|budget| (budget.pages, budget.context.0)).map_err(|error| error.to_string());
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
        check(None, None, Ok((10, 640)));
        check(None, Some(100_000), Ok((100, 1000)));
        check(Some(1000), None, Ok((16, 1000)));
        check(Some(5000), Some(100_000), Ok((100, 1000)));
        check(Some(100), Some(2_000), Ok((2, 100)));
        check(Some(100), Some(1_000), Err("out of KV cache memory: 1000 B were given and 2.0 KiB are needed"));
        check(None, Some(999), Err("out of KV cache memory: 999 B were given and 1000 B are needed"));
    }

    #[test]
    fn what_takes_more_than_there_is_is_refused() {
        let page = PageShape {
            tokens: Tokens(64),
            bytes: Bytes(1 << 20),
            states: StatePages::NONE,
            windows: WindowPages::NONE,
        };
        let budget = Budget { pages: 2048, context: Tokens(131_072) };
        let check = |total: Option<u64>, available: u64| {
            let memory =
                MachineMemory { total: total.map(|mib| Bytes(mib << 20)), available: Some(Bytes(available << 20)) };
            check_room(&budget, &page, memory).map_err(|error| error.to_string())
        };
        let refused = check(Some(2047), 2047).unwrap_err();
        for words in ["131072 tokens", "2.0 GiB of memory", "lower --ctx or --kv-memory"] {
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!(check(Some(2048), 100), Ok(()), "it is warned of");
        assert_eq!(check(None, 4096), Ok(()));
    }

    #[test]
    fn windows_that_pass_make_room_for_more() {
        // A tenth of a page lasts.
        let windows = WindowPages { tail: Tokens(256), lasting: Bytes(100), whole: Bytes(1000) };
        let page = PageShape { tokens: Tokens(64), bytes: Bytes(1000), states: StatePages::NONE, windows };
        let budget = |context: Option<u32>, kv: Option<u64>| {
            let (context, kv_bytes) = (context.map(Tokens), kv.map(Bytes));
            let config = EngineConfig { context, kv_bytes, ..EngineConfig::default() };
            budget(&config, Tokens(4000), &page, Bytes(40_000)).map(|budget| (budget.pages, budget.context.0)).ok()
        };
        assert_eq!(budget(None, None), Some((10, 4000)), "four whole ones, and a tenth of 59");
        assert_eq!(budget(None, Some(5000)), Some((5, 896)), "four whole ones, and a tenth of 10");
        assert_eq!(budget(Some(896), Some(5000)), Some((5, 896)));
        assert_eq!(budget(Some(897), Some(5000)), None);
    }

    #[test]
    fn states_take_pages_of_it() {
        let states = StatePages { pages: 4, every: Tokens(256) };
        let page = PageShape { tokens: Tokens(64), bytes: Bytes(1000), states, windows: WindowPages::NONE };
        let budget = |context: Option<u32>, kv: u64| {
            let (context, kv_bytes) = (context.map(Tokens), Some(Bytes(kv)));
            let config = EngineConfig { context, kv_bytes, ..EngineConfig::default() };
            budget(&config, Tokens(1000), &page, Bytes(0)).map(|budget| (budget.pages, budget.context.0)).ok()
        };
        // Two pages and a state; and up to a border, where one more is due.
        assert_eq!(
            [4, 5, 6, 11].map(|pages| budget(None, pages * 1000)),
            [None, Some((5, 64)), Some((6, 128)), Some((11, 255))]
        );
        assert_eq!([6, 7].map(|pages| budget(Some(150), pages * 1000)), [None, Some((7, 150))]);
    }
}
