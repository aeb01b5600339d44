//! From a GGUF file to a model that can run.

use crate::arch::{Blueprint, Extra, blueprint};
use crate::disk_experts::{ExpertMemoryError, ExpertMemoryStats, ExpertStore};
use crate::gguf::{GgufError, GgufFile, Metadata};
use crate::packed_file::{Check, PackedFile, PackedFileUse, Unusable, WeightsIn};
use crate::template::ChatTemplate;
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::weights::{ExpertsIn, LayerWeights, PackError, Packer, Weights};
use crate::work::{Linear, Work};
use duet_kernels::isa::{Isa, IsaError};
use duet_kernels::memory::give_back_freed;
use duet_moe::Calibration;
use duet_types::{Bytes, Node, Tokens};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What a model is, read from its file.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// GGUF `general.architecture`: `llama`, `qwen3`, `olmoe`, …
    pub architecture: String,
    /// GGUF `general.name`, or the file's stem.
    pub name: String,
    /// Longest sequence.
    pub context: Tokens,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Layers.
    pub layers: usize,
}

/// How to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Threads that pack weights.
    pub threads: usize,
    /// The instruction set that kernels use; none: what the environment chooses ([`Isa::chosen`]).
    pub isa: Option<Isa>,
    /// The longest sequence that is wanted; none: the longest that the file allows. Some models are computed in another way
    /// for a short one (`arch/longrope.rs`).
    pub context: Option<Tokens>,
    /// A folder of packed weights: where the model's lie, they are used instead of packed ([`Model::packing`]).
    pub packed: Option<PathBuf>,
    /// What is done about the file there.
    pub packed_file: PackedFileUse,
    /// Where its weights are then. Mapped, where experts stay on disk.
    pub weights_in: WeightsIn,
    /// Memory for experts that rows are routed to, which then stay in the file of packed weights and are read from it when
    /// rows go to them. None: all are in memory.
    pub expert_memory: Option<Bytes>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            isa: None,
            context: None,
            packed: None,
            packed_file: PackedFileUse::default(),
            weights_in: WeightsIn::default(),
            expert_memory: None,
        }
    }
}

/// How far a load has come.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Bytes of the file packed.
    pub done: Bytes,
    /// Bytes to pack in all.
    pub total: Bytes,
}

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Not a readable GGUF file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// An architecture that duet does not run.
    #[error("`general.architecture` is `{name}`, which duet cannot run; it runs {supported}")]
    Architecture {
        /// As in the file.
        name: String,
        /// What can be run.
        supported: String,
    },
    /// A setting that makes no sense or is not supported.
    #[error("`{key}`: {problem}")]
    Setting {
        /// The metadata key.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A tensor that should be there.
    #[error("tensor `{name}` is missing")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor of another shape than the settings say.
    #[error("tensor `{tensor}` has shape {found:?} where {expected:?} is expected")]
    Shape {
        /// Its name.
        tensor: String,
        /// As the settings say.
        expected: Vec<usize>,
        /// As in the file.
        found: Vec<u64>,
    },
    /// A tensor with values that cannot be computed with.
    #[error("tensor `{tensor}`: {problem}")]
    Values {
        /// Its name.
        tensor: String,
        /// What is wrong.
        problem: String,
    },
    /// Experts where a dense block is asked for.
    #[error("layer {layer} has experts, which devices do not take yet: run this model on the CPU")]
    Experts {
        /// The layer.
        layer: usize,
    },
    /// Something that no device computes.
    #[error("layer {layer} has {what}, which devices do not take yet: run this model on the CPU")]
    OnCpuOnly {
        /// The layer.
        layer: usize,
        /// What it has.
        what: &'static str,
    },
    /// A head with something that no device computes.
    #[error("the head has {what}, which devices do not take yet: run this model on the CPU")]
    HeadOnCpuOnly {
        /// What it has.
        what: &'static str,
    },
    /// There are no experts to be kept on disk.
    #[error("the model has no experts that could stay on disk: leave out the memory for experts")]
    NoExperts,
    /// Experts are to stay in a file of packed weights, and no folder was named for one.
    #[error("experts stay in the file of packed weights, for which there is no place")]
    NoPackedFile,
    /// Weights are to lie in this file, which cannot be used: it is to be made first ([`Model::pack_into`]). So it is where
    /// experts are to stay on disk.
    #[error("{}: {why}", path.display())]
    NotPacked {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        why: Unusable,
    },
    /// Experts cannot stay on disk.
    #[error(transparent)]
    ExpertMemory(#[from] ExpertMemoryError),
    /// The tokenizer could not be built.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The vocabulary and the embeddings differ.
    #[error("the tokenizer has {tokens} tokens, but there are only {embeddings} embeddings")]
    Vocabulary {
        /// Tokens of the tokenizer.
        tokens: usize,
        /// Rows of the embeddings.
        embeddings: usize,
    },
    /// The environment names an instruction set that cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// A bias that this architecture is not known to have.
    #[error(
        "tensor `{tensor}`: models of this architecture are computed without this bias, and answers would be wrong; use a \
         model without it"
    )]
    UnreadBias {
        /// Its name.
        tensor: String,
    },
}

/// A model in memory: packed weights, tokenizer, chat template. Immutable and shared by all threads.
#[derive(Debug)]
pub struct Model {
    config: ModelConfig,
    blueprint: Blueprint,
    file: GgufFile,
    weights: Weights,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    isa: Isa,
    packing: Packing,
    unread: Vec<String>,
    /// Those of its experts that are on disk.
    on_disk: Option<ExpertStore>,
}

/// Where a model's packed weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packing {
    /// They were packed, and no folder was named to keep them in.
    NotKept,
    /// They are those of this file ([`LoadOptions::weights_in`]).
    Kept(PathBuf),
    /// They were packed: this file, where they are to be kept ([`Model::pack_into`]), was not used for that reason.
    Packed(PathBuf, Unusable),
}

impl Model {
    /// Reads and packs `path`.
    ///
    /// # Errors
    /// [`LoadError`] names the field, tensor or file at fault.
    pub fn load(path: &Path, options: &LoadOptions, progress: &mut dyn FnMut(LoadProgress)) -> Result<Self, LoadError> {
        Self::load_opened(path, GgufFile::open(path)?, options, progress)
    }

    /// The same of a file that was opened from `path`: reading its header takes longer than some starts have.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_opened(
        path: &Path,
        file: GgufFile,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, LoadError> {
        let isa = options.isa.map_or_else(Isa::chosen, Ok)?;
        let blueprint = blueprint(&file, options.context)?;
        let metadata = file.metadata();
        let config = ModelConfig {
            architecture: metadata.str("general.architecture")?.to_owned(),
            name: name(path, metadata)?,
            context: Tokens(blueprint.context as u32),
            vocabulary: blueprint.vocabulary,
            layers: blueprint.layers.len(),
        };
        let (tokenizer, kept) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| Tokenizer::from_metadata(metadata));
            let kept =
                experts_in(&blueprint, options).and_then(|place| Ok((place, kept(path, &file, options, place)?)));
            (tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), kept)
        });
        let tokenizer = tokenizer?;
        if tokenizer.vocabulary() > blueprint.vocabulary {
            let (tokens, embeddings) = (tokenizer.vocabulary(), blueprint.vocabulary);
            return Err(LoadError::Vocabulary { tokens, embeddings });
        }
        let template = template(&file, &tokenizer)?;
        let (experts_in, kept) = kept?;
        let packed = kept.as_ref().and_then(|(_, file)| file.as_ref().ok());
        let packer = Packer { file: &file, blueprint: &blueprint, packed, experts_in };
        // What the tokenizer was made of is not to lie beside weights that are packed or mapped, and neither is what these were
        // packed in.
        file.forget_headers();
        give_back_freed();
        let weights = pack(packer, options.threads, progress)?;
        give_back_freed();
        let on_disk = match (&kept, options.expert_memory) {
            (Some((path, Ok(file))), Some(memory)) => Some(store(path, file, &weights, (&blueprint, memory))?),
            _ => None,
        };
        let packing = match kept {
            None => Packing::NotKept,
            Some((path, Ok(file))) if file.fits() => Packing::Kept(path),
            Some((path, Ok(_))) if options.packed_file == PackedFileUse::OrRefuse => {
                return Err(LoadError::NotPacked { path, why: Unusable::Packing });
            }
            Some((path, file)) => Packing::Packed(path, file.err().unwrap_or(Unusable::Packing)),
        };
        let unread: Vec<String> = file.unread().map(str::to_owned).collect();
        refuse_unread_biases(&unread, blueprint.layers.len())?;
        Ok(Self { config, blueprint, weights, tokenizer, template, isa, file, packing, unread, on_disk })
    }

    /// Packs the model in `file` into an empty one, a few matrices at a time: what [`LoadError::NotPacked`] asks
    /// for. Memory is needed for these, however large the model is.
    ///
    /// # Errors
    /// [`PackError`]; what `out` holds then is no file of packed weights.
    pub fn pack_into(
        file: &GgufFile,
        out: &File,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<(), PackError> {
        let blueprint = blueprint(file, options.context)?;
        let packer = Packer { file, blueprint: &blueprint, packed: None, experts_in: ExpertsIn::PackedFile };
        let (total, layers) = (tensor_bytes(file), blueprint.layers.len() as u64);
        let mut report = |done: u64| progress(LoadProgress { done: Bytes(total.0 * done / (layers + 1)), total });
        report(0);
        packer.write_to(out, options.threads, &mut |done| report(done as u64))?;
        report(layers + 1);
        Ok(())
    }

    /// Memory for experts, if they are on disk.
    #[must_use]
    pub fn expert_memory(&self) -> Option<Bytes> {
        self.on_disk.as_ref().map(ExpertStore::memory)
    }

    /// What was done to have experts in memory, if they are on disk.
    #[must_use]
    pub fn expert_memory_stats(&self) -> Option<ExpertMemoryStats> {
        self.on_disk.as_ref().map(ExpertStore::stats)
    }

    /// Keeps the busiest experts by a calibration in memory, if they are on disk: they are read meanwhile.
    pub fn keep_busiest(&self, calibration: &Calibration) {
        if let Some(store) = &self.on_disk {
            store.calibrate(calibration);
        }
    }

    /// What a read of an expert takes on this disk, if they are on disk: bytes and time of the fastest of a few.
    #[must_use]
    pub fn probe_experts(&self) -> Option<(Bytes, Duration)> {
        self.on_disk.as_ref()?.probe()
    }

    /// The names of tensors that the file has and the model's architecture does not read.
    #[must_use]
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    /// Where its packed weights come from.
    #[must_use]
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// What the model is.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// All that the forward pass knows of it.
    #[must_use]
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// Its tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Its chat template; ChatML where the file has none.
    #[must_use]
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// The instruction set its kernels use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Bytes of packed weights in all. A decode step reads them, but for those of experts that it does not go to: see
    /// [`Self::work`].
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        let layers: usize = self.weights.layers.iter().map(LayerWeights::bytes).sum();
        Bytes((layers + self.weights.head.bytes()) as u64)
    }

    /// A node's matrix products, of a row with all experts that it goes to.
    ///
    /// # Panics
    /// If there is no such layer.
    #[must_use]
    pub fn linear_of(&self, node: Node) -> Linear {
        match node {
            Node::Qkv { layer } => Linear::of(&self.weights.layers[layer].qkv),
            Node::Ffn { layer } => self.weights.layers[layer].ffn_work(),
            Node::Embed | Node::Attention { .. } | Node::Route { .. } | Node::Experts { .. } => Linear::NOTHING,
        }
    }

    /// What the nodes of a layer, and the head, compute and read: where layers differ, their mean.
    #[must_use]
    pub fn work(&self) -> Work {
        let layers = &self.weights.layers;
        Work {
            layers: layers.len(),
            qkv: Linear::mean(layers.iter().map(|layer| Linear::of(&layer.qkv))),
            ffn: Linear::mean(layers.iter().map(LayerWeights::ffn_work)),
            head: Linear::of(&self.weights.head),
            experts: layers.iter().find_map(LayerWeights::expert_work),
        }
    }

    /// The largest matrix of layer `index`, counted around, as it lies in memory: what a probe reads to learn how fast
    /// weights are read. Empty if there are no layers.
    #[must_use]
    pub fn layer_bytes(&self, index: usize) -> &[u8] {
        let layers = &self.weights.layers;
        layers.get(index % layers.len().max(1)).map_or(&[], LayerWeights::largest)
    }

    pub(crate) fn weights(&self) -> &Weights {
        &self.weights
    }

    pub(crate) fn on_disk(&self) -> Option<&ExpertStore> {
        self.on_disk.as_ref()
    }

    pub(crate) fn file(&self) -> &GgufFile {
        &self.file
    }

    /// The same weights under another setting, to show that a wrong one is noticed. What shapes follow from stays.
    #[cfg(test)]
    pub(crate) fn with_blueprint(mut self, change: impl FnOnce(&mut Blueprint)) -> Self {
        change(&mut self.blueprint);
        self
    }
}

/// The name and the tokenizer of the model in `path`, without its weights.
///
/// # Errors
/// [`LoadError`] names the field at fault.
pub fn open_tokenizer(path: &Path) -> Result<(String, Tokenizer), LoadError> {
    let file = GgufFile::open(path)?;
    Ok((name(path, file.metadata())?, Tokenizer::from_metadata(file.metadata())?))
}

/// Where a model's experts are to be.
fn experts_in(blueprint: &Blueprint, options: &LoadOptions) -> Result<ExpertsIn, LoadError> {
    match (options.expert_memory, &options.packed) {
        (None, _) => Ok(ExpertsIn::Memory),
        (Some(_), _) if blueprint.experts.is_none() => Err(LoadError::NoExperts),
        (Some(_), None) => Err(LoadError::NoPackedFile),
        (Some(_), Some(_)) => Ok(ExpertsIn::PackedFile),
    }
}

/// A file of packed weights, or why it cannot be used, and where it lies or is to lie.
type Kept = Option<(PathBuf, Result<PackedFile, Unusable>)>;

fn kept(path: &Path, file: &GgufFile, options: &LoadOptions, experts_in: ExpertsIn) -> Result<Kept, LoadError> {
    let Some(folder) = &options.packed else { return Ok(None) };
    let digest = file.digest();
    let path = folder.join(packed_name(path, &digest));
    let check = match (experts_in, options.packed_file) {
        (ExpertsIn::PackedFile, _) => Check::AllButExperts,
        (ExpertsIn::Memory, PackedFileUse::JustWritten) => Check::Places,
        (ExpertsIn::Memory, _) => Check::All,
    };
    let weights_in = match experts_in {
        ExpertsIn::PackedFile => WeightsIn::MappedFile,
        ExpertsIn::Memory => options.weights_in,
    };
    let must_be = experts_in == ExpertsIn::PackedFile || options.packed_file == PackedFileUse::OrRefuse;
    match PackedFile::open(&path, &digest, (weights_in, check, options.threads)) {
        Err(why) if must_be => Err(LoadError::NotPacked { path, why }),
        file => Ok(Some((path, file))),
    }
}

/// The experts of these weights, which lie in a file.
fn store(
    path: &Path,
    file: &PackedFile,
    weights: &Weights,
    (blueprint, memory): (&Blueprint, Bytes),
) -> Result<ExpertStore, LoadError> {
    if !file.fits() {
        return Err(LoadError::NotPacked { path: path.to_owned(), why: Unusable::Packing });
    }
    let places = weights.layers.iter().map(|layer| layer.feed.expert_places().to_vec()).collect();
    let chosen = blueprint.experts.map_or(0, |plan| plan.chosen);
    Ok(ExpertStore::open(path, places, memory, chosen)?)
}

/// A layer's bias that nothing reads is one that answers would be wrong without. (Other tensors that nothing reads are known to
/// be of no use: what converters left.)
fn refuse_unread_biases(unread: &[String], layers: usize) -> Result<(), LoadError> {
    let is_of_a_layer = |name: &&String| {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        name.ends_with(".bias") && layer.is_some_and(|layer| layer < layers)
    };
    match unread.iter().find(is_of_a_layer) {
        Some(tensor) => Err(LoadError::UnreadBias { tensor: tensor.clone() }),
        None => Ok(()),
    }
}

/// What the file of a model's packed weights is called: its name is for people, the digits for duet.
fn packed_name(path: &Path, digest: &[u8; 32]) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let stem: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{stem}-{digits}.packed")
}

pub(crate) fn name(path: &Path, metadata: &Metadata) -> Result<String, LoadError> {
    let stem = || path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned());
    Ok(metadata.opt_str("general.name")?.filter(|name| !name.is_empty()).map_or_else(stem, str::to_owned))
}

fn template(file: &GgufFile, tokenizer: &Tokenizer) -> Result<ChatTemplate, LoadError> {
    let text = |token| Option::and_then(token, |token| tokenizer.text_of_special(token)).unwrap_or("");
    let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
    let template = match file.metadata().opt_str("tokenizer.chat_template")? {
        Some(source) => ChatTemplate::even_unreadable(source, bos, eos),
        None => ChatTemplate::chatml(),
    };
    // One that cannot be read is none: tools can be told to the other one, too.
    let for_tools = file.metadata().opt_str("tokenizer.chat_template.tool_use")?;
    let for_tools = for_tools.and_then(|source| ChatTemplate::new(source, bos, eos).ok());
    Ok(for_tools.into_iter().fold(template, ChatTemplate::with_tools))
}

/// Packs all layers, several at a time, and the head; reports progress from the calling thread.
fn pack(packer: Packer<'_>, threads: usize, progress: &mut dyn FnMut(LoadProgress)) -> Result<Weights, LoadError> {
    let layers = packer.blueprint.layers.len();
    let total = tensor_bytes(packer.file);
    let next = AtomicUsize::new(0);
    let packed: Mutex<Vec<Option<LayerWeights>>> = Mutex::new((0..layers).map(|_| None).collect());
    // Of the first layer that has one: layers before it are under way when it is noticed.
    let failure: Mutex<Option<(usize, LoadError)>> = Mutex::new(None);
    let work = |report: &mut dyn FnMut(usize)| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= layers {
                return;
            }
            report(index);
            match packer.layer(index) {
                Ok(layer) => {
                    packer.forget_layer(index);
                    lock(&packed)[index] = Some(layer);
                }
                Err(error) => {
                    next.store(layers, Ordering::Relaxed);
                    let mut failure = lock(&failure);
                    if failure.as_ref().is_none_or(|(first, _)| index < *first) {
                        *failure = Some((index, error));
                    }
                }
            }
        }
    };
    let head = std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(|| work(&mut |_| {}));
        }
        let head = packer.head();
        work(&mut |index| {
            progress(LoadProgress { done: Bytes(total.0 * (index as u64 + 1) / (layers as u64 + 1)), total });
        });
        head
    })?;
    if let Some((_, error)) = lock(&failure).take() {
        return Err(error);
    }
    progress(LoadProgress { done: total, total });
    let layers: Vec<LayerWeights> = std::mem::take(&mut *lock(&packed)).into_iter().flatten().collect();
    let vocabulary = packer.blueprint.vocabulary;
    let bias = packer.blueprint.has(Extra::HeadBias).then(|| packer.vector("output.bias", vocabulary));
    Ok(Weights {
        layers,
        inputs: packer.inputs()?,
        final_norm: packer.norm(packer.blueprint.final_norm())?,
        head_norm: packer.head_norm()?,
        head,
        head_bias: bias.transpose()?,
        page_angles: packer.page_angles(),
    })
}

fn tensor_bytes(file: &GgufFile) -> Bytes {
    Bytes(file.tensors().iter().map(|tensor| tensor.bytes() as u64).sum())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
