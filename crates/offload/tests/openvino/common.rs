//! What the tests of devices share.

use duet_kernels::crew::Solo;
use duet_model::Model;
use duet_model::forward::{Activations, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_openvino::Runtime;
use duet_types::{TokenId, Tokens};

/// A tiny model in floats.
pub(crate) fn fixture() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf")
}

/// The greatest difference, in the largest of what is expected.
pub(crate) fn furthest(found: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    found.iter().zip(expected).fold(0.0_f32, |worst, (a, b)| worst.max((a - b).abs())) / largest
}

pub(crate) fn runtime() -> Option<Runtime> {
    duet_testing::loaded(Runtime::load())
}

/// Logits of the last of some tokens, with the linear work on the device if there is one.
pub(crate) fn logits(model: &Model, device: Option<&dyn TokenWise>) -> Result<Vec<f32>, NotRun> {
    let mut pass = pass(model);
    let (rows, mut logits) = (pass.rows(), Vec::new());
    for node in model.nodes() {
        match device {
            Some(device) => model.run_node_on(device, &mut pass, node, 0..rows, &Solo)?,
            None => model.run_node(&mut pass, node, 0..rows, &Solo),
        }
    }
    match device {
        Some(device) => model.logits_on(device, &mut pass, &[rows - 1], &mut logits)?,
        None => model.logits(&mut pass, &[rows - 1], &mut logits, &Solo),
    }
    logits.truncate(model.config().vocabulary);
    Ok(logits)
}

/// A pass over some tokens.
pub(crate) fn pass(model: &Model) -> Pass {
    let tokens: Vec<TokenId> = (3..20).map(TokenId).collect();
    let table = model.kv_pool(KvFormat::F16, Tokens(64)).table();
    Pass::new(model, Activations::new(model, 32), vec![Segment::new(table, tokens)]).unwrap()
}
