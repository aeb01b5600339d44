//! Any text has an encoding, in time that does not blow up; a vocabulary that makes no sense is refused with a reason.

use std::time::{Duration, Instant};

use duet_model::gguf::Texts;
use duet_model::tokenizer::{
    Detokenizer, SpecialTokens, Tokenizer, TokenizerError, TokenizerKind, TokenizerSpec, TooManyTokens,
};
use duet_types::{TokenId, Tokens};
use proptest::prelude::*;

fn empty(kind: TokenizerKind) -> TokenizerSpec {
    TokenizerSpec {
        kind,
        pre: Some("gpt-2".into()),
        tokens: Texts::default(),
        scores: Vec::new(),
        types: Vec::new(),
        merges: Texts::default(),
        bos: None,
        eos: None,
        eot: None,
        eom: None,
        unknown: None,
        add_bos: false,
        add_eos: false,
        add_space_prefix: false,
        strip_after_special: false,
    }
}

/// `a`, `aa`, … `a` sixty-four times, and the same of spaces and line ends.
fn runs(kind: TokenizerKind) -> TokenizerSpec {
    let mut spec = empty(kind);
    let characters = match kind {
        TokenizerKind::BytePairs => ['a', 'Ġ', 'Ċ', '1', '!'],
        TokenizerKind::SentencePiece | TokenizerKind::SentencePieceByMerges => ['a', '▁', '\n', '1', '!'],
    };
    for character in characters {
        for power in 0..7 {
            spec.tokens.push(character.to_string().repeat(1 << power));
            if power > 0 {
                let half = character.to_string().repeat(1 << (power - 1));
                spec.merges.push(format!("{half} {half}"));
            }
            spec.scores.push(-(power as f32));
        }
    }
    spec
}

#[test]
fn tokenizer_time_is_nearly_linear_in_runs() {
    let splittings = ["gpt-2", "llama-bpe", "qwen2", "default", "tekken"].map(|pre| (TokenizerKind::BytePairs, pre));
    for (kind, pre) in splittings
        .into_iter()
        .chain([TokenizerKind::SentencePiece, TokenizerKind::SentencePieceByMerges].map(|kind| (kind, "")))
    {
        let tokenizer = Tokenizer::new(TokenizerSpec { pre: Some(pre.into()), ..runs(kind) }).expect(pre);
        for text in ["a", " ", "\n", "1", "!", "a ", " \n", "'", "é", "A", "\u{301}"] {
            let bytes = if ["gpt-2", ""].contains(&pre) { 1 << 20 } else { 1 << 17 };
            let text = text.repeat(bytes / text.len());
            let begun = Instant::now();
            let tokens = tokenizer.encode(&text, SpecialTokens::Parse);
            let took = begun.elapsed();
            eprintln!("{kind:?} {pre} {:?}: {} tokens in {took:?}", &text[..2], tokens.len());
            // A second where optimised; a loaded machine and a debug build get more. Quadratic would be minutes.
            assert!(took < Duration::from_secs(20), "{took:?}");
        }
    }
}

#[test]
fn tokenizer_special_tokens_in_thousands_cost_little() {
    let mut spec = runs(TokenizerKind::SentencePiece);
    for n in 0..6000 {
        spec.tokens.push(format!("<unused{n}>"));
    }
    for n in 1..32 {
        spec.tokens.push("\n".repeat(n + 64));
    }
    spec.types = vec![4; spec.tokens.len()];
    spec.scores = Vec::new();
    let tokenizer = Tokenizer::new(spec).expect("a tokenizer");
    for text in ["\n", "<unused7>", "<unuse", "<"] {
        let text = text.repeat((1 << 20) / text.len());
        let begun = Instant::now();
        let tokens = tokenizer.encode(&text, SpecialTokens::AsText);
        eprintln!("{} tokens in {:?}", tokens.len(), begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn tokenizer_refuses_what_makes_no_sense() {
    let check = |spec: TokenizerSpec, expected: &str| {
        let error = Tokenizer::new(spec).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    };
    let runs = || runs(TokenizerKind::BytePairs);
    check(empty(TokenizerKind::BytePairs), "empty");
    check(TokenizerSpec { pre: Some("no-such".into()), ..runs() }, "`no-such`");
    check(TokenizerSpec { types: vec![1; 3], ..runs() }, "35 tokens but 3 token types");
    check(TokenizerSpec { kind: TokenizerKind::SentencePiece, scores: vec![0.0; 2], ..runs() }, "2 token scores");
    let error: TokenizerError = Tokenizer::new(empty(TokenizerKind::SentencePiece)).expect_err("empty");
    assert!(matches!(error, TokenizerError::Empty));
}

/// Vocabularies that were cut name tokens that they do not have.
#[test]
fn tokenizer_forgets_special_tokens_that_are_not_there() {
    let far = Some(TokenId(99));
    let spec = TokenizerSpec { bos: far, eos: far, eot: far, unknown: far, ..runs(TokenizerKind::BytePairs) };
    let tokenizer = Tokenizer::new(spec).expect("a tokenizer");
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (None, None));
    assert!(!tokenizer.encode_prompt("aa", SpecialTokens::Parse).is_empty());
}

/// Broken files: nothing here may panic, and text goes as far as the vocabulary can say it.
#[test]
fn tokenizer_lives_with_odd_vocabularies() {
    let texts = ["", "a b", "é", "\0", "aaaa  \n", "<s>▁", "<0x41>"];
    let odd: [&[&str]; 5] =
        [&[""], &["a", "a", "a"], &["<s>", "▁", "▁▁"], &["<0xZZ>", "<0x", "<0x4>"], &["é", "Ã", "©"]];
    for tokens in odd {
        for kind in [TokenizerKind::BytePairs, TokenizerKind::SentencePiece, TokenizerKind::SentencePieceByMerges] {
            for types in [Vec::new(), vec![6; tokens.len()], vec![3; tokens.len()], vec![-7; tokens.len()]] {
                let merges = ["", " ", "a", "a a", "  a", "é é", "Ã ©"].map(str::to_owned).to_vec();
                let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
                let tokenizer = Tokenizer::new(TokenizerSpec {
                    tokens,
                    types,
                    merges: merges.into_iter().collect(),
                    scores: Vec::new(),
                    add_space_prefix: true,
                    ..empty(kind)
                })
                .expect("odd, but a vocabulary");
                for text in texts {
                    let encoded = tokenizer.encode_prompt(text, SpecialTokens::Parse);
                    assert!(tokenizer.decode(&encoded).len() <= 2 * text.len() + 8);
                }
                assert_eq!(tokenizer.bytes(TokenId(u32::MAX)), b"");
                assert_eq!(tokenizer.text_of_special(TokenId(u32::MAX)), None);
                assert!(!tokenizer.is_end_of_generation(TokenId(u32::MAX)));
            }
        }
    }
}

/// However the bytes of a text are spread over tokens, the pieces put together are the text, and each is whole.
#[test]
fn tokenizer_streams_whole_characters() {
    let mut spec = empty(TokenizerKind::SentencePiece);
    spec.tokens = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    spec.types = vec![6; 256];
    let tokenizer = Tokenizer::new(spec).expect("a tokenizer of bytes");
    let ids = |bytes: &[u8]| bytes.iter().map(|&byte| TokenId(u32::from(byte))).collect::<Vec<_>>();

    let mut detokenizer = tokenizer.detokenizer();
    let pieces: Vec<String> =
        ids("é😀a".as_bytes()).into_iter().map(|token| detokenizer.push(&tokenizer, token)).collect();
    assert_eq!(pieces, ["", "é", "", "", "", "😀", "a"]);
    assert_eq!(detokenizer.finish(), "");

    // Every kind of broken UTF-8, many times over: a small generator with a fixed seed.
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let menu = b"ab\x80\xBF\xC0\xC3\xA9\xE2\x82\xAC\xED\xA0\x80\xF0\x9F\x98\x80\xF4\x90\xFF\n ";
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..12)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                menu[(state % menu.len() as u64) as usize]
            })
            .collect();
        let mut detokenizer = Detokenizer::default();
        let mut text: String = ids(&bytes).into_iter().map(|token| detokenizer.push(&tokenizer, token)).collect();
        text.push_str(&detokenizer.finish());
        assert_eq!(text, String::from_utf8_lossy(&bytes), "{bytes:02X?}");
        assert_eq!(tokenizer.decode(&ids(&bytes)), text);
    }
}

/// `runs` with a token for every byte, so that nothing is left unsaid.
fn runs_and_bytes(kind: TokenizerKind) -> Tokenizer {
    let mut spec = runs(kind);
    // Every printable Latin letter and the 68 after them stand for a byte where tokens are spelled.
    let spelled = (0x21..=0x7E).chain(0xA1..=0xAC).chain(0xAE..=0xFF).chain(0x100..=0x143);
    for (character, byte) in spelled.zip(0_u8..=255) {
        let character = char::from_u32(character).expect("a character");
        let token = match kind {
            TokenizerKind::BytePairs => character.to_string(),
            TokenizerKind::SentencePiece | TokenizerKind::SentencePieceByMerges => format!("<0x{byte:02X}>"),
        };
        if !spec.tokens.iter().any(|there| there == token) {
            spec.tokens.push(token);
            spec.scores.push(0.0);
        }
    }
    Tokenizer::new(spec).expect("a vocabulary")
}

proptest! {
    /// Within a limit the tokens are the same; beyond it there are none, and what certainly exceeds it does.
    #[test]
    fn tokenizer_limits_change_no_token(text in "[a▁ \n1!é√😀]{0,200}", most in 0..200_u32) {
        for kind in
            [TokenizerKind::BytePairs, TokenizerKind::SentencePiece, TokenizerKind::SentencePieceByMerges]
        {
            let tokenizer = runs_and_bytes(kind);
            let all = tokenizer.encode(&text, SpecialTokens::Parse);
            let halves = text.split_at(text.floor_char_boundary(text.len() / 2));
            let exceeds = |most| tokenizer.certainly_exceeds([halves.0, halves.1].into_iter(), Tokens(most));
            prop_assert!(!exceeds(all.len() as u32));
            let within = tokenizer.encode_within(&text, SpecialTokens::Parse, Tokens(most));
            let expected = if all.len() <= most as usize { Ok(all) } else { Err(TooManyTokens { most: Tokens(most) }) };
            prop_assert_eq!(within, expected);
        }
    }
}

/// A prompt that is a thousand times too long is refused by its length, and one that might fit is not read to its end.
#[test]
fn tokenizer_reads_no_more_than_fits() {
    let tokenizer = runs_and_bytes(TokenizerKind::BytePairs);
    // Runs of 64 are the longest tokens, of letters as well as of spaces.
    let run = "a".repeat(64 << 20);
    assert!(!tokenizer.certainly_exceeds([run.as_str()].into_iter(), Tokens(1 << 20)));
    assert!(tokenizer.certainly_exceeds([run.as_str(), "a"].into_iter(), Tokens(1 << 20)));
    assert!(tokenizer.certainly_exceeds([" "; 65].into_iter(), Tokens(1)));
    drop(run);
    let text = "a ".repeat(8 << 20);
    let begun = Instant::now();
    assert!(tokenizer.encode_within(&text, SpecialTokens::Parse, Tokens(300_000)).is_err());
    let few = begun.elapsed();
    let begun = Instant::now();
    let all = tokenizer.encode(&text, SpecialTokens::Parse).len();
    let whole = begun.elapsed();
    assert!(all > 16 * 300_000, "{all} tokens");
    assert!(few * 4 < whole, "{few:?} for a small part of what takes {whole:?}");
}

/// Bytes without a token are not said: any number of them fits, and none of them hides what does not fit.
#[test]
fn tokenizer_counts_only_what_is_said() {
    let spec = runs(TokenizerKind::BytePairs);
    let tokenizer = Tokenizer::new(spec).expect("a vocabulary");
    let unsaid = "\u{4}".repeat(10_000);
    assert_eq!(tokenizer.encode_within(&unsaid, SpecialTokens::Parse, Tokens(1)), Ok(Vec::new()));
    let said = unsaid + &"a".repeat(10_000);
    assert!(tokenizer.certainly_exceeds([said.as_str()].into_iter(), Tokens(150)));
}
