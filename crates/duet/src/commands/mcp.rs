//! `duet mcp`: an MCP server on stdin and stdout, until stdin closes.
//!
//! Clients start this program themselves and give up on one that is silent, so the protocol is answered at once and calls
//! wait for the model.

use crate::cli::{DraftArgs, McpArgs};
use crate::mcp::AgentTools;
use crate::progress::eprintln_quiet;
use crate::session;
use anyhow::Context;
use duet_server::EngineBackend;
use rmcp::service::{QuitReason, ServerInitializeError, ServiceExt};
use rmcp::transport::io::stdio;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) fn mcp(arguments: &McpArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // The cores belong to the engine; the protocol needs little.
        .worker_threads(PROTOCOL_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
        .context("cannot start the threads of the protocol")?;
    let ended = runtime.block_on(serve(arguments));
    // A read of stdin cannot be taken back, and nobody wants a model any more that is still loading.
    runtime.shutdown_background();
    ended
}

const PROTOCOL_THREADS: usize = 2;
/// One reads stdin, one writes stdout, one loads the model; the others make prompts.
const BLOCKING_THREADS_MAX: usize = 6;

async fn serve(arguments: &McpArgs) -> anyhow::Result<()> {
    let (model, engine, device) = (arguments.model.clone(), arguments.engine.clone(), arguments.device.clone());
    let loading =
        tokio::task::spawn_blocking(move || session::start(&model, &engine, (&device, &DraftArgs::default()), None));
    let (ready, backend) = watch::channel(None);
    let mut speaking = std::pin::pin!(speak(AgentTools::new(backend)));
    let engine = tokio::select! {
        ended = &mut speaking => return ended,
        loaded = loading => loaded.context("loading the model failed")??,
    };
    eprintln_quiet(&format!("{} takes work over MCP", engine.model().config().name));
    ready.send_replace(Some(Arc::new(EngineBackend::new(engine))));
    speaking.await
}

/// Answers until stdin closes. Calls that are under way then have the SDK's few seconds to end, and are cancelled.
async fn speak(tools: AgentTools) -> anyhow::Result<()> {
    let running = match tools.serve(stdio()).await {
        Ok(running) => running,
        // A client that went away before it said anything is no failure.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(anyhow::Error::new(error).context("the client does not speak MCP")),
    };
    match running.waiting().await.context("the MCP server failed")? {
        QuitReason::JoinError(error) => Err(anyhow::Error::new(error).context("the MCP server failed")),
        _ => Ok(()),
    }
}
