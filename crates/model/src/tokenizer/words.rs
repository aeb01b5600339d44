//! Splitting text into words: the patterns of published tokenizers, scanned by hand.
//!
//! Each scanner says what its pattern says, alternative by alternative, in the order of the pattern.
//! They are written out because a backtracking engine may take quadratic time on `\s+(?!\S)` or give up at a limit,
//! while here every character is looked at a bounded number of times.
//! The words cover the text: nothing is dropped and nothing is changed.

use super::category::Category;

/// The pattern of GPT-2:
/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
///
/// The end of the word that begins at `begin`, which is not the end of `text`.
pub(super) fn gpt2_word(text: &str, begin: usize) -> usize {
    let at = Scan { text };
    if let Some(end) = at.contraction(begin, Case::Sensitive) {
        return end;
    }
    let body = if text.as_bytes()[begin] == b' ' { begin + 1 } else { begin };
    match at.category(body) {
        Some(Category::Letter) => at.skip(body, |c| c == Category::Letter),
        Some(Category::Number) => at.skip(body, |c| c == Category::Number),
        Some(Category::Whitespace) | None => at.spaces(begin),
        Some(_) => at.skip(body, is_punctuation),
    }
}

/// A family of patterns that began with cl100k:
///
/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// Where `'s` and the like are split off.
    pub(super) contractions: Contractions,
    /// What a run of letters is.
    pub(super) letters: Letters,
    /// How many digits stand together.
    pub(super) digits: usize,
    /// What a run of punctuation takes with it.
    pub(super) tail: Tail,
}

/// Where `'s` and the like are split off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contractions {
    /// Nowhere.
    None,
    /// They are words of their own.
    Apart,
    /// They end the word before them.
    WithWord,
}

/// What a run of letters is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    /// `\p{L}+`
    Plain,
    /// `[\p{L}\p{M}]+`
    WithMarks,
    /// A run in which no ASCII capital follows a small letter; other scripts have no case here (as in llama.cpp).
    ByCase,
}

/// What a run of punctuation takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing.
    None,
    /// The line ends after it.
    Newlines,
    /// The line ends and slashes after it.
    NewlinesAndSlashes,
}

impl Words {
    /// The end of the word that begins at `begin`, which is not the end of `text`.
    pub(super) fn word(&self, text: &str, begin: usize) -> usize {
        let at = Scan { text };
        if self.contractions == Contractions::Apart
            && let Some(end) = at.contraction(begin, Case::Ignored)
        {
            return end;
        }
        let Some(first) = at.char(begin) else { return text.len() };
        let category = Category::of(first);
        if let Some(end) = self.letters(&at, begin, first) {
            return end;
        }
        if category == Category::Number {
            return at.skip_at_most(begin, self.digits, |c| c == Category::Number);
        }
        let body = if first == ' ' { begin + 1 } else { begin };
        if at.category(body).is_some_and(|c| self.is_punctuation(c)) {
            let end = at.skip(body, |c| self.is_punctuation(c));
            return match self.tail {
                Tail::None => end,
                Tail::Newlines => at.skip_chars(end, |c| matches!(c, '\r' | '\n')),
                Tail::NewlinesAndSlashes => at.skip_chars(end, |c| matches!(c, '\r' | '\n' | '/')),
            };
        }
        let end = at.skip(begin, |c| c == Category::Whitespace);
        if end == begin {
            // No character is left without a word above; should one be, it is a word, so that scanning always goes on.
            return begin + first.len_utf8();
        }
        match text[begin..end].rfind(['\r', '\n']) {
            Some(newline) => begin + newline + 1,
            None => at.spaces(begin),
        }
    }

    /// `[^\r\n\p{L}\p{N}]?` and a run of letters.
    fn letters(&self, at: &Scan<'_>, begin: usize, first: char) -> Option<usize> {
        let is_letter =
            |c: Category| c == Category::Letter || (self.letters == Letters::WithMarks && c == Category::Mark);
        let category = Category::of(first);
        let run = if is_letter(category) {
            begin
        } else {
            let next = begin + first.len_utf8();
            let may_lead = !matches!(first, '\r' | '\n') && category != Category::Number;
            if !may_lead || !at.category(next).is_some_and(is_letter) {
                return None;
            }
            next
        };
        let end = match self.letters {
            Letters::ByCase => at.cased(run),
            Letters::Plain | Letters::WithMarks => at.skip(run, is_letter),
        };
        match self.contractions {
            Contractions::WithWord => Some(at.contraction(end, Case::Ignored).unwrap_or(end)),
            Contractions::None | Contractions::Apart => Some(end),
        }
    }

    fn is_punctuation(&self, category: Category) -> bool {
        is_punctuation(category) && !(self.letters == Letters::WithMarks && category == Category::Mark)
    }
}

/// `[^\s\p{L}\p{N}]`
fn is_punctuation(category: Category) -> bool {
    !matches!(category, Category::Whitespace | Category::Letter | Category::Number)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Sensitive,
    Ignored,
}

/// Looks at a text by byte positions, all of which are character borders.
struct Scan<'a> {
    text: &'a str,
}

impl Scan<'_> {
    fn char(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    fn category(&self, at: usize) -> Option<Category> {
        self.char(at).map(Category::of)
    }

    fn skip(&self, begin: usize, holds: impl Fn(Category) -> bool) -> usize {
        self.skip_chars(begin, |c| holds(Category::of(c)))
    }

    fn skip_at_most(&self, begin: usize, most: usize, holds: impl Fn(Category) -> bool) -> usize {
        let chars = self.text[begin..].chars();
        begin + chars.take(most).take_while(|&c| holds(Category::of(c))).map(char::len_utf8).sum::<usize>()
    }

    fn skip_chars(&self, begin: usize, holds: impl Fn(char) -> bool) -> usize {
        begin + self.text[begin..].find(|c| !holds(c)).unwrap_or(self.text.len() - begin)
    }

    /// `'s|'t|'re|'ve|'m|'ll|'d`
    fn contraction(&self, begin: usize, case: Case) -> Option<usize> {
        let bytes = &self.text.as_bytes()[begin..];
        let letter = |at: usize| match (bytes.get(at), case) {
            (Some(byte), Case::Ignored) => byte.to_ascii_lowercase(),
            (Some(&byte), Case::Sensitive) => byte,
            (None, _) => 0,
        };
        if letter(0) != b'\'' {
            return None;
        }
        match (letter(1), letter(2)) {
            (b's' | b't' | b'm' | b'd', _) => Some(begin + 2),
            (b'r' | b'v', b'e') | (b'l', b'l') => Some(begin + 3),
            _ => None,
        }
    }

    /// `\s+(?!\S)|\s+`: whitespace, but not the last of it when a word follows, which takes it as its own.
    fn spaces(&self, begin: usize) -> usize {
        let end = self.skip(begin, |c| c == Category::Whitespace);
        let last = self.text[begin..end].char_indices().next_back().map_or(0, |(last, _)| last);
        if end < self.text.len() && last > 0 { begin + last } else { end }
    }

    /// `U*W+|U+W*` where `U` is a letter that is not `a-z` and `W` one that is not `A-Z`.
    fn cased(&self, begin: usize) -> usize {
        let upper = |c: char| Category::of(c) == Category::Letter && !c.is_ascii_lowercase();
        let lower = |c: char| Category::of(c) == Category::Letter && !c.is_ascii_uppercase();
        let end = self.skip_chars(begin, upper);
        if self.char(end).is_some_and(lower) {
            return self.skip_chars(end, lower);
        }
        // `U*` gives letters back until `W+` has one: the last letter of the run that has no case.
        match self.text[begin..end].char_indices().rfind(|&(_, c)| lower(c)) {
            Some((last, c)) => begin + last + c.len_utf8(),
            None => end,
        }
    }
}
