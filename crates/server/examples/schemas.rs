//! What answers that are held to a schema can be, without a model's mind: `… --example schemas -- MODEL.gguf WALKS SEED`.
//!
//! Reads lines `{"schema": …, "texts": ["…", …]}` and writes one for each:
//!
//! - `{"refused": "…"}`, as a client would be told;
//! - or `{"answers": […], "cut": N, "admitted": [true, …]}`: what so many random walks under the masks of the model's
//!   vocabulary wrote, how many of them did not come to an end, and which of the texts would be answers.
//!
//! A walk takes what closes something more often than chance would, so that it ends. `scripts/test-json-schemas.sh` holds
//! what comes out against the schemas.

use duet_agents::{Automaton, Grammar, Limits, ResponseFormat, Strictness, Thinking, TokenText, Turn, Vocabulary};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use duet_types::TokenId;
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, walks, seed] = arguments.as_slice() else { return Err("usage: schemas MODEL.gguf WALKS SEED".into()) };
    let model = Arc::new(Model::load(Path::new(model), &LoadOptions::default(), &mut |_| {})?);
    let walker = Walker::new(&model)?;
    let (walks, mut random) = (walks.parse::<u32>()?, Random(seed.parse()?));
    for line in stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        let told = walker.try_schema(&asked, walks, &mut random)?;
        writeln!(stdout(), "{told}")?;
    }
    Ok(())
}

struct Walker {
    model: Arc<Model>,
    vocabulary: Vocabulary,
    ends: Vec<TokenId>,
    /// Short tokens of nothing but what JSON is made of.
    structure: Vec<TokenId>,
    /// Those that may close what is open, and open nothing but strings.
    closing: Vec<TokenId>,
}

impl Walker {
    fn new(model: &Arc<Model>) -> Result<Self, Box<dyn Error>> {
        let tokenizer = model.tokenizer();
        let all: Vec<TokenId> = (0..tokenizer.vocabulary() as u32).map(TokenId).collect();
        let ends: Vec<TokenId> = all.iter().copied().filter(|token| tokenizer.is_end_of_generation(*token)).collect();
        let text = |token: &TokenId| match tokenizer.text_of_special(*token) {
            Some(name) => TokenText::Special(name.to_owned()),
            None => TokenText::Text(tokenizer.bytes(*token).to_vec()),
        };
        let spelled = Arc::clone(model);
        let spell = move |text: &str| spelled.tokenizer().encode(text, SpecialTokens::AsText);
        let vocabulary = Vocabulary::new(all.iter().map(text), &ends, spell)?;
        let of = |set: &[u8], length: usize| {
            let is_of =
                |bytes: &[u8]| (1..=length).contains(&bytes.len()) && bytes.iter().all(|byte| set.contains(byte));
            all.iter().copied().filter(|token| is_of(tokenizer.bytes(*token))).collect()
        };
        let (structure, closing) = (of(b"\"[]{},:0123456789-.truefalsn", 2), of(b"\"]}", 1));
        Ok(Self { model: Arc::clone(model), vocabulary, ends, structure, closing })
    }

    fn try_schema(&self, asked: &Value, walks: u32, random: &mut Random) -> Result<Value, Box<dyn Error>> {
        let answer = ResponseFormat::JsonSchema { schema: asked["schema"].clone(), strict: Strictness::Strict };
        let turn = Turn { calls: None, answer: &answer, thinking: Thinking::Off };
        let special = |name: &str| self.vocabulary.special(name);
        let started = duet_agents::constraint(&turn, &special)
            .map(|grammar| grammar.ok_or("a schema without a grammar"))
            .map(|grammar| grammar.map(|grammar| self.start(&grammar)));
        let automaton = match started {
            Err(refused) => return Ok(json!({"refused": refused.to_string()})),
            Ok(made) => match made? {
                Err(refused) => return Ok(json!({"refused": refused.to_string()})),
                Ok(automaton) => automaton,
            },
        };
        let answers: Vec<Option<String>> = (0..walks).map(|_| self.walk(automaton.fork(), random)).collect();
        let cut = answers.iter().filter(|answer| answer.is_none()).count();
        let texts = asked["texts"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let admitted: Vec<bool> = texts.map(|text| self.admits(automaton.fork(), text)).collect();
        let answers: Vec<String> = answers.into_iter().flatten().collect();
        Ok(json!({"answers": answers, "cut": cut, "admitted": admitted}))
    }

    fn start(&self, grammar: &Grammar) -> Result<Automaton, duet_agents::Refused> {
        Automaton::start(&self.vocabulary, grammar, Limits::default())
    }

    /// What was written, if it ended.
    fn walk(&self, mut automaton: Automaton, random: &mut Random) -> Option<String> {
        let mut written = Vec::new();
        for step in 0..STEPS_MAX {
            let mask = automaton.mask().ok()?.clone();
            let among = |tokens: &[TokenId]| tokens.iter().copied().filter(|token| mask.allows(*token)).collect();
            let hurries = step > HURRY;
            if !Vec::is_empty(&among(&self.ends)) && (random.below(3) == 0 || hurries || automaton.is_stopped()) {
                return Some(self.text(&written));
            }
            let all: Vec<TokenId> = mask.tokens().filter(|token| !self.ends.contains(token)).collect();
            let (closing, structure) = (among(&self.closing), among(&self.structure));
            let allowed = match (closing.is_empty(), structure.is_empty()) {
                (false, _) if hurries && random.below(8) > 0 => closing,
                (_, false) if hurries || random.below(2) == 0 => structure,
                _ => all,
            };
            let token = *allowed.get(random.below(allowed.len().max(1)))?;
            automaton.commit(token).ok()?;
            written.push(token);
        }
        None
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        let tokenizer = self.model.tokenizer();
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| tokenizer.bytes(*token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn admits(&self, mut automaton: Automaton, text: &str) -> bool {
        let tokens = self.model.tokenizer().encode(text, SpecialTokens::AsText);
        tokens.into_iter().all(|token| automaton.commit(token).is_ok()) && automaton.is_accepting()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// Tokens of a walk.
const STEPS_MAX: usize = 600;

/// Steps after which a walk takes what may close something wherever it can.
const HURRY: usize = 40;
