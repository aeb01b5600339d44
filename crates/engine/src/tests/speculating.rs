//! Drafts change how an answer is computed, and not one token of it.

use super::*;
use duet_types::Class;

/// A setup in which every offered row is worth its while: a pass takes as long with many rows as with one.
fn drafting(speculate: Method) -> Setup {
    Setup { chunk: 64, preempt_nodes: 100, speculate, ..setup() }
}

/// A text that repeats itself, and so can be drafted.
fn refrain(times: usize) -> Vec<TokenId> {
    letters(&"thequickbrownfox".repeat(times))
}

fn spelled(setup: &Setup, script: &[TokenId], request: GenerateRequest) -> Answer {
    Bench::with(FakeModel { script: script.to_vec(), ..FakeModel::new(1000, 100) }, setup).answer(request)
}

#[test]
fn a_drafted_answer_is_the_same_and_takes_fewer_passes() {
    let alone = |method: &Method| !matches!(method, Method::None | Method::DraftModel);
    for method in Method::ALL.into_iter().filter(alone) {
        let plain = spelled(&drafting(Method::None), &refrain(6), spell());
        let drafted = spelled(&drafting(method), &refrain(6), spell());
        assert_eq!(drafted.tokens, plain.tokens, "{method}");
        assert_eq!(drafted.texts.concat(), plain.texts.concat(), "{method}");
        let accepted = drafted.usage().drafts.accepted;
        assert!(accepted > Tokens(40), "{method}: {accepted} tokens of 97 were drafted");
        assert_eq!(plain.usage().drafts, crate::DraftCounts::default());
    }
}

#[test]
fn chance_penalties_and_biases_choose_the_same_tokens() {
    for (temperature, penalty) in [(0.0, 0.0), (0.7, 0.0), (1.0, 0.5), (0.0, 1.0)] {
        for seed in 0..6 {
            let answer = |method| {
                let mut request = hashed(&letters("onceonceonce"), 60);
                request.sampling = SamplingParams {
                    temperature,
                    top_k: 3,
                    frequency_penalty: penalty,
                    logit_bias: vec![(TokenId(4), 3.0), (TokenId(14), 3.0)],
                    seed: Some(seed),
                    ..SamplingParams::default()
                };
                spelled(&drafting(method), &[], request)
            };
            assert_eq!(answer(Method::Duet).tokens, answer(Method::None).tokens, "{temperature} {penalty} {seed}");
        }
    }
}

#[test]
fn a_stop_string_within_a_draft_ends_the_answer_there() {
    // They span refrains, so that the first one passes, and the draft is what brings them.
    for stop in ["nfoxthequick", "foxthequickbrownfoxth", "xthequickbrownfoxt"] {
        let answer = |method| {
            let mut request = spell();
            request.stop.stop = vec![stop.to_owned()];
            spelled(&drafting(method), &refrain(5), request)
        };
        let (drafted, plain) = (answer(Method::Duet), answer(Method::None));
        assert_eq!((drafted.text(), drafted.reason()), (plain.text(), plain.reason()), "{stop}");
        assert!(drafted.tokens.len() < refrain(5).len(), "{stop} came, and did not end the answer");
        assert_eq!(drafted.tokens, plain.tokens, "{stop}");
    }
}

#[test]
fn the_last_token_is_the_last_however_many_were_drafted() {
    for most in 1..40 {
        let mut request = spell();
        request.stop.max_tokens = Some(Tokens(most));
        let answer = spelled(&drafting(Method::Duet), &refrain(6), request);
        assert_eq!((answer.tokens.len(), answer.reason()), (most as usize, FinishReason::Length));
    }
}

#[test]
fn what_the_client_predicts_is_drafted() {
    let script = letters("completelynewandneverseenbefore");
    let answer = |predicted: &[TokenId]| {
        let request = GenerateRequest { predicted: predicted.to_vec(), ..spell() };
        spelled(&drafting(Method::Duet), &script, request)
    };
    let (right, without, wrong) = (answer(&script), answer(&[]), answer(&letters("somethingelse")));
    assert_eq!(right.tokens, without.tokens);
    assert_eq!(right.tokens, wrong.tokens);
    let accepted = |answer: &Answer| answer.usage().drafts.accepted;
    assert!(accepted(&right) > Tokens(15) && accepted(&without) < Tokens(5), "{:?} {:?}", right.end, without.end);
}

#[test]
fn drafts_of_several_requests_are_verified_together_and_with_prompts() {
    let prompts: Vec<_> = (0..5).map(|index| letters(&"abcabcab".repeat(index + 1))).collect();
    let answers = |method, policy| {
        let setup = Setup { policy, ..drafting(method) };
        let bench = Bench::with(FakeModel { script: refrain(4), ..FakeModel::new(1000, 100) }, &setup);
        let requests = prompts.iter().enumerate().map(|(index, prompt)| {
            let class = if index % 2 == 0 { Class::Proactive } else { Class::Reactive };
            let start = if index == 3 { spell() } else { hashed(prompt, 40) };
            bench.start(GenerateRequest { class, ..start })
        });
        let generations: Vec<_> = requests.collect();
        generations.into_iter().map(|generation| answer(generation).tokens).collect::<Vec<_>>()
    };
    let expected = answers(Method::None, PolicyName::Duet);
    for policy in PolicyName::ALL {
        assert_eq!(answers(Method::Duet, policy), expected, "{policy}");
    }
}

#[test]
fn an_engine_that_ends_keeps_what_it_learned() {
    let folder = tempfile::tempdir().unwrap();
    let learned = Some(LearnedFile::of(folder.path(), "fake"));
    let setup = Setup { learned: learned.clone(), ..drafting(Method::Duet) };
    assert_eq!(learned.as_ref().and_then(LearnedFile::load), None);
    spelled(&setup, &refrain(6), spell());
    let first = learned.as_ref().and_then(LearnedFile::load).expect("it was written");
    spelled(&setup, &refrain(6), spell());
    let second = learned.as_ref().and_then(LearnedFile::load).expect("it was written");
    assert_ne!(first, second, "the second engine went on from what the first one knew");
}
