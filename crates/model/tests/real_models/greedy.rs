//! Prompts are rendered as Jinja2 renders them, and continued as llama.cpp continues them.

use crate::reference::{Continuation, load, reference};
use crate::sequence::{Sequence, best};
use duet_model::Model;
use duet_model::kv::KvFormat;
use duet_model::template::{ChatMessage, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_types::{TokenId, Tokens};

/// What is asked of the continuations of a model.
pub(crate) struct Agreement {
    /// Prompts whose continuations are the same to the last token.
    pub(crate) equal_min: usize,
    /// Logits of the two programs differ, since both round activations, in their own ways. By how much a token may lead
    /// where they choose another one.
    pub(crate) tie: f64,
}

/// All first differences are ties, and there are not too many of them.
pub(crate) fn continues_as_llama_cpp(name: &str, agreement: &Agreement) {
    let reference = reference(name);
    let Some(model) = load(&reference) else { return };
    let mut sequence = Sequence::new(&model, KvFormat::F16, Tokens(1024));
    let (mut equal, mut widest) = (0, 0.0_f64);
    for expected in &reference.greedy {
        let prompt = tokens(&expected.tokens);
        let text = if reference.chat { rendered(&model, &expected.prompt) } else { expected.prompt.clone() };
        assert_eq!(model.tokenizer().encode_prompt(&text, SpecialTokens::Parse), prompt, "{:?}", expected.prompt);
        let Some(step) = first_difference(&mut sequence, &prompt, expected) else {
            equal += 1;
            continue;
        };
        let (lead, second) = (expected.lead[step.at], TokenId(expected.second[step.at]));
        eprintln!(
            "{:?}: parts at step {}, lead {lead:.3}, second: {}",
            expected.prompt,
            step.at,
            step.chosen == second
        );
        widest = widest.max(lead);
    }
    eprintln!(
        "{name}: {equal} of {} are equal; the widest lead that was turned is {widest:.3}",
        reference.greedy.len()
    );
    assert!(widest <= agreement.tie, "a lead of {widest} was turned");
    assert!(equal >= agreement.equal_min, "only {equal} are equal");
}

fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

/// A user's message as the model's own template has it.
fn rendered(model: &Model, message: &str) -> String {
    model.template().render(&[ChatMessage::new("user", message)], None, Turn::Generate).unwrap()
}

struct Step {
    at: usize,
    chosen: TokenId,
}

/// Where another token is the likeliest than the one that is expected. All tokens are fed at once: logits of a row are the
/// same bits, whatever rows are computed with it.
fn first_difference(sequence: &mut Sequence<'_>, prompt: &[TokenId], expected: &Continuation) -> Option<Step> {
    let continuation = tokens(&expected.continuation);
    let (last, before) = prompt.split_last().unwrap();
    sequence.truncate(Tokens::ZERO);
    sequence.feed(before, |_| false);
    let fed: Vec<TokenId> = [*last].into_iter().chain(continuation[..continuation.len() - 1].iter().copied()).collect();
    sequence.feed(&fed, |_| true);
    let chosen = sequence.rows().map(best);
    let mut steps = chosen.zip(continuation).enumerate();
    steps.find(|(_, (chosen, expected))| chosen != expected).map(|(at, (chosen, _))| Step { at, chosen })
}
