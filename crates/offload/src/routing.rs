//! Where a model's routers send the rows of some texts: what plans for its experts follow from. (NPUMoE §3.3)
//!
//! The model reads each text as it would read a prompt, chunk by chunk, with its own kernels; the head is left out. What a
//! layer's router chose is looked at before the next layer runs. Rows do not depend on how a text is cut, so neither do the
//! counts.

use duet_kernels::crew::{Crew, Scoped};
use duet_model::Model;
use duet_model::forward::{Activations, Node, Pass, PassError, Segment};
use duet_model::kv::{KvFormat, KvTable};
use duet_moe::calibration::CalibrationError;
use duet_moe::{Calibration, ExpertId, LayerCounts, Load};
use duet_types::{TokenId, Tokens};

/// Why a model's routes are not counted.
#[derive(Debug, thiserror::Error)]
pub enum RoutingError {
    /// It has no experts.
    #[error("this model is dense: it has no experts whose use could be counted")]
    Dense,
    /// There is nothing to read.
    #[error("there is no text")]
    NoText,
    /// The model cannot read a text.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// Counts do not add up.
    #[error(transparent)]
    Counts(#[from] CalibrationError),
}

/// Lets a model read texts on `threads` threads and counts, layer by layer, how many rows each expert is given; layers that have
/// none have no counts. `tell` is told after each text how many tokens of all were read.
///
/// # Errors
/// If the model has no experts, if there is no text, or if one is longer than the model's context.
pub fn calibrate_experts(
    model: &Model,
    texts: &[Vec<TokenId>],
    threads: usize,
    tell: &mut dyn FnMut(Tokens),
) -> Result<Calibration, RoutingError> {
    let plan = model.blueprint().experts.ok_or(RoutingError::Dense)?;
    let experts = |layer: usize| model.blueprint().experts_of(layer).map_or(0, |plan| plan.count);
    let mut layers: Vec<LayerCounts> =
        (0..model.config().layers).map(|layer| LayerCounts::none(experts(layer))).collect();
    let mut activations = Activations::new(model, CHUNK);
    let crew = Scoped { threads };
    let mut read = 0;
    for text in texts {
        let mut kv = model.kv_pool(KvFormat::F16, Tokens(text.len() as u32)).table();
        for chunk in text.chunks(CHUNK) {
            (activations, kv) = count_chunk(model, (activations, kv), chunk, &crew, &mut layers)?;
        }
        read += text.len();
        tell(Tokens(read as u32));
    }
    if read == 0 {
        return Err(RoutingError::NoText);
    }
    Ok(Calibration::new(plan.chosen as u32, Load(read as u64), layers)?)
}

/// What a chunk leaves: buffers for the next one, and the text so far.
type Left = (Activations, KvTable);

fn count_chunk(
    model: &Model,
    (activations, kv): Left,
    chunk: &[TokenId],
    crew: &dyn Crew,
    layers: &mut [LayerCounts],
) -> Result<Left, RoutingError> {
    let pass = Pass::new(model, activations, vec![Segment::new(kv, chunk.to_vec())]);
    let mut pass = pass.map_err(|refused| refused.error)?;
    for node in model.nodes() {
        model.run_node(&mut pass, node, 0..chunk.len(), crew);
        if let Node::Ffn { layer } = node {
            let routes = (0..chunk.len()).filter_map(|row| pass.routes(row));
            routes.flat_map(|routes| routes.experts).for_each(|&expert| layers[layer].count(ExpertId(expert)));
        }
    }
    let (activations, tables) = pass.finish();
    let kv = tables.into_iter().next().ok_or(RoutingError::NoText)?;
    Ok((activations, kv))
}

/// Rows of a chunk: the paper's smallest, and what the scheduler cuts prompts into.
const CHUNK: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use duet_model::LoadOptions;
    use std::path::Path;

    fn load(name: &str) -> Model {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
        Model::load(&folder.join(format!("golden_{name}.gguf")), &LoadOptions::default(), &mut |_| {}).unwrap()
    }

    fn text(length: u32, seed: u32) -> Vec<TokenId> {
        (0..length).map(|at| TokenId((at * 37 + seed * 101 + at * at % 11) % 250)).collect()
    }

    fn counted(model: &Model, texts: &[Vec<TokenId>], threads: usize) -> Calibration {
        calibrate_experts(model, texts, threads, &mut |_| {}).unwrap()
    }

    #[test]
    fn texts_are_counted_alike_together_and_apart_on_any_threads() {
        for name in ["mixtral", "qwen2moe", "phimoe", "glm4moe", "lfm2moe"] {
            let model = load(name);
            // The second is longer than a chunk.
            let texts = [text(40, 1), text(300, 2), text(1, 3)];
            let texts = texts.map(|text| text[..text.len().min(model.config().context.as_usize())].to_vec());
            let together = counted(&model, &texts, 2);
            assert_eq!(together, counted(&model, &texts, 1), "{name}");
            let apart: Vec<Calibration> =
                texts.iter().map(|text| counted(&model, std::slice::from_ref(text), 1)).collect();
            assert_eq!(together.tokens().0, apart.iter().map(|one| one.tokens().0).sum::<u64>());
            for (layer, counts) in together.layers().iter().enumerate() {
                for (expert, load) in counts.loads().iter().enumerate() {
                    let parts = apart.iter().map(|one| one.layers()[layer].loads()[expert].0);
                    assert_eq!(load.0, parts.sum::<u64>(), "{name}, layer {layer}, expert {expert}");
                }
            }
        }
    }

    #[test]
    fn layers_without_experts_have_no_counts() {
        let calibration = counted(&load("lfm2moe"), &[text(40, 1)], 1);
        let layers: Vec<usize> = calibration.layers().iter().map(|counts| counts.loads().len()).collect();
        assert_eq!((layers, calibration.experts()), (vec![0, 0, 6, 6], 6));
        assert_eq!(calibration.overlap(&calibration, 2), Ok(vec![1.0, 1.0]));
    }

    #[test]
    fn all_is_told() {
        let mut told = Vec::new();
        let texts = [text(4, 1), text(6, 2)];
        calibrate_experts(&load("mixtral"), &texts, 1, &mut |read| told.push(read)).unwrap();
        assert_eq!(told, [Tokens(4), Tokens(10)]);
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let refused = |name, texts: &[Vec<TokenId>]| {
            calibrate_experts(&load(name), texts, 1, &mut |_| {}).unwrap_err().to_string()
        };
        assert!(refused("llama", &[text(4, 1)]).contains("dense"));
        assert_eq!(refused("mixtral", &[]), "there is no text");
        let token = refused("mixtral", &[vec![TokenId(u32::MAX)]]);
        assert!(token.contains("vocabulary"), "{token}");
    }
}
