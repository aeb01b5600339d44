//! What is drawn comes as often as its definition says: each case is drawn a hundred thousand times, and held against the
//! documented steps in the documented order, written plainly in double precision.

use super::*;
use crate::chi_squared::ChiSquared;
use duet_agents::{Automaton, Limits, ResponseFormat, Thinking, TokenText, Turn, Vocabulary, constraint};

const DRAWS: u64 = 100_000;
const VOCABULARY: usize = 26;

/// A place in an answer, and how its token is to be chosen.
#[derive(Clone)]
struct Case {
    draws: u64,
    logits: Vec<f32>,
    params: SamplingParams,
    prompt: Vec<u32>,
    generated: Vec<u32>,
    /// The tokens that may come; all if there is none.
    allowed: Option<fn(usize) -> bool>,
}

/// The probability of each token.
fn reference(case: &Case) -> Vec<f64> {
    let SamplingParams { temperature, top_k, top_p, min_p, .. } = case.params;
    let logits = penalised(case);
    let mut order: Vec<usize> = (0..logits.len()).filter(|&token| logits[token] > f64::NEG_INFINITY).collect();
    order.sort_by(|&one, &other| logits[other].total_cmp(&logits[one]));
    if top_k > 0 {
        order.truncate(top_k as usize);
    }
    let weight = |token: usize| (logits[token] / f64::from(temperature)).exp();
    let sum = |order: &[usize]| order.iter().map(|&token| weight(token)).sum::<f64>();
    let total = sum(&order);
    let fewest = (1..order.len()).find(|&few| sum(&order[..few]) >= f64::from(top_p) * total);
    order.truncate(fewest.filter(|_| top_p < 1.0).unwrap_or(order.len()));
    let likeliest = weight(order[0]);
    order.retain(|&token| weight(token) >= f64::from(min_p) * likeliest);
    let total = sum(&order);
    (0..logits.len()).map(|token| if order.contains(&token) { weight(token) / total } else { 0.0 }).collect()
}

fn penalised(case: &Case) -> Vec<f64> {
    let params = &case.params;
    let of = |(token, &logit): (usize, &f32)| {
        let times = |tokens: &[u32]| tokens.iter().filter(|&&seen| seen as usize == token).count() as f64;
        let (generated, mut logit) = (times(&case.generated), f64::from(logit));
        if times(&case.prompt) + generated > 0.0 {
            let penalty = f64::from(params.repetition_penalty);
            logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
        }
        if generated > 0.0 {
            logit -= f64::from(params.presence_penalty) + generated * f64::from(params.frequency_penalty);
        }
        let biases = params.logit_bias.iter().filter(|(biased, _)| biased.0 as usize == token);
        logit += biases.map(|&(_, bias)| f64::from(bias)).sum::<f64>();
        if case.allowed.is_some_and(|is_allowed| !is_allowed(token)) { f64::NEG_INFINITY } else { logit }
    };
    case.logits.iter().enumerate().map(of).collect()
}

/// How often each token is drawn in this place by one stream of random numbers.
fn drawn(case: &Case) -> Vec<u64> {
    let prompt: Vec<TokenId> = case.prompt.iter().copied().map(TokenId).collect();
    let mut here = Sampler::new(&case.params, &prompt, 17);
    case.generated.iter().for_each(|&token| here.penalties.note(TokenId(token)));
    let mask = case.allowed.map(|is_allowed| mask(case.logits.len(), is_allowed));
    let likeliest = largest(&case.logits);
    let (mut counts, mut scratch) = (vec![0; case.logits.len()], Scratch::default());
    let (mut logits, penalties) = (Vec::new(), here.penalties.clone());
    for _ in 0..case.draws {
        logits.clone_from(&case.logits);
        let token = match &mask {
            None => here.choose(&mut logits, likeliest, &mut scratch),
            Some(mask) => here.choose_among(mask, &mut logits, &[], &mut scratch),
        };
        counts[token.0 as usize] += 1;
        // The same place again: the token was never chosen.
        here.penalties.clone_from(&penalties);
    }
    counts
}

/// A mask as answers of a form have it: of a vocabulary whose tokens are one character each.
fn mask(vocabulary: usize, is_allowed: fn(usize) -> bool) -> Mask {
    let character = |token: usize| char::from_u32(0x4e00 + token as u32).unwrap();
    let text = |token| TokenText::Text(character(token).to_string().into_bytes());
    let end = TokenText::Special("<end>".to_owned());
    let tokens = Vocabulary::new((0..vocabulary).map(text).chain([end]), &[TokenId(vocabulary as u32)], |text| {
        text.chars().map(|character| TokenId(character as u32 - 0x4e00)).collect()
    });
    let class: String = (0..vocabulary).filter(|&token| is_allowed(token)).map(character).collect();
    let form = ResponseFormat::Regex(format!("[{class}]x"));
    let grammar = constraint(&Turn { calls: None, answer: &form, thinking: Thinking::Off }, &|_| None);
    let mut automaton = Automaton::start(&tokens.unwrap(), &grammar.unwrap().unwrap(), Limits::default()).unwrap();
    automaton.mask().unwrap().clone()
}

/// Logits from -3 to 3 without order; every seventh token cannot come.
fn logits(vocabulary: usize) -> Vec<f32> {
    let mut rng = Rng::seeded(5);
    let logit = |token| if token % 7 == 6 { f32::NEG_INFINITY } else { rng.unit() as f32 * 6.0 - 3.0 };
    (0..vocabulary).map(logit).collect()
}

/// The beginning of an answer that may be anything.
fn nothing() -> Case {
    let (prompt, generated) = (Vec::new(), Vec::new());
    Case { draws: DRAWS, logits: logits(VOCABULARY), params: warm(1.0), prompt, generated, allowed: None }
}

fn warm(temperature: f32) -> SamplingParams {
    SamplingParams { temperature, ..SamplingParams::default() }
}

fn check(case: &Case) {
    let (counts, shares) = (drawn(case), reference(case));
    let distance = ChiSquared::of(&counts, &shares);
    assert!(distance.fits(), "{distance:?} of {:?}: {counts:?} came with {shares:?}", case.params);
}

fn check_params(params: SamplingParams) {
    check(&Case { params, ..nothing() });
}

#[test]
fn temperature_divides_logits() {
    for temperature in [0.3, 1.0, 1.7] {
        check_params(warm(temperature));
    }
}

#[test]
fn each_cut_leaves_what_it_says() {
    check_params(SamplingParams { top_k: 7, ..warm(1.3) });
    check_params(SamplingParams { top_p: 0.8, ..warm(0.7) });
    check_params(SamplingParams { min_p: 0.1, ..warm(1.5) });
    // Temperature comes before the cuts: of what is spread wider, more is kept.
    check_params(SamplingParams { top_p: 0.8, ..warm(2.0) });
}

#[test]
fn cuts_come_one_after_the_other() {
    check_params(SamplingParams { top_k: 8, top_p: 0.7, ..warm(1.0) });
    check_params(SamplingParams { top_p: 0.9, min_p: 0.25, ..warm(1.0) });
    check_params(SamplingParams { top_k: 12, top_p: 0.85, min_p: 0.2, ..warm(0.9) });
}

/// A place where tokens were seen: 3 and 5 in the prompt, 5, 8 and, three times, 13 in the answer.
fn penalised_case(params: SamplingParams) -> Case {
    let (prompt, generated) = (vec![3, 5, 5], vec![13, 5, 13, 8, 13]);
    Case { params, prompt, generated, ..nothing() }
}

#[test]
fn penalties_and_biases_come_first() {
    let bias = vec![(TokenId(2), 1.5), (TokenId(8), -0.7), (TokenId(22), 2.5)];
    let repetition = SamplingParams { repetition_penalty: 1.4, ..warm(1.0) };
    let counted = SamplingParams { presence_penalty: 0.6, frequency_penalty: 0.4, ..warm(0.8) };
    let biased = SamplingParams { logit_bias: bias.clone(), ..warm(1.2) };
    let all = SamplingParams { repetition_penalty: 1.4, logit_bias: bias, ..counted.clone() };
    let cut = SamplingParams { top_k: 14, top_p: 0.9, min_p: 0.05, ..all.clone() };
    for params in [repetition, counted, biased, all, cut] {
        check(&penalised_case(params));
    }
}

#[test]
fn of_an_answer_of_a_form_the_tokens_that_may_come_are_the_whole() {
    let is_allowed: fn(usize) -> bool = |token| token % 3 != 1;
    let cut = SamplingParams { top_k: 9, top_p: 0.8, repetition_penalty: 1.4, ..warm(0.9) };
    for params in [warm(1.0), SamplingParams { top_p: 0.6, ..warm(1.0) }, cut] {
        check(&Case { allowed: Some(is_allowed), ..penalised_case(params) });
    }
}

/// More tokens than are summed, looked through or gathered at once.
#[test]
fn a_large_vocabulary_is_no_different() {
    let large = |params| check(&Case { draws: 3000, logits: logits(1500), params, ..nothing() });
    large(warm(0.25));
    large(SamplingParams { top_p: 0.7, ..warm(0.25) });
}

/// Clients number their seeds: the first tokens of such answers are independent, too.
#[test]
fn seeds_that_follow_each_other_draw_independently() {
    let case = Case { params: warm(1.0), ..nothing() };
    let mut counts = vec![0; case.logits.len()];
    for seed in 0..DRAWS {
        let params = SamplingParams { seed: Some(seed), ..case.params.clone() };
        let logits = &mut case.logits.clone();
        let token = Sampler::new(&params, &[], 0).choose(logits, largest(&case.logits), &mut Scratch::default());
        counts[token.0 as usize] += 1;
    }
    let distance = ChiSquared::of(&counts, &reference(&case));
    assert!(distance.fits(), "{distance:?}: {counts:?}");
}

/// The test sees what it is there for: a step that is a little different.
#[test]
fn another_distribution_is_seen() {
    let is_seen = |drawn_with, expected| {
        let (drawn_with, expected) = (Case { params: drawn_with, ..nothing() }, Case { params: expected, ..nothing() });
        !ChiSquared::of(&drawn(&drawn_with), &reference(&expected)).fits()
    };
    assert!(is_seen(warm(1.0), warm(1.03)));
    assert!(is_seen(SamplingParams { top_p: 0.8, ..warm(1.0) }, SamplingParams { top_p: 0.7, ..warm(1.0) }));
}
