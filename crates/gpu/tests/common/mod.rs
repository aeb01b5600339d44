//! A GPU to test on, and models.

use duet_gpu::{Adapter, Adapters};
use duet_model::gguf::GgufFile;
use duet_model::{LoadError, LoadOptions, Model, PackedFileUse, WeightsIn};
use duet_testing::Need;
use std::fs::File;
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

/// With weights in memory of the process's own, which a GPU may be given.
pub(crate) fn loaded(path: &Path) -> Arc<Model> {
    let folder = tempfile::tempdir().unwrap();
    let weights_in = if cfg!(unix) { WeightsIn::OwnMemory } else { WeightsIn::MappedFile };
    let packed = Some(folder.path().to_owned());
    let options = LoadOptions { packed, weights_in, packed_file: PackedFileUse::OrRefuse, ..LoadOptions::default() };
    let Err(LoadError::NotPacked { path: place, .. }) = Model::load(path, &options, &mut |_| {}) else {
        panic!("nothing is packed there yet")
    };
    let out = File::create(place).unwrap();
    Model::pack_into(&GgufFile::open(path).unwrap(), &out, &options, &mut |_| {}).unwrap();
    Arc::new(Model::load(path, &options, &mut |_| {}).unwrap())
}
