//! How surprised a model is by texts.

use crate::MoefyError;
use duet_kernels::crew::Scoped;
use duet_model::Model;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_types::{TokenId, Tokens};

/// The perplexity over all tokens of all texts but the first ones: `e` to the mean negative logarithm of each token's
/// chance.
///
/// # Errors
/// If the model cannot read a text, or no text has two tokens.
pub fn perplexity(model: &Model, texts: &[Vec<TokenId>], threads: usize) -> Result<f64, MoefyError> {
    let crew = Scoped { threads };
    let (mut sum, mut count, mut logits) = (0.0, 0_usize, Vec::new());
    let vocabulary = model.config().vocabulary;
    for text in texts.iter().filter(|text| text.len() > 1) {
        let kv = model.kv_pool(KvFormat::F16, Tokens(text.len() as u32)).table();
        let segments = vec![Segment::new(kv, text.clone())];
        let mut pass =
            Pass::new(model, Activations::new(model, text.len()), segments).map_err(|refused| refused.error)?;
        model.run_span(&mut pass, 0..model.node_count(), &crew);
        let rows: Vec<usize> = (0..text.len() - 1).collect();
        for rows in rows.chunks(LOGIT_ROWS) {
            model.logits(&mut pass, rows, &mut logits, &crew);
            for (row, logits) in rows.iter().zip(logits.chunks_exact(vocabulary)) {
                sum += surprise(logits, text[row + 1]);
            }
        }
        count += rows.len();
    }
    if count == 0 { Err(MoefyError::NoText) } else { Ok((sum / count as f64).exp()) }
}

/// Rows whose whole logits are in memory at once.
const LOGIT_ROWS: usize = 64;

fn surprise(logits: &[f32], token: TokenId) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    sum.ln() - f64::from(logits[token.0 as usize] - largest)
}
