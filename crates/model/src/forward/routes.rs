//! Where rows went: what a layer's router said, for whoever counts.
//!
//! The choices of the layer that ran last lie in the pass's buffers until the next one's. Looking costs a look, and nothing
//! where nobody does.

use super::Pass;

/// Experts that a row went to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routes<'a> {
    /// Best first; each is smaller than the number of experts. One that all rows go to is not among them.
    pub experts: &'a [u32],
    /// What each counts.
    pub weights: &'a [f32],
}

impl Pass {
    /// Where the last `Ffn` node that the crew ran sent the `row`th of its rows. Nothing if the model has no experts.
    ///
    /// # Panics
    /// If the buffers have no such row.
    #[must_use]
    pub fn routes(&self, row: usize) -> Option<Routes<'_>> {
        self.activations.buffers.routes(row).map(|(experts, weights)| Routes { experts, weights })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Activations, Node, Segment};
    use super::*;
    use crate::kv::KvFormat;
    use crate::load::{LoadOptions, Model};
    use duet_kernels::crew::{Scoped, Solo};
    use duet_types::{TokenId, Tokens};
    use std::path::Path;

    fn load(name: &str) -> Model {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/golden_{name}.gguf"));
        Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap()
    }

    /// A pass of some tokens up to the first layer's end.
    fn first_layer(model: &Model, tokens: &[u32]) -> Pass {
        let segment = Segment::new(
            model.kv_pool(KvFormat::F16, Tokens(64)).table(),
            tokens.iter().copied().map(TokenId).collect(),
        );
        let mut pass = Pass::new(model, Activations::new(model, tokens.len()), vec![segment]).unwrap();
        model.run_span(&mut pass, 0..4, &Scoped { threads: 2 });
        pass
    }

    #[test]
    fn each_row_went_to_different_experts_by_its_own_scores() {
        for name in ["mixtral", "olmoe", "qwen2moe", "qwen3moe", "phimoe", "gptoss", "gemma4_experts"] {
            let model = load(name);
            let plan = model.blueprint().experts.unwrap();
            let together = first_layer(&model, &[5, 6, 7, 8, 9]);
            for row in 0..5 {
                let Routes { experts, weights } = together.routes(row).unwrap();
                assert_eq!((experts.len(), weights.len()), (plan.chosen, plan.chosen), "{name}");
                let mut different = experts.to_vec();
                different.sort_unstable();
                different.dedup();
                assert!(different.len() == plan.chosen && different.iter().all(|e| (*e as usize) < plan.count));
                assert!(weights.iter().all(|weight| *weight > 0.0), "{name}: {weights:?}");
            }
            assert_eq!(first_layer(&model, &[5]).routes(0), together.routes(0), "{name}: other rows change nothing");
        }
    }

    #[test]
    fn rows_that_a_kernel_took_are_counted_from_its_first() {
        let model = load("mixtral");
        let (whole, mut parts) = (first_layer(&model, &[5, 6, 7]), first_layer(&model, &[5, 6, 7]));
        // The node's input is gone, so the first layer is run again up to it.
        for node in [Node::Embed, Node::Qkv { layer: 0 }, Node::Attention { layer: 0 }] {
            model.run_node(&mut parts, node, 0..3, &Solo);
        }
        model.run_node(&mut parts, Node::Ffn { layer: 0 }, 2..3, &Solo);
        assert_eq!(parts.routes(0), whole.routes(2));
    }

    #[test]
    fn a_dense_model_sends_rows_nowhere() {
        assert_eq!(first_layer(&load("llama"), &[5]).routes(0), None);
    }
}
