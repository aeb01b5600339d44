//! Tiny models with something changed, as files, and what becomes of them: an error, or a model that runs.

use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::gguf::{GgufFile, TensorType, Value, writer::GgufWriter};
use duet_model::kv::KvFormat;
use duet_model::{LoadError, LoadOptions, Model};
use duet_types::{TokenId, Tokens};
use std::path::Path;

/// All tiny models: one of each architecture at least.
pub(crate) const MODELS: [&str; 25] = [
    "llama",
    "llama_rope_linear",
    "llama_rope_llama3",
    "qwen2",
    "qwen3",
    "qwen3_rope_yarn",
    "smollm3",
    "gemma3",
    "mixtral",
    "olmoe",
    "qwen2moe",
    "qwen3moe",
    "phimoe",
    "phimoe_longrope",
    "phi3",
    "phi3_long",
    "gptoss",
    "gptoss_mxfp4",
    "glm4moe",
    "glm4moe_air",
    "lfm2",
    "lfm2moe",
    "gemma4",
    "gemma4_dense",
    "gemma4_experts",
];

/// A model's file, taken apart.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) metadata: Vec<(String, Value)>,
    pub(crate) tensors: Vec<PartTensor>,
}

/// A tensor of it.
#[derive(Clone)]
pub(crate) struct PartTensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    kind: TensorType,
    bytes: Vec<u8>,
}

impl PartTensor {
    /// The same under another name.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// One of single precision, with small numbers in it.
    pub(crate) fn floats(name: &str, shape: &[u64]) -> Self {
        let floats = (0..shape.iter().product::<u64>()).map(|i| (i % 13) as f32 / 13.0 + 0.1);
        let bytes = floats.flat_map(f32::to_le_bytes).collect();
        Self { name: name.to_owned(), shape: shape.to_vec(), kind: TensorType::F32, bytes }
    }
}

impl Parts {
    /// Of a tiny model.
    pub(crate) fn of(name: &str) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let file = GgufFile::open(&fixtures.join(format!("golden_{name}.gguf"))).unwrap();
        let tensors = file.tensors().iter().map(|info| PartTensor {
            name: info.name.clone(),
            shape: info.shape.clone(),
            kind: info.kind,
            bytes: file.tensor(&info.name).unwrap().data().to_vec(),
        });
        let metadata = file.metadata().iter().map(|(key, value)| (key.to_owned(), value.clone()));
        Self { metadata: metadata.collect(), tensors: tensors.collect() }
    }

    /// Put together, loaded and run: the error of loading, or nothing.
    pub(crate) fn load_and_run(&self) -> Result<(), String> {
        run(&self.load()?);
        Ok(())
    }

    /// The same with this setting, whether it had it before or not.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// The same without a setting.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(name, _)| name != key);
        self
    }

    /// Put together and loaded, or the error.
    pub(crate) fn load(&self) -> Result<Model, String> {
        let mut writer = GgufWriter::new();
        for (key, value) in &self.metadata {
            writer.metadata(key, value.clone()).unwrap();
        }
        for PartTensor { name, shape, kind, bytes } in &self.tensors {
            writer.tensor(name, shape, *kind, bytes.clone()).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, writer.to_bytes()).unwrap();
        let options = LoadOptions { threads: 1, ..LoadOptions::default() };
        Model::load(file.path(), &options, &mut |_| {}).map_err(|error| error.to_string())
    }
}

/// The last row's logits behind some tokens.
pub(crate) fn logits(model: &Model) -> Vec<f32> {
    let tokens: Vec<TokenId> = (1..40).map(TokenId).collect();
    let rows = tokens.len();
    let segments = vec![Segment::new(model.kv_pool(KvFormat::F16, Tokens(64)).table(), tokens)];
    let mut pass = Pass::new(model, Activations::new(model, rows), segments).unwrap();
    model.run_span(&mut pass, 0..model.node_count(), &Solo);
    let mut logits = Vec::new();
    model.logits(&mut pass, &[rows - 1], &mut logits, &Solo);
    logits
}

/// Everything that reads a model's tensors: a pass with the first and the last tokens, its logits, and what devices take.
fn run(model: &Model) {
    let last = model.config().vocabulary as u32 - 1;
    let tokens: Vec<TokenId> = [0, 1, last, last / 2].map(|token| TokenId(token.min(last))).to_vec();
    let rows = tokens.len();
    for format in KvFormat::ALL {
        let kv = model.kv_pool(format, Tokens(64)).table();
        let segments = vec![Segment::new(kv, tokens.clone())];
        // A context may be too short for so many.
        let Ok(mut pass) = Pass::new(model, Activations::new(model, rows), segments) else { continue };
        model.run_span(&mut pass, 0..model.node_count(), &Solo);
        let mut logits = Vec::new();
        model.logits(&mut pass, &[0, rows - 1], &mut logits, &Solo);
        assert!(logits.len() >= 2 * model.config().vocabulary);
    }
    for layer in 0..model.config().layers {
        let read = |rows: &mut dyn Iterator<Item = Vec<f32>>| assert!(rows.count() > 0);
        let experts =
            model.read_experts(layer, |plain| read(&mut plain.qkv.floats().chain(plain.experts[0].down.floats())));
        match experts {
            Ok(None) => {
                let read = model.read_layer(layer, |plain| read(&mut plain.qkv.floats().chain(plain.down.floats())));
                assert!(matches!(read, Ok(()) | Err(LoadError::OnCpuOnly { .. })), "{read:?}");
            }
            Ok(Some(())) => {}
            Err(error) => assert!(matches!(error, LoadError::OnCpuOnly { .. }), "{error}"),
        }
    }
    match model.plain_head() {
        Ok(head) => assert_eq!(head.floats().count(), model.config().vocabulary),
        Err(error) => assert!(matches!(error, LoadError::HeadOnCpuOnly { .. }), "{error}"),
    }
}
