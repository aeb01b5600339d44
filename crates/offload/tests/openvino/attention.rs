//! Attention as static chunk graphs, beside the CPU's own.

use crate::common::{furthest, runtime};
use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, ExpertWise, Node, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::{KvFormat, KvTable};
use duet_model::{LoadOptions, Model};
use duet_offload::{AttentionPlace, ExpertScheme, ExpertSettings, PlacedExperts};
use duet_openvino::{Activations as Rounding, CompileOptions};
use duet_runtimes::BlobCache;
use duet_types::{Bytes, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

const CHUNK: u32 = 64;

fn load(name: &str) -> Arc<Model> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    let path = folder.join(format!("golden_{name}.gguf"));
    Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn placed(model: &Arc<Model>, folder: &Path) -> Option<PlacedExperts> {
    let device = runtime()?.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Rounding::ROUNDED));
    let cache = BlobCache::new(folder.to_owned(), Bytes(1 << 30));
    let settings = ExpertSettings {
        scheme: ExpertScheme::DenseOnly,
        attention: AttentionPlace::Device,
        chunk: Tokens(CHUNK),
        ..ExpertSettings::default()
    };
    Some(PlacedExperts::ready_on(model, (Arc::new(device), cache), None, settings, &mut |_| {}).unwrap())
}

/// Logits of the last of some tokens, read in chunks; attention on the device where there is one and it takes it.
fn logits(model: &Model, chunks: &[u32], format: KvFormat, device: Option<&PlacedExperts>) -> (Vec<f32>, usize) {
    let mut kv: KvTable = model.kv_pool(format, Tokens(256)).table();
    let (mut logits, mut refused, mut next) = (Vec::new(), 0, 3);
    for &rows in chunks {
        let tokens = (next..next + rows).map(|token| TokenId(token % 60)).collect();
        next += rows;
        let activations = Activations::new(model, rows as usize);
        let mut pass = Pass::new(model, activations, vec![Segment::new(kv, tokens)]).unwrap();
        for node in model.nodes() {
            if let (Node::Attention { layer }, Some(device)) = (node, device.and_then(TokenWise::attention)) {
                match model.attend_on(device, &mut pass, layer) {
                    Ok(()) => continue,
                    Err(NotRun::Unsupported(_)) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            model.run_node(&mut pass, node, 0..rows as usize, &Solo);
        }
        model.logits(&mut pass, &[rows as usize - 1], &mut logits, &Solo);
        kv = pass.finish().1.into_iter().next().unwrap();
    }
    logits.truncate(model.config().vocabulary);
    (logits, refused)
}

#[test]
fn a_chunk_on_the_device_attends_as_on_the_cpu() {
    for name in ["mixtral", "qwen3moe", "qwen2moe"] {
        let (model, folder) = (load(name), tempfile::tempdir().unwrap());
        let Some(device) = placed(&model, folder.path()) else { return };
        for format in [KvFormat::F16, KvFormat::Int8] {
            let before = device.stats().attention.launches;
            // The second chunk has a past; the last one is too short.
            let chunks = [CHUNK, CHUNK, 5];
            let (expected, _) = logits(&model, &chunks, format, None);
            let (found, refused) = logits(&model, &chunks, format, Some(&device));
            let worst = furthest(&found, &expected);
            assert!(worst < 0.02, "{name}, {format:?}: off by {worst}");
            let layers = model.config().layers;
            assert_eq!((refused, device.stats().attention.launches - before), (layers, 2 * layers as u64));
        }
    }
}
