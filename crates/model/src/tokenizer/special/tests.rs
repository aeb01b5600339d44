//! Pieces against a plain search for one token after the other, and what finding them costs.

use super::*;
use proptest::prelude::*;

fn finder(tokens: &[(String, bool)]) -> Finder {
    let special =
        |((text, strips), id): (&(String, bool), u32)| Special { id: TokenId(id), len: text.len(), strips: *strips };
    Finder::new(tokens.iter().zip(0..).map(|token| (token.0.0.as_str(), special(token))).collect()).unwrap()
}

fn matcher(tokens: &[(String, bool)]) -> SpecialMatcher {
    SpecialMatcher { parsed: finder(tokens), always: finder(&[]) }
}

/// The definition: the longest token is cut out of all text, then the next, each from the left.
fn plain<'a>(text: &'a str, tokens: &[(String, bool)]) -> Vec<Piece<'a>> {
    let mut order: Vec<usize> = (0..tokens.len()).filter(|&id| !tokens[id].0.is_empty()).collect();
    order.sort_by_key(|&id| Reverse(tokens[id].0.len()));
    let mut pieces = if text.is_empty() { Vec::new() } else { vec![Piece::Text(text)] };
    for id in order {
        let mut next = Vec::new();
        for piece in pieces {
            let Piece::Text(mut rest) = piece else {
                next.push(piece);
                continue;
            };
            let (token, strips) = &tokens[id];
            while let Some(at) = rest.find(token) {
                next.extend((at > 0).then(|| Piece::Text(&rest[..at])));
                next.push(Piece::Special(TokenId(id as u32)));
                rest = &rest[at + token.len()..];
                if *strips {
                    rest = rest.trim_start_matches([' ', '\t', '\n', '\u{B}', '\u{C}', '\r']);
                }
            }
            next.extend((!rest.is_empty()).then_some(Piece::Text(rest)));
        }
        pieces = next;
    }
    pieces
}

#[test]
fn the_longer_wins_wherever_it_stands_and_shorter_ones_fill_what_is_left() {
    let tokens = ["ab", "bcd", "a", "cd", "d"].map(|text| (text.to_owned(), false));
    let special = |id| Piece::Special(TokenId(id));
    let pieces = matcher(&tokens).pieces("abcdxcdab", SpecialTokens::Parse);
    assert_eq!(pieces, [special(2), special(1), Piece::Text("x"), special(3), special(0)]);
    // `bcd` is not free at its beginning, `cd` is.
    let tokens = ["xxxb", "bcd", "cd"].map(|text| (text.to_owned(), false));
    assert_eq!(matcher(&tokens).pieces("xxxbcd", SpecialTokens::Parse), [special(0), special(2)]);
}

#[test]
fn text_from_outside_has_no_control_tokens() {
    let tokens = ["<s>".to_owned()].map(|text| (text, false));
    assert_eq!(matcher(&tokens).pieces("<s>", SpecialTokens::AsText), [Piece::Text("<s>")]);
}

/// As many as Gemma has, each in the text once and again: searching for each in turn looks at every piece for each.
#[test]
fn thousands_of_tokens_look_at_a_text_once() {
    let mut tokens: Vec<(String, bool)> = (0..6000).map(|n| (format!("<unused{n}>"), false)).collect();
    tokens.extend((1..32).map(|n| ("\n".repeat(n), false)));
    let finder = finder(&tokens);
    let all: String = tokens.iter().map(|(token, _)| format!("some text {token}")).collect();
    let text = all.repeat(4);
    let mut looks = 0;
    let cuts = finder.cuts(&text, &mut looks);
    assert_eq!(cuts.len(), 4 * tokens.len());
    // Every `<unused…>` ends at one place; line ends are tokens that end in each other.
    assert!(looks <= 4 * (6000 + 31 * 31), "{looks} looks for {} cuts", cuts.len());
    let lines = "\n".repeat(100_000);
    let mut looks = 0;
    finder.cuts(&lines, &mut looks);
    // Those that begin within the token before wait once more, as the next shorter one.
    assert!(looks <= 2 * lines.len(), "{looks} looks at {} line ends", lines.len());
}

#[test]
fn more_text_than_any_vocabulary_has_is_refused() {
    let texts: Vec<String> = (0..42).map(|n: u32| "x".repeat(99_998) + &format!("{n:02}")).collect();
    let special = |(text, id): (&String, u32)| Special { id: TokenId(id), len: text.len(), strips: false };
    let tokens = texts.iter().zip(0..).map(|token| (token.0.as_str(), special(token))).collect();
    let error = Finder::new(tokens).unwrap_err().to_string();
    assert_eq!(error, "the special tokens have 4200000 bytes of text, more than the 4194304 that duet allows");
}

/// Few letters, so that tokens overlap, repeat and end in each other.
fn texts(len: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", " ", "\n", "é", "aa"]), 0..len)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8192))]

    #[test]
    fn pieces_are_those_of_a_search_for_each_token_in_turn(
        tokens in prop::collection::vec((texts(5), any::<bool>()), 0..8),
        text in texts(30),
    ) {
        prop_assert_eq!(matcher(&tokens).pieces(&text, SpecialTokens::Parse), plain(&text, &tokens));
    }
}
