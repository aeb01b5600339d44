//! Texts read layer by layer, for those who want to see what each layer is given and where its router sends it.
//!
//! All texts go through a layer before the next one begins, so that something can be found of some texts' rows and used on
//! others' in one reading. The model runs as it is: nothing that is looked at changes anything.

use crate::MoefyError;
use crate::router::Chosen;
use crate::stream::Stream;
use duet_model::Model;
use duet_types::TokenId;

/// What all texts bring to a layer's second half, row by row in the texts' order.
#[derive(Debug)]
pub struct Brought<'a> {
    /// The residual stream as it came to the layer: `[rows][hidden]`.
    pub residual: &'a [f32],
    /// The L2 norm of each row's attention output, before its projection.
    pub attended: &'a [f32],
    /// Where the layer's own router sends them; absent in a dense model.
    pub chosen: Option<&'a Chosen>,
}

/// Lets a model read texts on `threads` threads and shows every layer to `each`, in their order.
///
/// # Errors
/// If there is no text, if one is longer than the model's context, or what `each` says.
pub fn read<E: From<MoefyError>>(
    model: &Model,
    texts: &[Vec<TokenId>],
    threads: usize,
    each: &mut dyn FnMut(usize, Brought<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let texts: Vec<Vec<TokenId>> = texts.iter().filter(|text| !text.is_empty()).cloned().collect();
    if texts.is_empty() {
        return Err(MoefyError::NoText.into());
    }
    let mut stream = Stream::new(model, &texts, threads)?;
    for layer in 0..model.config().layers {
        let brought = stream.bring(layer)?;
        let norm = |row: &[f32]| row.iter().map(|value| value * value).sum::<f32>().sqrt();
        let attended: Vec<f32> = brought.attended.values().chunks_exact(brought.attended.columns()).map(norm).collect();
        let chosen = stream.run(layer);
        each(layer, Brought { residual: brought.residual.values(), attended: &attended, chosen: chosen.as_ref() })?;
    }
    Ok(())
}

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
        (0..length).map(|at| TokenId((at * 37 + seed * 101) % 250)).collect()
    }

    type Layer = (Vec<f32>, Vec<f32>, Option<Chosen>);

    fn seen(model: &Model, texts: &[Vec<TokenId>], threads: usize) -> Vec<Layer> {
        let mut layers = Vec::new();
        read::<MoefyError>(model, texts, threads, &mut |layer, brought| {
            assert_eq!(layer, layers.len());
            layers.push((brought.residual.to_vec(), brought.attended.to_vec(), brought.chosen.cloned()));
            Ok(())
        })
        .unwrap();
        layers
    }

    #[test]
    fn texts_bring_the_same_together_and_apart_on_any_threads() {
        for name in ["mixtral", "llama"] {
            let model = load(name);
            let texts = [text(30, 1), text(7, 2)];
            let together = seen(&model, &texts, 2);
            assert_eq!(together, seen(&model, &texts, 1), "{name}");
            assert_eq!(together.len(), model.config().layers);
            let apart: Vec<Vec<Layer>> = texts.iter().map(|text| seen(&model, std::slice::from_ref(text), 1)).collect();
            for (layer, (residual, attended, chosen)) in together.iter().enumerate() {
                let parts: Vec<f32> = apart.iter().flat_map(|text| text[layer].0.clone()).collect();
                assert_eq!(*residual, parts, "{name}");
                assert_eq!(attended.len(), 37);
                assert_eq!(chosen.is_some(), name == "mixtral");
                if let Some(chosen) = chosen {
                    let plan = model.blueprint().experts.unwrap();
                    assert_eq!((chosen.count, chosen.experts.len()), (plan.chosen, 37 * plan.chosen));
                }
            }
        }
    }

    #[test]
    fn nothing_to_read_is_refused() {
        let refused = read::<MoefyError>(&load("llama"), &[vec![]], 1, &mut |_, _| Ok(()));
        assert!(matches!(refused, Err(MoefyError::NoText)));
    }
}
