//! A GPU to test on, and passes through a model on it.

use duet_gpu::{Adapter, Adapters};
use duet_kernels::crew::Scoped;
use duet_model::forward::{Activations, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use duet_types::{TokenId, Tokens};
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

/// The logits of all rows of a prompt whose token-wise nodes run on a device, or nowhere but here.
pub(crate) fn logits(model: &Model, tokens: &[TokenId], device: Option<&dyn TokenWise>) -> Result<Vec<f32>, NotRun> {
    let table = model.kv_pool(KvFormat::F16, Tokens(512)).table();
    let segment = Segment::new(table, tokens.to_vec());
    let mut pass = Pass::new(model, Activations::new(model, tokens.len()), vec![segment]).unwrap();
    let (crew, all) = (Scoped { threads: 2 }, 0..tokens.len());
    let mut logits = Vec::new();
    let Some(device) = device else {
        model.run_span(&mut pass, 0..model.node_count(), &crew);
        model.logits(&mut pass, &all.collect::<Vec<_>>(), &mut logits, &crew);
        return Ok(logits[..tokens.len() * model.config().vocabulary].to_vec());
    };
    for node in model.nodes() {
        model.run_node_on(device, &mut pass, node, all.clone(), &crew)?;
    }
    model.logits_on(device, &mut pass, &all.collect::<Vec<_>>(), &mut logits)?;
    Ok(logits)
}
