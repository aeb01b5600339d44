//! The Jinja that chat templates are written in: Hugging Face's settings, on minijinja.

use std::sync::Arc;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};

use super::calendar::Calendar;
use super::error::Raised;
use super::python;

/// Where `strftime_now` takes its time from.
pub(super) type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Steps that a rendering may take. A conversation takes some hundred per message, so this is some three thousand
/// messages; a template in a loop holds its thread for a fraction of a second. It also bounds how deep values nest.
pub(super) const FUEL: u64 = 300_000;

/// Nesting of macros and blocks, in minijinja's measure. Its own default; more would not fit the stack of a thread.
const RECURSION: usize = 500;

/// An environment without templates.
pub(super) fn environment(clock: Clock) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, _, value| {
        let text = python::printed(value)?;
        out.write_str(&text).map_err(Error::from)
    });
    environment.add_filter("tojson", python::tojson);
    // For debugging templates, and able to print anything at any depth.
    environment.remove_filter("pprint");
    environment.remove_global("debug");
    environment.add_function("raise_exception", |words: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(words)))
    });
    environment.add_function("strftime_now", move |format: String| Calendar::new(clock()).format(&format));
    Ok(environment)
}

/// `source` without the tags `generation` and `endgeneration`, which mark text for training and render as nothing.
/// A condition that always holds takes their place, so that the whitespace around them is treated as around any tag.
pub(super) fn without_training_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        let (before, tag) = rest.split_at(begin);
        text.push_str(before);
        let Some(end) = tag.find("%}") else { return text + tag };
        let inside = &tag[2..end];
        let name = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        match name {
            "generation" => text.push_str(&format!("{{%{}%}}", inside.replace(name, "if true"))),
            "endgeneration" => text.push_str(&format!("{{%{}%}}", inside.replace(name, "endif"))),
            _ => text.push_str(&tag[..end + 2]),
        }
        rest = &tag[end + 2..];
    }
    text + rest
}
