//! What a request asks for, as a grammar in `llguidance`'s dialect of Lark.
//!
//! Of a turn, reasoning comes first, if there is any; then calls or the answer. Where the model may choose, text is free
//! until it begins a call as its family does; from there on it can only write calls of the tools, with arguments that
//! fit their schemas, and end. The spellings are those of the families' templates, without freedom in whitespace: what
//! is certain can be forced, and models have seen nothing else.
//!
//! A mark is one special token in some vocabularies and text in others; which of them, the caller's lookup tells.

mod answer;
mod calls;
mod channels;
mod ecmascript;
mod finite;
mod gbnf;
mod pythonic;
mod reference;
mod rules;
mod schema;
mod walk;
mod xml;

use crate::format::ToolFormat;
use crate::reasoning::{Begins, ReasoningFormat};
use crate::refused::Refused;
use crate::tool::{Parallel, Tool, ToolChoice};
use calls::Beside;
use duet_types::TokenId;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use rules::Rules;
use serde_json::Value;

pub use answer::ResponseFormat;

/// What a turn of the model is held to.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// The tools, if there are any.
    pub calls: Option<Calls<'a>>,
    /// The form of an answer that is no call.
    pub answer: &'a ResponseFormat,
    /// The reasoning before.
    pub thinking: Thinking,
}

/// The calls that a turn may or must make.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    /// How the model writes them.
    pub format: ToolFormat,
    /// What may be called.
    pub tools: &'a [Tool],
    /// Whether it must.
    pub choice: &'a ToolChoice,
    /// How many.
    pub parallel: Parallel,
}

/// Whether reasoning may stand before the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// It may not.
    #[default]
    Off,
    /// It may, or must where the prompt ends inside of it.
    On(ReasoningFormat, Begins),
}

/// Which calls of a turn are certain to be calls once they have begun as the family's template spells them: a grammar
/// holds the model to them from there on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certain {
    /// None: nothing holds it.
    #[default]
    None,
    /// Those behind the family's mark. Others may become an answer of a form, or text.
    Marked,
    /// Those without a mark as well.
    Spelled,
}

impl Turn<'_> {
    /// Which calls are certain once they have begun, where the turn is held to [`constraint`].
    #[must_use]
    pub fn certain(&self) -> Certain {
        match self.calls {
            Some(calls) if *calls.choice != ToolChoice::None && !calls.tools.is_empty() => {
                let is_plain = *self.answer == ResponseFormat::Text && self.thinking == Thinking::Off;
                if is_plain { Certain::Spelled } else { Certain::Marked }
            }
            _ => Certain::None,
        }
    }
}

/// A grammar, checked as far as it can be without a vocabulary.
#[derive(Clone, Debug)]
pub struct Grammar {
    main: String,
    parts: Vec<Part>,
}

/// A grammar that the main one refers to by name.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    /// Whose it is, for messages.
    of: String,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Schema(Value),
    Lark(String),
}

/// The grammar of a turn; `None` if whatever the model writes is right. `special` gives the token of a special token's
/// text, if the vocabulary has it as one.
pub fn constraint(turn: &Turn<'_>, special: &dyn Fn(&str) -> Option<TokenId>) -> Result<Option<Grammar>, Refused> {
    let calls = turn.calls.filter(|calls| *calls.choice != ToolChoice::None);
    let calls = calls.filter(|calls| !(calls.tools.is_empty() && *calls.choice == ToolChoice::Auto));
    let mut rules = Rules::new(special);
    if let Thinking::On(ReasoningFormat::Channel, begins) = turn.thinking {
        let is_free = calls.is_none() && *turn.answer == ResponseFormat::Text;
        return if is_free { Ok(None) } else { channels::write(rules, calls.as_ref(), turn.answer, begins).map(Some) };
    }
    let body = match (calls, turn.answer) {
        (None, ResponseFormat::Text) => return Ok(None),
        (None, answer) => {
            answer.write(&mut rules)?;
            "answer"
        }
        (Some(calls), _) if *calls.choice != ToolChoice::Auto => {
            calls::write_required(&mut rules, &calls, Beside::Text)?;
            "calls"
        }
        (Some(calls), ResponseFormat::Text) => {
            calls::write_offered(&mut rules, &calls)?;
            "(calls | answer)"
        }
        (Some(calls), answer) => {
            calls::write_required(&mut rules, &calls, Beside::Form)?;
            answer.write(&mut rules)?;
            "(calls | answer)"
        }
    };
    let thoughts = match turn.thinking {
        Thinking::Off => "",
        Thinking::On(format, Begins::Inside) => {
            rules.until("thought", format.closing());
            "thought GAP? "
        }
        Thinking::On(format, Begins::Outside) => {
            rules.until("thought", format.closing());
            let opening = rules.mark(format.opening());
            rules.rule("thoughts", &format!("{opening} thought GAP?"));
            "thoughts? "
        }
    };
    if turn.thinking != Thinking::Off {
        rules.rule("GAP", r"/\s{1,4}/");
    }
    rules.rule("start", &format!("{thoughts}{body}"));
    Ok(Some(rules.into_grammar()))
}

impl Grammar {
    /// The main grammar, for logs.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.main
    }

    pub(crate) fn top_level(&self) -> TopLevelGrammar {
        let mut grammars = vec![GrammarWithLexer::from_lark(self.main.clone())];
        grammars.extend(self.parts.iter().map(Part::grammar));
        TopLevelGrammar { grammars, max_tokens: None }
    }

    /// Each part alone, to find the one that is wrong.
    pub(crate) fn parts_alone(&self) -> impl Iterator<Item = (TopLevelGrammar, Blame<'_>)> {
        self.parts.iter().map(|part| {
            let blame = match &part.source {
                Source::Schema(_) => Blame::Schema { of: &part.of },
                Source::Lark(_) => Blame::Grammar,
            };
            (TopLevelGrammar::from_grammar(part.grammar()), blame)
        })
    }
}

/// Whom a mistake belongs to.
pub(crate) enum Blame<'a> {
    Schema { of: &'a str },
    Grammar,
}

impl Part {
    fn grammar(&self) -> GrammarWithLexer {
        let grammar = match &self.source {
            Source::Schema(schema) => GrammarWithLexer::from_json_schema(schema.clone()),
            Source::Lark(lark) => GrammarWithLexer::from_lark(lark.clone()),
        };
        GrammarWithLexer { name: Some(self.name.clone()), ..grammar }
    }
}
