//! What the program says about itself, on stderr: warnings only, unless asked for more.

use crate::bad_input::BadInput;
use std::env;
use std::io::{IsTerminal, stderr};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging. `DUET_LOG` (`debug`, `duet_server=trace,info`) wins over `-v`.
pub(crate) fn start(verbose: u8) -> Result<(), BadInput> {
    let filter = match env::var("DUET_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ => filter_of(verbose).to_owned(),
    };
    let targets: Targets = filter
        .parse()
        .map_err(|error| BadInput(format!("DUET_LOG={filter}: {error}; use for example DUET_LOG=debug")))?;
    let layer = fmt::layer().with_writer(stderr).with_ansi(colors()).without_time();
    tracing_subscriber::registry().with(layer).with(targets).init();
    Ok(())
}

/// Whether stderr shows colours and the person wants them (<https://no-color.org>).
pub(crate) fn colors() -> bool {
    stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The libraries of networks and of MCP speak only from the highest level on: their details drown ours, and hold what
/// clients wrote.
fn filter_of(verbose: u8) -> &'static str {
    match verbose {
        0 => "warn",
        1 => "info,rmcp=warn",
        2 => "debug,rustls=info,ureq=info,ureq_proto=info,hyper=info,rmcp=warn,rustyline=info",
        _ => "trace",
    }
}
