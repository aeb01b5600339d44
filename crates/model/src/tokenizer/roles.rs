//! Which tokens end a generation, and the types that files get wrong.
//!
//! Files say little about their end tokens, so the well-known ones are found by their text, as llama.cpp does.
//! A token that ends a generation is always a control token afterwards, and so is the one that begins a text.

use duet_types::TokenId;

use super::spec::{TokenType, TokenizerSpec};

/// Tokens that end a generation wherever they exist.
const ENDS: [&str; 23] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|file_sep|>",
];

/// Tokens of code completion after which nothing sensible follows. Of each list, the first that exists.
const ENDS_OF_INFILL: [&[&str]; 2] = [
    &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
];

/// Other tokens of code completion that some files call text.
const INFILL: [&str; 23] = [
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
];

/// The type of each token after correction, and the tokens that end a generation, in order.
pub(super) fn assign(spec: &TokenizerSpec) -> (Vec<TokenType>, Vec<TokenId>) {
    let mut types: Vec<TokenType> = if spec.types.is_empty() {
        vec![TokenType::Normal; spec.tokens.len()]
    } else {
        spec.types.iter().copied().map(TokenType::from_number).collect()
    };
    let mut ends: Vec<TokenId> = [spec.eos, spec.eot, spec.eom].into_iter().flatten().collect();
    for id in ends.iter().copied().chain(spec.bos) {
        set(&mut types, id, TokenType::Control);
    }
    let mut infill_ends: [Option<(usize, TokenId)>; 2] = [None; 2];
    let mut harmony = Harmony::default();
    let mut sentence_end = None;

    for (text, id) in spec.tokens.iter().zip(0..) {
        // Every token of the lists begins with one of these, and few others do.
        if !text.starts_with(['<', '[', '_', '▁']) {
            continue;
        }
        let (text, id) = (text, TokenId(id));
        if ENDS.contains(&text) {
            ends.push(id);
        }
        if ENDS.contains(&text) || INFILL.contains(&text) {
            set(&mut types, id, TokenType::Control);
        }
        for (first, names) in infill_ends.iter_mut().zip(ENDS_OF_INFILL) {
            if let Some(rank) = names.iter().position(|&name| name == text)
                && first.is_none_or(|(best, _)| rank < best)
            {
                *first = Some((rank, id));
            }
        }
        harmony.see(text, id);
        if text == "</s>" {
            sentence_end = Some(id);
        }
    }
    for (_, id) in infill_ends.into_iter().flatten() {
        ends.push(id);
        set(&mut types, id, TokenType::Control);
    }
    // In these vocabularies `<|end|>` ends a message in the middle of a turn.
    if let Some(end) = harmony.end_of_message() {
        ends.retain(|&id| id != end);
    }
    // Gemma 4 has `</s>` as an HTML tag.
    if harmony.tool_response
        && let Some(id) = sentence_end
    {
        ends.retain(|&end| end != id);
        set(&mut types, id, TokenType::Normal);
    }
    ends.sort_unstable();
    ends.dedup();
    (types, ends)
}

fn set(types: &mut [TokenType], id: TokenId, to: TokenType) {
    if let Some(token_type) = types.get_mut(id.0 as usize) {
        *token_type = to;
    }
}

/// Which of the telling tokens the vocabulary has.
#[derive(Default)]
struct Harmony {
    returns: bool,
    calls: bool,
    flush: bool,
    tool_response: bool,
    end: Option<TokenId>,
}

impl Harmony {
    fn see(&mut self, text: &str, id: TokenId) {
        match text {
            "<|return|>" => self.returns = true,
            "<|call|>" | "<|calls|>" => self.calls = true,
            "<|flush|>" => self.flush = true,
            "<|tool_response>" => self.tool_response = true,
            "<|end|>" => self.end = Some(id),
            _ => {}
        }
    }

    fn end_of_message(&self) -> Option<TokenId> {
        self.end.filter(|_| self.calls && (self.returns || self.flush))
    }
}
