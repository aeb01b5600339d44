//! Byte-level byte-pair encoding: a word begins as its bytes, and the pair with the lowest rank joins, until none is left.
//!
//! Of equal ranks, the leftmost joins first. O(n log n) in the length of the word, whatever it holds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use duet_types::TokenId;
use hashbrown::HashMap;

use super::TokenizerError;
use super::alphabet::spell;
use super::chain::Chain;
use super::pretokenizer::PreTokenizer;
use super::reach::Reach;
use super::spec::TokenizerSpec;
use super::vocabulary::Vocabulary;

/// The merges of a vocabulary. Ids here are those of [`Vocabulary`], extra ids included.
#[derive(Debug)]
pub(super) struct BytePairs {
    pre: PreTokenizer,
    /// What two neighbours become, and how early.
    merges: HashMap<(u32, u32), Merge>,
    /// The id that each byte begins as.
    bytes: [u32; 256],
}

#[derive(Clone, Copy, Debug)]
struct Merge {
    rank: u32,
    result: u32,
}

/// Memory that words share. A heap entry is `(rank, left place, left id, right id)`: it is stale when either id changed.
#[derive(Debug, Default)]
struct Scratch {
    chain: Chain,
    queue: BinaryHeap<Reverse<(u32, usize, u32, u32)>>,
}

impl BytePairs {
    /// Reads the merges of `spec`; adds to `vocabulary` the strings that only merges know.
    pub(super) fn new(spec: &TokenizerSpec, vocabulary: &mut Vocabulary) -> Result<Self, TokenizerError> {
        let name = spec.pre.as_deref();
        let pre = PreTokenizer::named(name)
            .ok_or_else(|| TokenizerError::PreTokenizer(name.unwrap_or_default().to_owned()))?;
        let bytes = std::array::from_fn(|byte| vocabulary.find_or_add(&[byte as u8]));
        let mut merges = HashMap::with_capacity(spec.merges.len());
        let mut joined = Vec::new();
        for (merge, rank) in spec.merges.iter().zip(0..) {
            // A merge of anything that is not in the byte alphabet can never apply.
            let Some((left, right)) = split_merge(merge) else { continue };
            joined.clear();
            let Some(()) = spell(left, &mut joined) else { continue };
            let middle = joined.len();
            let Some(()) = spell(right, &mut joined) else { continue };
            let pair = (vocabulary.find_or_add(&joined[..middle]), vocabulary.find_or_add(&joined[middle..]));
            let result = vocabulary.find_or_add(&joined);
            merges.entry(pair).or_insert(Merge { rank, result });
        }
        Ok(Self { pre, merges, bytes })
    }

    /// Appends the tokens of `text`, which has no special tokens. Breaks off after the first word with which there are
    /// more than `most` in all.
    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        most: usize,
        tokens: &mut Vec<TokenId>,
    ) -> ControlFlow<()> {
        let mut scratch = Scratch::default();
        self.pre.split(text, |word| {
            let whole = if self.pre.ignore_merges { vocabulary.find(word.as_bytes()) } else { None };
            match whole.filter(|&id| (id as usize) < vocabulary.len()) {
                Some(id) => tokens.push(TokenId(id)),
                None => self.encode_word(vocabulary, word.as_bytes(), &mut scratch, tokens),
            }
            if tokens.len() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    /// How much text one token can stand for.
    pub(super) fn reach(&self, vocabulary: &Vocabulary) -> Reach {
        Reach::of_bytes(vocabulary, |byte| (self.bytes[usize::from(byte)] as usize) < vocabulary.len())
    }

    fn encode_word(&self, vocabulary: &Vocabulary, word: &[u8], scratch: &mut Scratch, tokens: &mut Vec<TokenId>) {
        let Scratch { chain, queue } = scratch;
        chain.reset(word.iter().map(|&byte| self.bytes[usize::from(byte)]));
        queue.clear();
        queue.extend(
            (1..word.len())
                .filter_map(|right| self.candidate(right - 1, chain.id(right - 1), chain.id(right)).map(Reverse)),
        );
        while let Some(Reverse((_, left, left_id, right_id))) = queue.pop() {
            let Some(right) = chain.next(left) else { continue };
            if chain.id(left) != left_id || chain.id(right) != right_id {
                continue;
            }
            let Some(merge) = self.merges.get(&(left_id, right_id)) else { continue };
            chain.join(left, right, merge.result);
            if let Some(before) = chain.previous(left) {
                queue.extend(self.candidate(before, chain.id(before), merge.result).map(Reverse));
            }
            if let Some(after) = chain.next(left) {
                queue.extend(self.candidate(left, merge.result, chain.id(after)).map(Reverse));
            }
        }
        for id in chain.ids() {
            self.emit(vocabulary, id, tokens);
        }
    }

    fn candidate(&self, left: usize, left_id: u32, right_id: u32) -> Option<(u32, usize, u32, u32)> {
        self.merges.get(&(left_id, right_id)).map(|merge| (merge.rank, left, left_id, right_id))
    }

    /// A string that only merges know is said byte by byte; a byte that the vocabulary lacks is not said.
    fn emit(&self, vocabulary: &Vocabulary, id: u32, tokens: &mut Vec<TokenId>) {
        if (id as usize) < vocabulary.len() {
            tokens.push(TokenId(id));
            return;
        }
        let bytes = vocabulary.bytes(id).iter().map(|&byte| self.bytes[usize::from(byte)]);
        tokens.extend(bytes.filter(|&byte| (byte as usize) < vocabulary.len()).map(TokenId));
    }
}

/// The sides of a merge. The first character may itself be a space in careless files.
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}
