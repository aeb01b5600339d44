//! How each family of byte-pair vocabularies splits text into words (`tokenizer.ggml.pre`).
//!
//! Merges never cross the border of a word, so a wrong split is a wrong encoding, quietly. A name that is not in the
//! table is therefore an error and never a guess.

use super::category::Category;
use super::words::{Contractions, Letters, Tail, Words, gpt2_word};
use std::ops::ControlFlow;

/// A way of splitting, and the habits of the vocabularies that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreTokenizer {
    /// Each splits what the one before it left.
    stages: &'static [Stage],
    /// A word that is a token becomes that token, whatever the merges would make of it.
    pub(super) ignore_merges: bool,
    /// Whether a prompt begins with `bos` when the file does not say.
    pub(super) add_bos: bool,
}

/// One step of splitting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Cuts out `\p{N}{1,n}`.
    Numbers(usize),
    /// Cuts out `[0-9][0-9][0-9]`.
    DigitTriples,
    /// Cuts out `[\p{P}$+<=>^~|]+`, and with it the backtick or not.
    Punctuation { backtick: bool },
    /// `[^\n]+|[\n]+`
    Lines,
    /// The pattern of GPT-2.
    Gpt2,
    /// A pattern of the cl100k family.
    Words(Words),
}

impl PreTokenizer {
    /// The splitting with this name in model files.
    pub(super) fn named(name: Option<&str>) -> Option<Self> {
        let plain = |stages| Self { stages, ignore_merges: false, add_bos: false };
        let whole_words = |stages| Self { stages, ignore_merges: true, add_bos: true };
        Some(match name.unwrap_or("default") {
            "" | "default" => plain(&[
                Stage::Punctuation { backtick: false },
                Stage::Gpt2,
                Stage::Numbers(usize::MAX),
                Stage::DigitTriples,
            ]),
            "falcon" => plain(&[Stage::Punctuation { backtick: true }, Stage::Gpt2, Stage::DigitTriples]),
            "gpt-2" | "phi-2" | "mpt" | "olmo" | "jais" | "trillion" | "granite-docling" | "exaone4" | "gigachat"
            | "mellum" | "a.x-4.0" | "modern-bert" => plain(&[Stage::Gpt2]),
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
                plain(&[Stage::Numbers(1), Stage::Gpt2])
            }
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" => {
                whole_words(&[Stage::Words(LLAMA3)])
            }
            "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => plain(&[Stage::Words(LLAMA3)]),
            "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "hunyuan" | "megrez" | "kormo" | "grok-2" | "solar-open"
            | "bailingmoe" | "bailingmoe2" | "llada-moe" => plain(&[Stage::Words(QWEN2)]),
            "qwen35" => plain(&[Stage::Words(Words { letters: Letters::WithMarks, ..QWEN2 })]),
            "seed-coder" => plain(&[Stage::Words(Words { tail: Tail::None, ..QWEN2 })]),
            "ufakzeka" => plain(&[Stage::Words(Words { contractions: Contractions::None, ..QWEN2 })]),
            "laguna" => plain(&[Stage::Lines, Stage::Words(QWEN2)]),
            "minicpm5" => Self {
                stages: &[Stage::Numbers(3), Stage::Words(Words { digits: usize::MAX, ..LLAMA3 })],
                ignore_merges: true,
                add_bos: false,
            },
            "tekken" => whole_words(&[Stage::Words(TEKKEN)]),
            "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" => {
                plain(&[Stage::Words(Words { contractions: Contractions::WithWord, digits: 3, ..TEKKEN })])
            }
            _ => return None,
        })
    }

    /// Calls `word` with each word of `text`, in order, until it breaks off. Linear in the text.
    pub(super) fn split<'a>(&self, text: &'a str, mut word: impl FnMut(&'a str) -> ControlFlow<()>) -> ControlFlow<()> {
        split_stages(self.stages, text, &mut word)
    }
}

const LLAMA3: Words =
    Words { contractions: Contractions::Apart, letters: Letters::Plain, digits: 3, tail: Tail::Newlines };

const QWEN2: Words = Words { digits: 1, ..LLAMA3 };

const TEKKEN: Words =
    Words { contractions: Contractions::None, letters: Letters::ByCase, digits: 1, tail: Tail::NewlinesAndSlashes };

/// The depth of the recursion is the number of stages, four at most.
fn split_stages<'a>(
    stages: &[Stage],
    text: &'a str,
    word: &mut dyn FnMut(&'a str) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some((stage, rest)) = stages.split_first() else { return word(text) };
    let mut begin = 0;
    while begin < text.len() {
        let end = stage.end(text, begin);
        split_stages(rest, &text[begin..end], word)?;
        begin = end;
    }
    ControlFlow::Continue(())
}

impl Stage {
    /// The end of the part that begins at `begin`; always after it.
    fn end(self, text: &str, begin: usize) -> usize {
        match self {
            Self::Gpt2 => gpt2_word(text, begin),
            Self::Words(words) => words.word(text, begin),
            Self::Numbers(most) => cut(text, begin, most, |c| Category::of(c) == Category::Number),
            Self::Punctuation { backtick } => cut(text, begin, usize::MAX, |c| match c {
                '$' | '+' | '<' | '=' | '>' | '^' | '~' | '|' => true,
                '`' => backtick,
                _ => Category::of(c) == Category::Punctuation,
            }),
            Self::Lines => cut(text, begin, usize::MAX, |c| c == '\n'),
            Self::DigitTriples => {
                let bytes = text.as_bytes();
                let is_triple = |at: &[u8]| at.iter().all(u8::is_ascii_digit);
                if bytes[begin..].get(..3).is_some_and(is_triple) {
                    return begin + 3;
                }
                // The first byte of a triple is ASCII and so a character border.
                let next = bytes[begin..].windows(3).position(is_triple);
                next.map_or(text.len(), |next| begin + next)
            }
        }
    }
}

/// The end of a run of at most `most` characters that match, or of the characters before the first that does.
fn cut(text: &str, begin: usize, most: usize, matches: impl Fn(char) -> bool) -> usize {
    let rest = &text[begin..];
    let run: usize = rest.chars().take(most).take_while(|&c| matches(c)).map(char::len_utf8).sum();
    if run > 0 {
        return begin + run;
    }
    rest.find(matches).map_or(text.len(), |next| begin + next)
}
