//! A prompt on its way through the blocks: chunk after chunk, in each block after block.
//!
//! A chunk is as long as the prefill graph. A block whose graph has fewer rows runs it several times for the same chunk
//! (`slot.rs`), which computes the same. (CoordGen §3.2, "graph equivalence by repetition")

use super::error::SwitchingError;
use super::exchange::Exchange;
use duet_kernels::crew::Crew;
use duet_model::Model;
use duet_model::forward::{Activations, Node, Pass, Segment};
use duet_model::kv::KvTable;
use duet_types::TokenId;

/// A prompt that was read.
#[derive(Debug)]
pub struct Read {
    /// Its keys and values.
    pub kv: KvTable,
    /// What may follow its last token.
    pub logits: Vec<f32>,
}

/// Reads the prompt that `exchange` has a plan for after `kv`, on the graphs that it has for each block; attention runs on
/// the crew.
///
/// # Errors
/// If it is another prompt, a pass is refused, a device fails, or loading does.
pub fn read(
    model: &Model,
    exchange: &Exchange<'_>,
    kv: KvTable,
    prompt: &[TokenId],
    crew: &dyn Crew,
) -> Result<Read, SwitchingError> {
    let (shelf, size) = (exchange.shelf(), exchange.blocks().rows().prefill.as_usize());
    if exchange.rows().as_usize() != prompt.len() {
        return Err(SwitchingError::OtherPrompt);
    }
    let mut activations = Activations::new(model, size.min(prompt.len()));
    let (mut tables, mut logits) = (vec![kv], Vec::new());
    let last = prompt.len().div_ceil(size).saturating_sub(1);
    for (index, tokens) in prompt.chunks(size).enumerate() {
        let segments = tables.into_iter().map(|kv| Segment::new(kv, tokens.to_vec())).collect();
        let mut pass = Pass::new(model, activations, segments).map_err(|refused| refused.error)?;
        let rows = 0..tokens.len();
        model.run_node(&mut pass, Node::Embed, rows.clone(), crew);
        for block in 0..shelf.count() {
            let graphs = exchange.enter()?;
            for layer in shelf.layers(block) {
                for node in [Node::Qkv { layer }, Node::Attention { layer }, Node::Ffn { layer }] {
                    model.run_node_on(&*graphs, &mut pass, node, rows.clone(), crew)?;
                }
            }
            drop(graphs);
            exchange.leave();
        }
        if index == last {
            model.logits_on(&*shelf.head(), &mut pass, &[tokens.len() - 1], &mut logits)?;
        }
        (activations, tables) = pass.finish();
    }
    let kv = tables.pop().ok_or(SwitchingError::Beside)?;
    logits.truncate(model.config().vocabulary);
    Ok(Read { kv, logits })
}
