//! GPUs, as duet's own kernels use them, and why one is not used.

use super::SelfTestReport;
use duet_gpu::{Adapter, Adapters, CacheAccess, GpuError, SelfTest, Verdict, self_test};
use serde::Serialize;

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct Gpus {
    /// The adapters, in the order of their numbers.
    pub(crate) adapters: Vec<GpuReport>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) none: Option<String>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(crate) struct GpuReport {
    /// What `--device` calls it.
    pub(crate) name: String,
    /// Its maker's name for it.
    pub(crate) full_name: String,
    /// The driver and its version.
    pub(crate) driver: String,
    /// Vulkan, Metal or DirectX 12.
    pub(crate) interface: String,
    /// Where its memory is.
    pub(crate) kind: String,
    /// The most that one matrix, or a part of one, takes there.
    pub(crate) binding_bytes: u64,
    /// Whether it is used.
    pub(crate) used: Use,
    /// Of one that may be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) self_test: Option<SelfTestReport>,
    /// Of one that passed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys_and_values: Option<KeysAndValues>,
}

/// Where a GPU finds keys and values.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeysAndValues {
    /// In the cache.
    InPlace,
    /// In copies.
    Copied,
}

/// Whether one is used.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Use {
    /// Where it pays.
    Yes,
    /// Only if it is named.
    ByName,
    /// Not: why.
    No(String),
}

/// Looks for them, and tries each that may be used.
pub(super) fn look() -> Gpus {
    let found = Adapters::look();
    let adapters: Vec<_> = found.all().iter().map(report).collect();
    let none = adapters.is_empty().then(|| GpuError::NoAdapter.to_string());
    Gpus { adapters, none }
}

fn report(adapter: &Adapter) -> GpuReport {
    let used = match &adapter.verdict {
        Verdict::Used => Use::Yes,
        Verdict::ByName => Use::ByName,
        Verdict::Unused(why) => Use::No(why.clone()),
    };
    let tried = (!matches!(used, Use::No(_))).then(|| self_test(adapter));
    let access = tried.as_ref().and_then(|tried| tried.as_ref().ok()).map(|passed| passed.cache_access);
    GpuReport {
        name: adapter.name.clone(),
        full_name: adapter.full_name.clone(),
        driver: adapter.driver.clone(),
        interface: adapter.interface.clone(),
        kind: adapter.kind.to_string(),
        binding_bytes: adapter.binding_max,
        keys_and_values: access.map(|access| match access {
            CacheAccess::InPlace => KeysAndValues::InPlace,
            CacheAccess::Copied => KeysAndValues::Copied,
        }),
        self_test: tried.map(outcome),
        used,
    }
}

fn outcome(tried: Result<SelfTest, GpuError>) -> SelfTestReport {
    match tried {
        Ok(passed) => SelfTestReport::Passed {
            compile_ms: passed.compile.as_millis_f64(),
            inference_us: passed.inference.as_millis_f64() * 1e3,
            off_percent: 100.0 * passed.off,
        },
        Err(error) => SelfTestReport::Failed(error.to_string()),
    }
}
