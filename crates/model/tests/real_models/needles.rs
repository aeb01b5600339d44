//! A fact in a long prompt is found again.

use crate::reference::{load, reference};
use crate::sequence::Sequence;
use duet_model::Model;
use duet_model::kv::KvFormat;
use duet_model::template::{ChatMessage, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_types::{TokenId, Tokens};

/// What is hidden, and where, in percent of the text.
const NEEDLES: [Needle; 3] = [
    Needle { town: "Basel", code: "7391", depth: 12 },
    Needle { town: "Lugano", code: "2846", depth: 50 },
    Needle { town: "Geneva", code: "5107", depth: 88 },
];

struct Needle {
    town: &'static str,
    code: &'static str,
    depth: usize,
}

const ANIMALS: [&str; 7] = ["heron", "badger", "fox", "goat", "marten", "owl", "trout"];
const PLACES: [&str; 5] = ["the old mill", "the upper lake", "the quarry", "the railway bridge", "the orchard"];
const DEEDS: [&str; 6] = ["rested", "was seen", "found shelter", "waited for rain", "lost its way", "slept"];
const HOURS: [&str; 4] = ["at dawn", "before noon", "in the evening", "after midnight"];

/// A report that no other sentence repeats.
fn filler(day: usize) -> String {
    let of = |words: &[&'static str], every: usize| words[day / every % words.len()];
    format!("On day {day} a {} {} near {} {}. ", of(&ANIMALS, 1), of(&DEEDS, 1), of(&PLACES, 1), of(&HOURS, 1))
}

fn hidden(needle: &Needle) -> String {
    format!("The door code of the office in {} is {}. ", needle.town, needle.code)
}

fn question(needle: &Needle) -> String {
    format!("What is the door code of the office in {}? Answer with the code alone.", needle.town)
}

/// Reports with the needles among them: so many tokens, and a few more.
fn text(model: &Model, length: Tokens) -> String {
    let tokens = |text: &str| model.tokenizer().encode(text, SpecialTokens::AsText).len();
    // Counted of a text as a whole: a sentence alone has a token more than among others.
    let each = tokens(&reports(100)) / 100;
    let first = length.as_usize() / each.max(1);
    (first..).step_by(10).map(reports).find(|text| tokens(text) >= length.as_usize()).expect("a text may be long")
}

/// The reports of so many days.
fn reports(days: usize) -> String {
    let mut text = String::from("Read these reports.\n\n");
    for day in 1..=days {
        text += &filler(day);
        for needle in NEEDLES.iter().filter(|needle| days * needle.depth / 100 == day) {
            text += &hidden(needle);
        }
    }
    text
}

/// The tokens of the answer to a question about a text.
fn prompt(model: &Model, text: &str, needle: &Needle) -> Vec<TokenId> {
    let message = ChatMessage::new("user", format!("{text}\n\n{}", question(needle)));
    let rendered = model.template().render(&[message], None, Turn::Generate).unwrap();
    model.tokenizer().encode_prompt(&rendered, SpecialTokens::Parse)
}

/// Answers of more tokens hold no code.
const ANSWER_MAX: usize = 16;

/// Which needles are found in a text of about so many tokens: the text is read once, and asked about once for each.
fn found(model: &Model, length: Tokens, format: KvFormat) -> Vec<&'static str> {
    let text = text(model, length);
    let prompts = NEEDLES.map(|needle| prompt(model, &text, &needle));
    let longest = prompts.iter().map(Vec::len).max().unwrap();
    let shared = (0..).take_while(|&at| prompts.iter().all(|prompt| prompt.get(at) == prompts[0].get(at))).count();
    eprintln!("{longest} tokens, of which all questions share {shared}");
    assert!(shared as u32 >= length.0, "the text is shorter than {length:?}");
    let mut sequence = Sequence::new(model, format, Tokens((longest + ANSWER_MAX) as u32));
    sequence.feed(&prompts[0][..shared], |_| false);
    let answers = NEEDLES.iter().zip(&prompts).map(|(needle, prompt)| {
        sequence.truncate(Tokens(shared as u32));
        let answer = answer(model, &mut sequence, &prompt[shared..]);
        eprintln!("{format:?}, {}: {answer:?}, expected {}", needle.town, needle.code);
        (needle, answer)
    });
    let right = answers.filter(|(needle, answer)| answer.contains(needle.code));
    right.map(|(needle, _)| needle.town).collect()
}

fn answer(model: &Model, sequence: &mut Sequence<'_>, question: &[TokenId]) -> String {
    let (mut next, mut answer) = (question.to_vec(), Vec::new());
    for _ in 0..ANSWER_MAX {
        let last = next.len() - 1;
        sequence.feed(&next, |row| row == last);
        let token = sequence.best();
        if model.tokenizer().is_end_of_generation(token) {
            break;
        }
        answer.push(token);
        next = vec![token];
    }
    model.tokenizer().decode(&answer)
}

/// Every needle of these towns is found.
pub(crate) fn are_found(name: &str, length: Tokens, format: KvFormat, towns: &[&str]) {
    let Some(model) = load(&reference(name)) else { return };
    let found = found(&model, length, format);
    let lost: Vec<&&str> = towns.iter().filter(|town| !found.contains(town)).collect();
    assert!(lost.is_empty(), "not found: {lost:?}");
}
