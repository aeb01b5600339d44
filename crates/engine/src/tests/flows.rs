//! The KV of ended requests: reused by the turns that follow, given up when pages are wanted.

use super::*;
use duet_model::kv::PAGE_TOKENS;

#[test]
fn a_second_turn_computes_only_what_is_new() {
    let bench = Bench::new(FakeModel::new(1000, 100));
    let mut prompt = letters("abcdefghijklmnopqrstuvwxyz").repeat(4);
    let first = bench.answer(hashed(&prompt, 10));
    assert_eq!(first.usage().cached, Tokens(0));
    prompt.extend(&first.tokens);
    prompt.extend(letters("andthen"));
    let rows = bench.rows();
    let second = bench.answer(hashed(&prompt, 10));
    // The last token of an answer is not in the KV when it ends.
    assert_eq!(second.usage().cached, Tokens(104 + 9));
    // The token that was not, the seven new ones, and nine rows of decode.
    assert_eq!(bench.rows() - rows, 8 + 9);
    assert_eq!(bench.stats().flows_kept, 1);

    let fresh = Bench::new(FakeModel::new(1000, 100)).answer(hashed(&prompt, 10));
    assert_eq!(second.tokens, fresh.tokens);
}

/// Whoever reads a row that was said not to be read panics, here as with a real model, so that all tests say that it is enough.
#[test]
fn of_a_prompt_the_last_row_alone_is_read_behind_the_last_layer() {
    let bench = Bench::new(FakeModel::new(1000, 100));
    let prompt = letters("abcdefghijklmnopqrstuvwxyz").repeat(4);
    bench.answer(hashed(&prompt, 1));
    assert_eq!((bench.rows(), bench.head_rows()), (104, 1));
    // All but the last one speak of a token of the prompt, which nobody has asked for a token behind.
    let scored = GenerateRequest { prompt_logprobs: Some(1), ..hashed(&letters("somethingelse"), 0) };
    bench.answer(scored);
    assert_eq!((bench.rows(), bench.head_rows()), (104 + 13, 1 + 12));
}

#[test]
fn calibration_by_the_whole_head_reads_all_rows_and_by_the_prompts_tokens_none() {
    for (calibrate, read) in [(Calibrate::Context, 1), (Calibrate::Full, 104)] {
        let bench = Bench::with(FakeModel::new(1000, 100), &Setup { speculate: Method::Duet, calibrate, ..setup() });
        let prompt = letters("abcdefghijklmnopqrstuvwxyz").repeat(4);
        assert_eq!(bench.answer(hashed(&prompt, 1)).tokens.len(), 1, "{calibrate:?}");
        assert_eq!((bench.rows(), bench.head_rows()), (104, read), "{calibrate:?}");
    }
}

#[test]
fn common_instructions_are_computed_once_and_branches_do_not_mix() {
    let bench = Bench::new(FakeModel::new(1000, 100));
    let prompt = |end: &str| [letters("youareahelpfulagent"), letters(end)].concat();
    let alone = |end: &str| Bench::new(FakeModel::new(1000, 100)).answer(hashed(&prompt(end), 8)).tokens;
    assert_eq!(bench.answer(hashed(&prompt("hello"), 8)).tokens, alone("hello"));
    let other = bench.answer(hashed(&prompt("summarise"), 8));
    assert_eq!(other.usage().cached, Tokens(19));
    assert_eq!(other.tokens, alone("summarise"));
    // The first branch is still there, whole.
    let again = bench.answer(hashed(&prompt("hello"), 8));
    assert_eq!(again.usage().cached, Tokens(23));
    assert_eq!(again.tokens, alone("hello"));
}

#[test]
fn kept_tables_make_room_for_new_requests() {
    let context = 3 * PAGE_TOKENS as u32;
    let bench = Bench::new(FakeModel::new(context, 4));
    for first in 0..10 {
        let mut prompt = letters("abcdefghijklmnopqrstuvwxyz").repeat(5);
        prompt.rotate_left(first);
        let answer = bench.answer(hashed(&prompt, 20));
        assert_eq!(answer.tokens.len(), 20);
        assert!(bench.stats().kv_pages_used <= 4);
    }
    assert_eq!(bench.stats().flows_kept, 1);
}

/// Two requests that do not fit together: one of them waits for the other's pages, and both have their answers.
#[test]
fn memory_for_one_serves_two() {
    let prompt = |rotation: usize| {
        let mut prompt = letters("abcdefghijklmnopqrstuvwxyz").repeat(4);
        prompt.rotate_left(rotation);
        prompt
    };
    let alone = |rotation| Bench::new(FakeModel::new(192, 100)).answer(hashed(&prompt(rotation), 40)).tokens;
    for policy in PolicyName::ALL {
        for spill_pages in [0, 100] {
            let setup = Setup { policy, spill_pages, ..setup() };
            let bench = Bench::with(FakeModel::new(192, 3), &setup);
            let requests = [0, 1, 2].map(|rotation| hashed(&prompt(rotation), 40));
            let [a, b, c] = requests;
            let open = [bench.start(background(a)), bench.start(b), bench.start(background(c))];
            for (rotation, generation) in open.into_iter().enumerate() {
                assert_eq!(answer(generation).tokens, alone(rotation), "{policy}, {spill_pages} pages on disk");
            }
            assert!(bench.stats().kv_pages_used <= 3);
        }
    }
}
