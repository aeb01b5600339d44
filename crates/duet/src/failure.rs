//! How the program fails: one line on stderr and an exit status.
//!
//! Status 2 says that what was given is wrong (an argument, a file, a prompt that does not fit), 1 that running
//! failed. A reader of stdout that went away is no failure.

use duet_bench::load::LoadError as BenchLoadError;
use duet_bench::report::ReportError;
use duet_bench::throughput::ThroughputError;
use duet_engine::EngineError;
use duet_history::HistoryError;
use duet_kernels::isa::IsaError;
use duet_model::LoadError;
use duet_model::gguf::GgufError;
use duet_offload::switching::GraphProfileError;
use std::io::{self, Write};

use crate::bad_input::BadInput;
use crate::models::FetchError;

/// What is wrong with a file of prompts that `flag` named.
pub(crate) fn data_error(flag: &str, error: BenchLoadError) -> anyhow::Error {
    match error {
        BenchLoadError::WorkloadFile { file, problem } => {
            BadInput(format!("{flag} {}: {problem}", file.display())).into()
        }
        other => other.into(),
    }
}

/// Why there is no profile of graphs: `--graph-memory` that has no room for them is wrong input.
pub(crate) fn graph_profile_error(error: GraphProfileError) -> anyhow::Error {
    match error {
        GraphProfileError::Budget { .. } => BadInput(format!("--graph-memory: {error}")).into(),
        error => error.into(),
    }
}

/// Nobody reads stdout any more.
#[derive(Debug, thiserror::Error)]
#[error("stdout was closed")]
pub(crate) struct StdoutClosed;

/// Writes to stdout at once. A closed pipe becomes [`StdoutClosed`].
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(StdoutClosed.into()),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to stdout")),
    }
}

/// Tells the person what went wrong and returns what the parent process is told.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    if error.is::<StdoutClosed>() {
        return 0;
    }
    tell(error);
    status(error)
}

/// One line on stderr: what went wrong and, where that is not obvious, what to do.
pub(crate) fn tell(error: &anyhow::Error) {
    let advice = match error.downcast_ref::<EngineError>() {
        Some(EngineError::PromptTooLong { .. }) => "; shorten it, or raise --ctx as far as the model goes",
        Some(EngineError::OutOfMemory(_)) => "; lower --ctx, raise --kv-memory, or use --kv int4",
        _ => "",
    };
    // stderr may be closed too; then there is nobody left to tell.
    let _ = writeln!(io::stderr(), "error: {error:#}{advice}");
}

/// Replaces the backtrace of a bug by one line. The engine catches panics of its own threads and goes on, so the hook
/// only speaks; `main` decides the exit status.
pub(crate) fn explain_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("unknown cause");
        let place = panic.location().map(|place| format!(" ({place})")).unwrap_or_default();
        let _ =
            writeln!(io::stderr(), "error: internal error: {message}{place}; this is a bug in duet, please report it");
    }));
}

fn status(error: &anyhow::Error) -> u8 {
    let bad_input = error.chain().any(|cause| {
        cause.is::<BadInput>()
            || cause.is::<LoadError>()
            || cause.is::<GgufError>()
            || cause.is::<IsaError>()
            || cause.downcast_ref::<FetchError>().is_some_and(FetchError::is_bad_input)
            || cause.downcast_ref::<BenchLoadError>().is_some_and(BenchLoadError::is_bad_input)
            || cause.downcast_ref::<HistoryError>().is_some_and(HistoryError::is_bad_input)
            || cause.downcast_ref::<ReportError>().is_some_and(ReportError::is_bad_input)
            || matches!(
                cause.downcast_ref::<ThroughputError>(),
                Some(ThroughputError::Load(_) | ThroughputError::Context { .. })
            )
            || matches!(
                cause.downcast_ref::<EngineError>(),
                Some(
                    EngineError::EmptyPrompt
                        | EngineError::PromptTooLong { .. }
                        | EngineError::Parameter { .. }
                        | EngineError::Configuration(_)
                )
            )
    });
    if bad_input { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn what_was_given_wrong_is_2_and_what_failed_is_1() {
        let wrong = Err::<(), _>(BadInput("x".into())).context("while reading").unwrap_err();
        assert_eq!(status(&wrong), 2);
        assert_eq!(status(&EngineError::EmptyPrompt.into()), 2);
        assert_eq!(status(&ThroughputError::Context { tokens: 2, context: 1 }.into()), 2);
        assert_eq!(status(&BenchLoadError::NoPrompts { kind: "reactive" }.into()), 2);
        assert_eq!(status(&EngineError::ShuttingDown.into()), 1);
        assert_eq!(status(&ThroughputError::Lanes("x".into()).into()), 1);
        assert_eq!(status(&anyhow::anyhow!("disk full")), 1);
    }
}
