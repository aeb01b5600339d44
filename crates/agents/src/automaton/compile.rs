//! A grammar to a matcher, within limits.

use super::brief::brief;
use super::vocabulary::Shared;
use crate::grammar::{Blame, Grammar};
use crate::refused::Refused;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Logger, Matcher};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How much work and memory one grammar may cost. All numbers are counts of the parser's own things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes of expressions when a grammar is compiled: some 20 a microsecond.
    pub compile_nodes: u64,
    /// Symbols of a grammar.
    pub symbols: usize,
    /// Nodes of expressions for one mask: some 15 a microsecond.
    pub mask_nodes: u64,
    /// Items of the parser for one mask: some 20 a microsecond.
    pub mask_items: usize,
    /// States of the lexer, each of one or two kilobytes.
    pub states: usize,
    /// Time for the first mask, and what the grammar forces before it.
    pub first_mask: Duration,
}

impl Default for Limits {
    /// At most some hundred milliseconds to compile, some milliseconds for a mask, some hundred megabytes.
    fn default() -> Self {
        Self {
            compile_nodes: 2_000_000,
            symbols: 500_000,
            mask_nodes: 200_000,
            mask_items: 50_000,
            states: 50_000,
            first_mask: Duration::from_secs(1),
        }
    }
}

/// Compiles a grammar, or says what is wrong with which part of it.
pub(super) fn matcher(vocabulary: &Shared, grammar: &Grammar, limits: Limits) -> Result<Matcher, Refused> {
    deep(|| match compiled(vocabulary, grammar.top_level(), limits) {
        Ok(matcher) => Ok(matcher),
        Err(reason) => Err(blamed(vocabulary, grammar, limits, reason)),
    })
}

fn compiled(vocabulary: &Shared, grammar: TopLevelGrammar, limits: Limits) -> Result<Matcher, String> {
    let parser = vocabulary.factory.create_parser_from_init_ext(
        GrammarInit::Serialized(grammar),
        Logger::new(0, 0),
        InferenceCapabilities::default(),
        parser_limits(limits),
    );
    let mut matcher = Matcher::new(parser).into_cancellable();
    // A grammar that nothing satisfies shows in its first mask.
    match matcher.get_error() {
        Some(error) => Err(error),
        None => within(limits.first_mask, &mut matcher).map(|()| matcher),
    }
}

/// Computes the first mask, in so much time: what an expression like `(a{1000}){1000}` forces is worked out state by state.
fn within(most: Duration, matcher: &mut Matcher) -> Result<(), String> {
    let cancel = matcher.cancellation_handle();
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        let watch = move || {
            if waiting.recv_timeout(most) == Err(RecvTimeoutError::Timeout)
                && let Some(cancel) = cancel
            {
                cancel.cancel();
            }
        };
        if std::thread::Builder::new().name("grammar-time".into()).spawn_scoped(scope, watch).is_err() {
            return Err("no thread to watch the time it takes".to_owned());
        }
        let computed = matcher.compute_mask_or_eos();
        drop(done);
        computed.map(|_| ()).map_err(|error| match matcher.is_cancelled() {
            true => format!("its beginning takes more than {} ms to work out", most.as_millis()),
            false => error.to_string(),
        })
    })
}

/// Whose mistake it is.
fn blamed(vocabulary: &Shared, grammar: &Grammar, limits: Limits, reason: String) -> Refused {
    for (part, blame) in grammar.parts_alone() {
        if let Err(reason) = compiled(vocabulary, part, limits) {
            return match blame {
                Blame::Schema { of } => Refused::Schema { of: of.to_owned(), reason: named(&brief(&reason)) },
                Blame::Grammar => Refused::Grammar { reason: brief(&reason) },
            };
        }
    }
    Refused::Grammar { reason: brief(&reason) }
}

/// What the compiler says of a schema, with the keyword that it is about.
fn named(reason: &str) -> String {
    let told = [
        ("oneOf constraints", "'oneOf' is not supported where more than one of its schemas may fit"),
        ("Failed to generate regex for", "'minimum' and 'maximum' this far from zero are not supported"),
        ("regex parse error", "its 'pattern' is no expression, or none that an answer can be held to"),
    ];
    match told.iter().find(|(begins, _)| reason.starts_with(begins)) {
        Some((_, named)) => (*named).to_owned(),
        None if reason.starts_with("patternProperty regexes") => {
            format!("'patternProperties' of which several may match one name are not supported: {reason}")
        }
        None => reason.to_owned(),
    }
}

fn parser_limits(limits: Limits) -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: limits.compile_nodes,
        max_grammar_size: limits.symbols,
        step_lexer_fuel: limits.mask_nodes,
        step_max_items: limits.mask_items,
        max_lexer_states: limits.states,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Runs `work` where it may nest as deep as the bounds of schemas and grammars let it.
fn deep<T: Send>(work: impl FnOnce() -> Result<T, Refused> + Send) -> Result<T, Refused> {
    let failed = |reason: String| Refused::Grammar { reason };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(failed("it cannot be compiled".to_owned()))),
            Err(error) => Err(failed(format!("no thread to compile it: {error}"))),
        }
    })
}

/// Address space, not memory: pages come when they are touched. A level of the compiler takes up to some ten kilobytes,
/// and there are no more than some thousand, by the bounds of schemas and grammars.
const STACK_BYTES: usize = 256 << 20;
