//! Texts become llama.cpp's tokens, and are as likely as llama.cpp says.

use crate::reference::{Digest, Digests, Shown, fixture, load, path, reference, wonderland};
use crate::sequence::{WINDOW, perplexity};
use duet_model::open_tokenizer;
use duet_model::tokenizer::{SpecialTokens, Tokenizer};
use duet_types::TokenId;
use serde::Deserialize;

/// Those of `tokenizer_smollm.json`, for their texts.
#[derive(Deserialize)]
struct Texts {
    fuzz: Text,
    cases: Vec<Text>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

const WAYS: [SpecialTokens; 2] = [SpecialTokens::AsText, SpecialTokens::Parse];

fn ids(tokenizer: &Tokenizer, text: &str, special: SpecialTokens) -> Vec<u32> {
    tokenizer.encode(text, special).into_iter().map(|token| token.0).collect()
}

/// FNV-1a, 64 bits, over the ids as little-endian numbers.
fn digests(tokenizer: &Tokenizer, text: &str) -> Digests {
    WAYS.map(|special| {
        let ids = ids(tokenizer, text, special);
        let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
        let hash =
            bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
        Digest { count: ids.len(), fnv: format!("{hash:016x}") }
    })
}

/// Every text's ids are llama.cpp's, with special tokens as text and parsed; the long ones decode to what they were.
pub(crate) fn have_the_tokens_of_llama_cpp(name: &str) {
    let reference = reference(name);
    let Some(path) = path(&reference) else { return };
    let (_, tokenizer) = open_tokenizer(&path).unwrap();
    let expected = reference.tokenizer;
    assert_eq!(tokenizer.vocabulary(), expected.vocabulary);
    for Shown { text, ids: as_text, parsed } in &expected.shown {
        assert_eq!(&ids(&tokenizer, text, SpecialTokens::AsText), as_text, "{text:?}");
        assert_eq!(&ids(&tokenizer, text, SpecialTokens::Parse), parsed, "{text:?}, parsed");
    }
    let Texts { fuzz, cases } = fixture("tokenizer_smollm.json");
    assert_eq!(cases.len(), expected.texts.len(), "one of the two scripts has to run again");
    let wrong =
        cases.iter().zip(&expected.texts).filter(|(case, expected)| digests(&tokenizer, &case.text) != **expected);
    let wrong: Vec<&str> = wrong.map(|(case, _)| &*case.text).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    for (text, expected) in [(&fuzz.text, &expected.fuzz), (&wonderland(), &expected.wonderland)] {
        assert_eq!(&digests(&tokenizer, text), expected);
    }
    let tokens = tokenizer.encode(&wonderland(), SpecialTokens::AsText);
    assert_eq!(tokenizer.decode(&tokens), wonderland());
}

/// Perplexity over so many windows is llama.cpp's, but for so small a part of it.
pub(crate) fn have_the_perplexity_of_llama_cpp(name: &str, windows: usize, part: f64) {
    let reference = reference(name);
    let Some(model) = load(&reference) else { return };
    let tokens = model.tokenizer().encode_prompt(&wonderland(), SpecialTokens::AsText);
    let begin = tokens.first().copied().filter(|&token| Some(token) == model.tokenizer().bos());
    let measured = perplexity(&model, tokens.chunks_exact(WINDOW).take(windows).map(|window| begun(window, begin)));
    let expected = reference.perplexity[&windows];
    eprintln!("{name}: perplexity over {windows} windows: {measured:.4}, llama.cpp {expected:.4}");
    assert!((measured / expected - 1.0).abs() < part, "{measured} against {expected}");
}

/// A model that wants a token before every text gets it in each window, in the place of the first one.
fn begun(window: &[TokenId], begin: Option<TokenId>) -> Vec<TokenId> {
    begin.into_iter().chain(window.iter().copied().skip(usize::from(begin.is_some()))).collect()
}
