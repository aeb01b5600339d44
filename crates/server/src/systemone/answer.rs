//! Answers, as clients read them.

use super::question::{Kind, Question};
use serde_json::{Map, Value, json};

/// The answer to a question whose options are so likely.
pub(super) fn of(question: &Question, probabilities: &[f64]) -> Value {
    match question.kind {
        Kind::Noul => json!({"type": "noul", "noul": probabilities.first().copied().map(rounded)}),
        Kind::Choice => {
            let likeliest = (0..probabilities.len()).reduce(|best, other| {
                // Of two that are equally likely, the first.
                if probabilities[other] > probabilities[best] { other } else { best }
            });
            json!({
                "type": "choice",
                "choice": likeliest.map(|index| &question.options[index].label),
                "probabilities": named(question, probabilities),
                "confidence": rounded(confidence(probabilities)),
            })
        }
        Kind::Score { lowest } => {
            let expected: f64 = (lowest..).zip(probabilities).map(|(level, share)| level as f64 * share).sum();
            let legend = |answer: &super::question::Answer| {
                let means = answer.means.as_ref().unwrap_or(&answer.label);
                (answer.label.clone(), Value::String(means.clone()))
            };
            json!({
                "type": "score",
                "score": rounded(expected),
                "legend": question.options.iter().map(legend).collect::<Map<_, _>>(),
                "probabilities": named(question, probabilities),
                "confidence": rounded(confidence(probabilities)),
            })
        }
    }
}

fn named(question: &Question, probabilities: &[f64]) -> Map<String, Value> {
    let labels = question.options.iter().map(|answer| answer.label.clone());
    labels.zip(probabilities.iter().map(|share| rounded(*share).into())).collect()
}

/// How much surer this is than a guess among all options: 1 less the entropy's share of what it could be.
fn confidence(probabilities: &[f64]) -> f64 {
    let entropy: f64 = probabilities.iter().filter(|share| **share > 0.0).map(|share| -share * share.ln()).sum();
    (1.0 - entropy / (probabilities.len().max(2) as f64).ln()).clamp(0.0, 1.0)
}

/// More digits say nothing of a model in eight bits.
fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_is_none_of_a_guess_and_whole_of_a_certainty() {
        assert!(confidence(&[0.25; 4]).abs() < 1e-9);
        assert!((confidence(&[0.0, 1.0]) - 1.0).abs() < 1e-9);
        assert!((confidence(&[0.0125, 0.9781, 0.0093]) - 0.8908).abs() < 1e-3);
    }
}
