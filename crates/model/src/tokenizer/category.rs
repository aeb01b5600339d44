//! What a character counts as when text is split into words.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// The classes that the word patterns of published tokenizers tell apart. Every character has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    /// `\p{L}`
    Letter,
    /// `\p{N}`
    Number,
    /// `\p{M}`
    Mark,
    /// `\p{P}`
    Punctuation,
    /// `\s`: the Unicode property White_Space, which is wider than the category Z.
    Whitespace,
    /// Symbols, controls and everything else.
    Other,
}

impl Category {
    /// The class of a character. ASCII is decided without a table, because most text is ASCII.
    pub(super) fn of(character: char) -> Self {
        match character {
            'a'..='z' | 'A'..='Z' => Self::Letter,
            ' ' | '\t'..='\r' => Self::Whitespace,
            '0'..='9' => Self::Number,
            '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~' => Self::Other,
            '!'..='~' => Self::Punctuation,
            '\0'..='\x7F' => Self::Other,
            _ => Self::of_wide(character),
        }
    }

    fn of_wide(character: char) -> Self {
        if character.is_whitespace() {
            return Self::Whitespace;
        }
        match character.general_category_group() {
            GeneralCategoryGroup::Letter => Self::Letter,
            GeneralCategoryGroup::Number => Self::Number,
            GeneralCategoryGroup::Mark => Self::Mark,
            GeneralCategoryGroup::Punctuation => Self::Punctuation,
            _ => Self::Other,
        }
    }
}
