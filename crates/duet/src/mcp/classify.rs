//! Which label: the one that the model is likeliest to answer with.
//!
//! The model is asked the same question once for each label, held to that label, and the probabilities of its tokens are
//! multiplied. What is held to one text is forced and read in one pass, and the prompt is read once: its keys and values
//! are kept from the first label on. Choosing token by token among all labels would be one question, but it decides at the
//! first token, where a label may share its beginning with a likelier text.
//!
//! **Invariant:** labels are told and answered in quotes, so that none is the beginning of another and the end of each has
//! a probability as well.

use super::arguments::Refusal;
use super::work::{Question, Worker};
use duet_agents::ResponseFormat;
use duet_types::{FinishReason, Tokens};
use rmcp::model::CallToolResult;
use serde_json::{Map, Value, json};

/// The label and the probabilities of all, which add up to 1.
pub(super) async fn classify(
    worker: &Worker,
    question: &Question,
    labels: Vec<String>,
) -> Result<CallToolResult, Refusal> {
    let mut scores = Vec::with_capacity(labels.len());
    for label in &labels {
        let label = quoted(label);
        let held = Question {
            // A token has at least a byte, and the last one may end the turn.
            answer_max: ("labels", Tokens(u32::try_from(label.len()).unwrap_or(u32::MAX).saturating_add(1))),
            form: ResponseFormat::Choice(vec![label]),
            ..question.clone()
        };
        let (_, most) = held.answer_max;
        let answer = worker.answer(held).await?;
        if answer.reason != FinishReason::Stop {
            return Err(Refusal(format!("labels: the model did not come to an answer within {most} tokens")));
        }
        scores.push(answer.log_probability);
    }
    let probabilities = shares(&scores);
    let best = (0..labels.len()).max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]));
    let label = best.map(|best| labels[best].clone());
    let probabilities: Map<String, Value> =
        labels.into_iter().zip(probabilities).map(|(label, share)| (label, share.into())).collect();
    Ok(CallToolResult::structured(json!({"label": label, "probabilities": probabilities})))
}

/// A label as it is told and answered: a JSON text.
pub(super) fn quoted(label: &str) -> String {
    Value::from(label).to_string()
}

/// Probabilities from their logarithms, as shares of their sum.
fn shares(logarithms: &[f64]) -> Vec<f64> {
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // If none is possible, none is likelier than another.
    let weights: Vec<f64> =
        logarithms.iter().map(|&one| if most.is_finite() { (one - most).exp() } else { 1.0 }).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_one_however_small_the_probabilities_are() {
        let shared = shares(&[-2000.0, -2000.0 - 3f64.ln()]);
        assert!((shared[0] - 0.75).abs() < 1e-9 && (shared[1] - 0.25).abs() < 1e-9, "{shared:?}");
        assert_eq!(shares(&[f64::NEG_INFINITY; 2]), [0.5, 0.5]);
        assert_eq!(shares(&[0.0, f64::NEG_INFINITY]), [1.0, 0.0]);
    }
}
