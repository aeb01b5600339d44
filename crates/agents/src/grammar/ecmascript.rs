//! Expressions of JSON Schema, which are JavaScript's, as the grammar's compiler reads them, which is as Rust's.
//!
//! What is told alike and means something else is told otherwise; what JavaScript has and the compiler has not (looking
//! around, back references) is left to the compiler to refuse.

/// An expression that matches no text that JavaScript's does not.
pub(super) fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut place = Place::Outside;
    while let Some(c) = chars.next() {
        match (c, place) {
            ('\\', _) => match chars.next() {
                Some('s') => out.push_str(&format!("[{SPACES}]")),
                Some('S') => out.push_str(&format!("[^{SPACES}]")),
                Some('c') if chars.peek().is_some_and(char::is_ascii_alphabetic) => {
                    let letter = chars.next().map_or(0, u32::from);
                    out.push_str(&format!("\\x{:02x}", letter & 0x1f));
                }
                Some(c) => out.extend(['\\', c]),
                None => out.push('\\'),
            },
            ('.', Place::Outside) => out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            ('[', Place::Outside) => {
                let negated = chars.next_if_eq(&'^').is_some();
                if chars.next_if_eq(&']').is_some() {
                    // No character, and any.
                    out.push_str(if negated { "(?s:.)" } else { r"[^\x{0}-\x{10FFFF}]" });
                } else {
                    out.push_str(if negated { "[^" } else { "[" });
                    place = Place::Class { before: c };
                }
            }
            (']', Place::Class { .. }) => {
                out.push(']');
                place = Place::Outside;
                continue;
            }
            // In a class these begin another one, or join two.
            ('[' | '&' | '~', Place::Class { .. }) => out.extend(['\\', c]),
            ('-', Place::Class { before: '-' }) => out.push_str("\\-"),
            _ => out.push(c),
        }
        if let Place::Class { before } = &mut place {
            *before = c;
        }
    }
    out
}

#[derive(Clone, Copy)]
enum Place {
    Outside,
    /// In a class, after this character.
    Class {
        before: char,
    },
}

/// What `\s` is: white space and line ends. Rust's has the next line (U+0085), and no byte order mark.
const SPACES: &str = r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";

#[cfg(test)]
mod tests {
    use super::{SPACES, translated};

    #[test]
    fn what_means_the_same_stays() {
        for pattern in ["", "^[a-z0-9_-]+$", r"^\d{2}\.\w*$", "[^a]", r"\p{L}", r"a\\b", "(a|b)?", "é"] {
            assert_eq!(translated(pattern), pattern);
        }
    }

    #[test]
    fn what_means_something_else_is_told_otherwise() {
        assert_eq!(translated(r"^\s$"), format!("^[{SPACES}]$"));
        assert_eq!(translated(r"[\Sa]"), format!("[[^{SPACES}]a]"));
        assert_eq!(translated(r"\cC\cc"), r"\x03\x03");
        assert_eq!(translated("a.[.]"), r"a[^\n\r\u{2028}\u{2029}][.]");
        assert_eq!(translated("[[a]b]"), r"[\[a]b]");
        assert_eq!(translated("[a&&b~~c]"), r"[a\&\&b\~\~c]");
        assert_eq!(translated("[+--]"), r"[+-\-]");
        assert_eq!(translated("[]|[^]"), r"[^\x{0}-\x{10FFFF}]|(?s:.)");
    }
}
