//! Weights as the kernels read them, packed from a file.
//!
//! The kernels compute with the file's own quants and scales, or floats, whatever type a tensor has, and tensors of several
//! types that are one matrix's rows below each other, as queries, keys and values, keep each its own. Gates and values of
//! different types, whose rows alternate, are quantised to eight bits in groups of 32. Everything is checked here, so that
//! the forward pass cannot fail.

mod beside;
mod experts;
mod layer_inputs;
mod names;
mod packer;
mod parts;
mod recurrent;
mod row_reader;
mod stacked;
mod streamed;
mod unpacked;

pub(crate) use beside::BesideWeights;
pub(crate) use experts::{ExpertWeights, ExpertsIn};
pub(crate) use layer_inputs::{INPUT_SCALE, InputWeights, LayerInput, input_epsilon, token_scale};
pub(crate) use names::{is_of_expert, name_without_expert};
pub(crate) use packer::Packer;
pub(crate) use recurrent::RecurrentWeights;
pub(crate) use row_reader::stored_form;
pub(crate) use stacked::Stacker;
pub use streamed::PackError;

use crate::arch::ExpertPlan;
use crate::disk_experts::ExpertPlace;
use crate::work::{ExpertWork, Linear, RoutedBytes};
use duet_kernels::attention::{KeyBias, PageAngles};
use duet_kernels::fused::{ExpertBias, Feed};
use duet_kernels::packed::PackedMatrix;
use duet_kernels::quantize::Operands;
use duet_types::Bytes;

/// All packed weights but the input embeddings, which are read from the file row by row.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) layers: Vec<LayerWeights>,
    /// Of inputs that layers have of their own.
    pub(crate) inputs: Option<InputWeights>,
    pub(crate) final_norm: NormWeights,
    /// The same before the head, where logits are scaled: there the norm scales what they are made of.
    pub(crate) head_norm: Option<NormWeights>,
    pub(crate) head: PackedMatrix,
    pub(crate) head_bias: Option<Vec<f32>>,
    /// Of each rope, if keys have biases.
    pub(crate) page_angles: Option<Vec<PageAngles>>,
}

/// One layer's.
#[derive(Debug)]
pub(crate) struct LayerWeights {
    pub(crate) attention_norm: NormWeights,
    /// Queries, keys and values, and gates of what is found; or what a recurrent layer takes.
    pub(crate) qkv: PackedMatrix,
    /// Of what stands in attention's place.
    pub(crate) recurrent: Option<RecurrentWeights>,
    pub(crate) qkv_bias: Option<Vec<f32>>,
    /// What of it keys of eight bits are without. Keys that are normed behind their bias have none that can be told apart.
    pub(crate) key_bias: Option<KeyBias>,
    /// Of queries and of keys; of keys empty where a layer has none.
    pub(crate) head_norms: Option<[Vec<f32>; 2]>,
    /// Of values.
    pub(crate) value_norm: Option<Vec<f32>>,
    pub(crate) output: PackedMatrix,
    pub(crate) output_bias: Option<Vec<f32>>,
    /// Of each query head.
    pub(crate) sinks: Option<Vec<f32>>,
    pub(crate) output_norm: Option<Vec<f32>>,
    pub(crate) ffn_norm: NormWeights,
    pub(crate) feed: FeedWeights,
    /// Of the input that the layer has of its own.
    pub(crate) input: Option<LayerInput>,
    /// The residual stream behind the layer is multiplied with it.
    pub(crate) scale: Option<f32>,
}

/// The norm of a row of the residual stream.
#[derive(Clone, Debug)]
pub(crate) struct NormWeights {
    pub(crate) weight: Vec<f32>,
    /// Makes it a layer norm.
    pub(crate) bias: Option<Vec<f32>>,
}

/// What is between a layer's second norm and the residual stream.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one a layer")]
pub(crate) enum FeedWeights {
    Dense {
        feed: Feed,
        /// Of its result.
        norm: Option<Vec<f32>>,
    },
    Experts {
        router: Vec<f32>,
        router_bias: Option<Vec<f32>>,
        choice_bias: Option<Vec<f32>>,
        experts: ExpertWeights,
        /// Of each expert.
        biases: Option<Vec<ExpertBias>>,
        /// The gate of the shared one, if it has any, and itself.
        shared: Option<(Option<Vec<f32>>, Feed)>,
        /// If that one is a block beside the others.
        beside: Option<BesideWeights>,
        plan: ExpertPlan,
    },
}

impl FeedWeights {
    /// Its gated blocks, each with what the names of its matrices end in.
    fn feeds(&self) -> Vec<(String, &Feed)> {
        match self {
            Self::Dense { feed, .. } => vec![(String::new(), feed)],
            Self::Experts { experts, shared, .. } => {
                let feeds = experts.in_memory().iter().enumerate();
                let experts = feeds.map(|(expert, feed)| (names::expert(expert), feed));
                experts.chain(shared.iter().map(|(_, feed)| (names::SHARED.to_owned(), feed))).collect()
            }
        }
    }

    /// Where its experts lie, if they are on disk.
    pub(crate) fn expert_places(&self) -> &[ExpertPlace] {
        match self {
            Self::Dense { .. } => &[],
            Self::Experts { experts, .. } => experts.places(),
        }
    }

    /// Whether any of its matrices has floats.
    fn has_floats(&self) -> bool {
        let on_disk = matches!(self, Self::Experts { experts, .. } if experts.has_floats());
        on_disk || self.feeds().iter().any(|(_, feed)| feed.has_floats())
    }

    /// Multiply-accumulates of a row.
    pub(crate) fn macs(&self) -> usize {
        match self {
            Self::Dense { feed, .. } => feed.macs(),
            Self::Experts { router, experts, shared, plan, .. } => {
                let expert = experts.macs();
                let shared =
                    shared.as_ref().map_or(0, |(gate, feed)| gate.as_deref().map_or(0, <[f32]>::len) + feed.macs());
                router.len() + expert * plan.chosen + shared
            }
        }
    }

    /// Bytes that are read for any number of rows.
    fn common_bytes(&self) -> usize {
        match self {
            Self::Dense { feed, .. } => feed.bytes(),
            Self::Experts { router, shared, .. } => {
                size_of_val(router.as_slice())
                    + shared.as_ref().map_or(0, |(gate, feed)| gate.as_deref().map_or(0, size_of_val) + feed.bytes())
            }
        }
    }

    fn routed_bytes(&self) -> Option<RoutedBytes> {
        let Self::Experts { experts, plan, .. } = self else { return None };
        let bytes = Bytes(experts.bytes() as u64);
        Some(RoutedBytes { bytes, experts: plan.count, chosen: plan.chosen })
    }
}

impl Weights {
    /// The norm before the head.
    pub(crate) fn before_head(&self) -> &NormWeights {
        self.head_norm.as_ref().unwrap_or(&self.final_norm)
    }

    /// All matrices, each under the name that it is packed by.
    #[cfg(test)]
    pub(crate) fn matrices(&self) -> Vec<(String, &PackedMatrix)> {
        let mut matrices = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            matrices.push((names::qkv(index), &layer.qkv));
            matrices.push((names::output(index), &layer.output));
            for (suffix, feed) in layer.feed.feeds() {
                matrices.push((names::gate_up(index, &suffix), &feed.gate_up));
                matrices.push((names::down(index, &suffix), &feed.down));
            }
            matrices.extend(layer.input.iter().flat_map(|input| input.matrices(index)));
        }
        matrices.extend(self.inputs.iter().map(|inputs| (names::INPUTS.to_owned(), &inputs.matrix)));
        matrices.push((names::HEAD.to_owned(), &self.head));
        matrices
    }

    /// What the products read of rows.
    pub(crate) fn operands(&self) -> Operands {
        let of_inputs = self.inputs.as_ref().is_some_and(|inputs| inputs.matrix.has_floats());
        let floats = of_inputs || self.head.has_floats() || self.layers.iter().any(LayerWeights::has_floats);
        if floats { Operands::BytesAndFloats } else { Operands::Bytes }
    }
}

impl LayerWeights {
    fn has_floats(&self) -> bool {
        let of_input = self.input.as_ref().is_some_and(LayerInput::has_floats);
        of_input || self.qkv.has_floats() || self.output.has_floats() || self.feed.has_floats()
    }

    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> usize {
        self.qkv.bytes() + self.ffn_work().all_bytes().0 as usize
    }

    /// What the feed-forward node computes and reads.
    pub(crate) fn ffn_work(&self) -> Linear {
        let input = self.input_work();
        Linear {
            macs: (self.output.macs() + self.feed.macs()) as u64 + input.macs,
            bytes: Bytes((self.output.bytes() + self.feed.common_bytes()) as u64 + input.bytes.0),
            routed: self.feed.routed_bytes(),
        }
    }

    /// What that node is made of, if there are experts in it.
    pub(crate) fn expert_work(&self) -> Option<ExpertWork> {
        let FeedWeights::Experts { router, experts, shared, .. } = &self.feed else { return None };
        Some(ExpertWork {
            route: (self.output.macs() + router.len()) as u64,
            route_bytes: Bytes((self.output.bytes() + size_of_val(router.as_slice())) as u64),
            expert: experts.macs() as u64,
            shared: shared.as_ref().map_or(0, |(_, feed)| feed.macs()) as u64,
        })
    }

    /// Its largest matrix.
    pub(crate) fn largest(&self) -> &[u8] {
        match &self.feed {
            FeedWeights::Dense { feed, .. } => feed.gate_up.quants(),
            FeedWeights::Experts { experts, .. } => {
                let expert = experts.in_memory().first().map_or(&[][..], |feed| feed.gate_up.quants());
                if expert.len() > self.qkv.quants().len() { expert } else { self.qkv.quants() }
            }
        }
    }
}
