//! A GPU to test on, and models.

use duet_gpu::{Adapter, Adapters};
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The adapter that `DUET_TEST_GPU` names, or else the first that can be used, a program on the processor or not.
pub(crate) fn adapter() -> Option<Adapter> {
    let found = Adapters::look();
    if let Ok(name) = std::env::var(Need::Gpu.variable()) {
        return Some(found.named(&name).unwrap().clone());
    }
    let able = found.all().iter().find(|adapter| found.named(&adapter.name).is_ok()).cloned();
    if able.is_none() {
        duet_testing::skip(Need::Gpu, "there is no Vulkan driver: install mesa-vulkan-drivers, say");
    }
    able
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures")).join(name)
}

pub(crate) fn loaded(path: &Path) -> Arc<Model> {
    Arc::new(Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap())
}
