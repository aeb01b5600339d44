//! What all architectures' metadata have in common.

use super::yarn::{BandEnds, Yarn};
use super::{Blueprint, LayerPlan, Rope, RopePairs};
use crate::gguf::{GgufFile, Metadata, Value};
use crate::load::LoadError;
use duet_kernels::attention::HEAD_DIM_MAX;
use duet_kernels::matmul::Gating;
use duet_types::Tokens;

/// The common settings of a file, checked.
pub(crate) struct Facts<'a> {
    file: &'a GgufFile,
    prefix: &'static str,
    /// The longest sequence that is wanted, if somebody said.
    wanted: Option<Tokens>,
    blueprint: Blueprint,
}

impl<'a> Facts<'a> {
    /// Reads and checks them, for sequences as long as `wanted`.
    pub(crate) fn read(file: &'a GgufFile, prefix: &'static str, wanted: Option<Tokens>) -> Result<Self, LoadError> {
        let metadata = file.metadata();
        let key = |name: &str| format!("{prefix}.{name}");
        let number = |name: &str| positive(metadata, &key(name));
        let hidden = number("embedding_length")?;
        let refuse = |name: &str, problem: String| Err(LoadError::Setting { key: key(name), problem });
        let layers = number("block_count")?;
        // Before anything is made for each.
        if layers > LAYERS_MAX {
            return refuse("block_count", format!("{layers} layers, more than {LAYERS_MAX}"));
        }
        let heads = number("attention.head_count")?;
        // A list, in files whose layers differ: then those with attention have the most.
        let listed = metadata.get(&key(KV_HEADS)).is_some_and(|value| matches!(value, Value::Array(_)));
        let kv_heads = if listed {
            let most = metadata.u32s(&key(KV_HEADS))?.iter().copied().max().unwrap_or(0);
            above_zero(&key(KV_HEADS), most)?
        } else {
            optional(metadata, &key(KV_HEADS))?.unwrap_or(heads)
        };
        let head_dim = optional(metadata, &key("attention.key_length"))?.unwrap_or(hidden / heads);
        let value_dim = optional(metadata, &key("attention.value_length"))?.unwrap_or(head_dim);
        let epsilon = metadata.f32(&key("attention.layer_norm_rms_epsilon"))?;
        let embeddings = file.tensor("token_embd.weight").ok_or_else(|| missing("token_embd.weight"))?;
        let vocabulary = embeddings.info.rows();
        if embeddings.info.row_len() != hidden {
            return Err(LoadError::Shape {
                tensor: embeddings.info.name.clone(),
                expected: vec![hidden, vocabulary],
                found: embeddings.info.shape.clone(),
            });
        }
        let facts = Self {
            file,
            prefix,
            wanted,
            blueprint: Blueprint {
                context: number("context_length")?,
                vocabulary,
                hidden,
                ffn: Self::ffn(metadata, &key)?,
                experts: None,
                dense_layers: 0,
                heads,
                kv_heads,
                head_dim,
                wide: None,
                epsilon,
                embedding_scale: 1.0,
                residual_scale: 1.0,
                logit_scale: 1.0,
                logit_cap: None,
                layer_input: None,
                attention_scale: 1.0 / (head_dim as f32).sqrt(),
                gating: Gating::Silu,
                rope_pairs: RopePairs::Halves,
                ropes: Vec::new(),
                layers: vec![LayerPlan::ATTENTION; layers],
                recurrent: None,
                extras: &[],
            },
        };
        if !heads.is_multiple_of(kv_heads) {
            return refuse("attention.head_count", format!("{heads} heads do not divide by {kv_heads} key heads"));
        }
        if !(1..=HEAD_DIM_MAX).contains(&head_dim) || !head_dim.is_multiple_of(16) || value_dim != head_dim {
            let problem =
                format!("heads of {head_dim} (values {value_dim}); supported: equal multiples of 16 to {HEAD_DIM_MAX}");
            return refuse("attention.key_length", problem);
        }
        if !(epsilon.is_finite() && epsilon >= 0.0) {
            return refuse("attention.layer_norm_rms_epsilon", format!("{epsilon}"));
        }
        Ok(facts)
    }

    /// The width of dense blocks, the widest where layers differ. Files whose layers all have experts may say theirs alone.
    fn ffn(metadata: &Metadata, key: &impl Fn(&str) -> String) -> Result<usize, LoadError> {
        if metadata.get(&key(FFN)).is_some_and(|value| matches!(value, Value::Array(_))) {
            let most = metadata.u32s(&key(FFN))?.iter().copied().max().unwrap_or(0);
            return above_zero(&key(FFN), most);
        }
        match optional(metadata, &key("feed_forward_length"))? {
            Some(ffn) => Ok(ffn),
            None if metadata.get(&key("expert_feed_forward_length")).is_some() => {
                positive(metadata, &key("expert_feed_forward_length"))
            }
            None => positive(metadata, &key("feed_forward_length")),
        }
    }

    /// A blueprint as most architectures have it, with rope from the file's settings.
    pub(crate) fn common(&self, rope_pairs: RopePairs) -> Result<Blueprint, LoadError> {
        let theta = self.opt_f32("rope.freq_base")?.unwrap_or(10_000.0);
        let rope = if self.is_yarn()? {
            // Refuses what cannot be turned at all.
            self.rope(theta, 1.0, None)?;
            Yarn::read(self)?.rope(theta, self.rope_dims()?, BandEnds::Whole)
        } else {
            self.rope(theta, self.linear_scale()?, self.rope_factors()?)?
        };
        Ok(Blueprint { rope_pairs, ropes: vec![rope], ..self.blueprint.clone() })
    }

    /// An optional setting `{architecture}.{name}`.
    pub(crate) fn opt_f32(&self, name: &str) -> Result<Option<f32>, LoadError> {
        Ok(self.file.metadata().opt_f32(&self.key(name))?)
    }

    /// The window of `attention.sliding_window`; files say zero for none, and one as long as the context hides nothing.
    pub(crate) fn window(&self) -> Result<Option<usize>, LoadError> {
        let key = self.key("attention.sliding_window");
        let window = self.file.metadata().opt_u32(&key)?.filter(|&window| window > 0);
        let window = window.map(|window| above_zero(&key, window)).transpose()?;
        Ok(window.filter(|&window| window < self.blueprint.context))
    }

    /// An optional setting `{architecture}.{name}` above zero.
    pub(crate) fn opt_number(&self, name: &str) -> Result<Option<usize>, LoadError> {
        optional(self.file.metadata(), &self.key(name))
    }

    /// A setting `{architecture}.{name}` above zero.
    pub(crate) fn number(&self, name: &str) -> Result<usize, LoadError> {
        positive(self.file.metadata(), &self.key(name))
    }

    /// Whether the file has experts; no setting and zero say that it has none.
    pub(crate) fn has_experts(&self) -> Result<bool, LoadError> {
        Ok(self.file.metadata().opt_u32(&self.key("expert_count"))?.is_some_and(|count| count > 0))
    }

    /// That a setting `{architecture}.{name}` makes no sense.
    pub(crate) fn refuse(&self, name: &str, problem: String) -> LoadError {
        LoadError::Setting { key: self.key(name), problem }
    }

    /// How much positions are stretched: 1 where no scaling is set.
    pub(crate) fn linear_scale(&self) -> Result<f32, LoadError> {
        let kind = self.file.metadata().opt_str(&self.key("rope.scaling.type"))?;
        match kind {
            Some("none" | "longrope") => Ok(self.opt_f32("rope.scale_linear")?.unwrap_or(1.0)),
            // Of files that say how much and not how, this was meant; zero is not at all.
            None | Some("linear") => {
                let factor = self.opt_f32("rope.scaling.factor")?.or(self.opt_f32("rope.scale_linear")?);
                Ok(factor.filter(|factor| *factor != 0.0).unwrap_or(1.0))
            }
            Some(other) => Err(LoadError::Setting {
                key: self.key("rope.scaling.type"),
                problem: format!(
                    "rope scaling `{other}` is not supported here (linear and llama3 are, and yarn in most architectures)"
                ),
            }),
        }
    }

    pub(crate) fn is_yarn(&self) -> Result<bool, LoadError> {
        Ok(self.file.metadata().opt_str(&self.key("rope.scaling.type"))? == Some(YARN))
    }

    /// Rope that is stretched by YaRN, the ends of its bands as they are computed.
    pub(crate) fn yarn(&self) -> Result<Rope, LoadError> {
        let theta = self.opt_f32("rope.freq_base")?.unwrap_or(10_000.0);
        self.rope(theta, 1.0, None)?;
        Ok(Yarn::read(self)?.rope(theta, self.rope_dims()?, BandEnds::Exact))
    }

    /// An optional setting `{architecture}.{name}` that is true or false.
    pub(crate) fn opt_bool(&self, name: &str) -> Result<Option<bool>, LoadError> {
        Ok(self.file.metadata().opt_bool(&self.key(name))?)
    }

    /// An optional setting `{architecture}.{name}` that counts something, of which there may be none.
    pub(crate) fn opt_count(&self, name: &str) -> Result<Option<usize>, LoadError> {
        Ok(self.file.metadata().opt_u32(&self.key(name))?.map(|count| count as usize))
    }

    /// Key heads of each layer, in files whose layers differ.
    pub(crate) fn kv_heads_of_layers(&self) -> Result<Vec<u32>, LoadError> {
        let heads = self.file.metadata().u32s(&self.key(KV_HEADS))?.to_vec();
        self.one_a_layer(KV_HEADS, heads)
    }

    /// A setting that layers share, or that each has of its own; of these, none is zero.
    pub(crate) fn of_layers(&self, name: &str) -> Result<Vec<usize>, LoadError> {
        let layers = self.blueprint.layers.len();
        if !self.file.metadata().get(&self.key(name)).is_some_and(|value| matches!(value, Value::Array(_))) {
            return Ok(vec![self.number(name)?; layers]);
        }
        let numbers = self.file.metadata().u32s(&self.key(name))?.to_vec();
        self.one_a_layer(name, numbers)?.into_iter().map(|number| above_zero(&self.key(name), number)).collect()
    }

    /// A setting of each layer that is true or false.
    pub(crate) fn bools_of_layers(&self, name: &str) -> Result<Vec<bool>, LoadError> {
        let flags = self.file.metadata().bools(&self.key(name))?.to_vec();
        self.one_a_layer(name, flags)
    }

    fn one_a_layer<T>(&self, name: &str, all: Vec<T>) -> Result<Vec<T>, LoadError> {
        if all.len() == self.blueprint.layers.len() {
            return Ok(all);
        }
        let problem = format!("{} values for {} layers", all.len(), self.blueprint.layers.len());
        Err(self.refuse(name, problem))
    }

    /// That heads of so many dimensions cannot be computed with.
    pub(crate) fn head_dim(&self, name: &str) -> Result<usize, LoadError> {
        let dims = self.number(name)?;
        if dims.is_multiple_of(16) && dims <= HEAD_DIM_MAX {
            return Ok(dims);
        }
        Err(self.refuse(name, format!("heads of {dims}; supported: multiples of 16 to {HEAD_DIM_MAX}")))
    }

    /// The shape of a tensor, if the file has it: its rows, and their length.
    pub(crate) fn shape_of(&self, name: &str) -> Option<(usize, usize)> {
        self.file.tensor(name).map(|tensor| (tensor.info.rows(), tensor.info.row_len()))
    }

    /// Whether the file has a tensor of this name.
    pub(crate) fn has_tensor(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// The first dimensions of a head, which rope turns: all, if nothing else is said.
    fn rope_dims(&self) -> Result<usize, LoadError> {
        let head_dim = self.blueprint.head_dim;
        let dims = self.opt_number("rope.dimension_count")?.unwrap_or(head_dim);
        if dims.is_multiple_of(2) && dims <= head_dim {
            return Ok(dims);
        }
        let problem = format!("rope over {dims} of {head_dim} dimensions: pairs of these are supported");
        Err(self.refuse("rope.dimension_count", problem))
    }

    /// Rope with this base, positions being stretched by `scale` and pairs slowed down by `factors`.
    pub(crate) fn rope(&self, theta: f32, scale: f32, factors: Option<Vec<f32>>) -> Result<Rope, LoadError> {
        self.rope_over(self.rope_dims()?, theta, scale, factors)
    }

    /// The same over the first dimensions of heads, as many as are said.
    pub(crate) fn rope_over(
        &self,
        dims: usize,
        theta: f32,
        scale: f32,
        factors: Option<Vec<f32>>,
    ) -> Result<Rope, LoadError> {
        if !(theta.is_finite() && theta > 0.0 && scale.is_finite() && scale > 0.0) {
            let problem = format!("base {theta}, factor {scale}");
            return Err(LoadError::Setting { key: self.key("rope.freq_base"), problem });
        }
        let frequency = |pair: usize| {
            let plain = f64::from(theta).powf(-2.0 * pair as f64 / dims as f64) / f64::from(scale);
            let factor = factors.as_ref().map_or(1.0, |factors| f64::from(factors[pair]));
            (plain / factor) as f32
        };
        Ok(Rope { frequencies: (0..dims / 2).map(frequency).collect(), magnitude: 1.0 })
    }

    /// The factors by which Llama 3 slows its low frequencies: a tensor in the file.
    fn rope_factors(&self) -> Result<Option<Vec<f32>>, LoadError> {
        self.factors("rope_freqs.weight")
    }

    /// The longest sequence that is wanted: the longest that the file allows, if nobody said.
    pub(crate) fn wanted_context(&self) -> usize {
        self.wanted.map_or(self.blueprint.context, Tokens::as_usize)
    }

    /// A tensor of what each pair's frequency is divided by.
    pub(crate) fn factors(&self, name: &str) -> Result<Option<Vec<f32>>, LoadError> {
        let Some(tensor) = self.file.tensor(name) else { return Ok(None) };
        let pairs = self.rope_dims()? / 2;
        if tensor.info.rows() != 1 || tensor.info.row_len() != pairs {
            return Err(LoadError::Shape {
                tensor: name.to_owned(),
                expected: vec![pairs],
                found: tensor.info.shape.clone(),
            });
        }
        let mut factors = vec![0.0; pairs];
        tensor.dequantize_row(0, &mut factors);
        if factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            Ok(Some(factors))
        } else {
            Err(LoadError::Values { tensor: name.to_owned(), problem: "factors must be above zero".to_owned() })
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }
}

/// Key heads: a number, or one for each layer.
const KV_HEADS: &str = "attention.head_count_kv";

/// Width of a feed-forward block: a number, or one for each layer.
const FFN: &str = "feed_forward_length";

/// The kind of scaling.
const YARN: &str = "yarn";

/// More than any published model, few enough that per-layer tables stay small.
const LAYERS_MAX: usize = 1024;

fn missing(tensor: &str) -> LoadError {
    LoadError::MissingTensor { name: tensor.to_owned() }
}

fn positive(metadata: &Metadata, key: &str) -> Result<usize, LoadError> {
    above_zero(key, metadata.u32(key)?)
}

fn optional(metadata: &Metadata, key: &str) -> Result<Option<usize>, LoadError> {
    metadata.opt_u32(key)?.map(|value| above_zero(key, value)).transpose()
}

/// Bounded so that products of two settings cannot overflow.
fn above_zero(key: &str, value: u32) -> Result<usize, LoadError> {
    const SETTING_MAX: u32 = 1 << 24;
    if (1..=SETTING_MAX).contains(&value) {
        Ok(value as usize)
    } else {
        Err(LoadError::Setting { key: key.to_owned(), problem: format!("{value} is not within 1..={SETTING_MAX}") })
    }
}
