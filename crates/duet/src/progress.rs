//! How far something long has come, on stderr: a bar for a person, a line at start and end for a log.

use duet_types::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// One thing in progress. Dropped without [`Self::finish`], it vanishes: the error says the rest.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    verb: &'static str,
    what: String,
    started: Instant,
    terminal: bool,
}

impl Progress {
    /// Something of a known size.
    pub(crate) fn bytes(verb: &'static str, what: &str, total: Bytes) -> Self {
        let style = ProgressStyle::with_template(
            "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
        );
        let bar = ProgressBar::new(total.0).with_style(style.expect("the template is valid"));
        Self::start(bar, verb, what, Some(total))
    }

    /// Something whose end is not known.
    pub(crate) fn spinner(verb: &'static str, what: &str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("the template is valid");
        Self::start(ProgressBar::new_spinner().with_style(style), verb, what, None)
    }

    /// Bytes done so far.
    pub(crate) fn set(&self, done: Bytes) {
        self.bar.set_position(done.0);
    }

    /// Done. `past` is the verb as it is told afterwards.
    pub(crate) fn finish(self, past: &str) {
        if !self.terminal {
            eprintln_quiet(&format!("{past} {} in {:.1} s", self.what, self.started.elapsed().as_secs_f64()));
        }
    }

    fn start(bar: ProgressBar, verb: &'static str, what: &str, total: Option<Bytes>) -> Self {
        let terminal = stderr().is_terminal();
        if terminal {
            bar.set_message(format!("{verb} {what}"));
            bar.enable_steady_tick(Duration::from_millis(100));
        } else {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
            let size = total.map(|total| format!(" ({total})")).unwrap_or_default();
            eprintln_quiet(&format!("{verb} {what}{size}"));
        }
        Self { bar, verb, what: what.to_owned(), started: Instant::now(), terminal }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        tracing::debug!(verb = self.verb, what = self.what, elapsed = ?self.started.elapsed());
    }
}

/// Like `eprintln!`, but a closed stderr is not worth a panic.
pub(crate) fn eprintln_quiet(line: &str) {
    use std::io::Write;
    let _ = writeln!(stderr(), "{line}");
}
