//! `duet bench agents`: what agents get of this server, or of another one.

use crate::bad_input::BadInput;
use crate::cli::{AgentsArgs, DraftArgs};
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::session;
use anyhow::Context;
use duet_bench::agents::{self, Agents, AgentsError, Settings};
use duet_server::{EngineBackend, ServerConfig, serve};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(super) fn agents(arguments: &AgentsArgs) -> anyhow::Result<()> {
    let measured = match &arguments.url {
        Some(url) => measure(arguments, url.clone())?,
        None => with_server(arguments)?,
    };
    print(&if arguments.json { serde_json::to_string(&measured)? + "\n" } else { page(&measured) })
}

fn measure(arguments: &AgentsArgs, url: String) -> anyhow::Result<Agents> {
    let settings = Settings { url, file: arguments.workload.clone(), limit: arguments.limit };
    agents::run(&settings, &|what| eprintln_quiet(&format!("bench: {what}"))).map_err(|error| match error {
        AgentsError::Task(error) => BadInput(error.to_string()).into(),
        error @ AgentsError::Server { .. } => anyhow::Error::new(error),
    })
}

/// Measures a server of this process, on a port of its own: what is measured comes over HTTP as from any other.
fn with_server(arguments: &AgentsArgs) -> anyhow::Result<Agents> {
    let engine = session::start(&arguments.model, &arguments.engine, (&arguments.device, &DraftArgs::default()), None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no HTTP threads")?;
    let listener = runtime.block_on(TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
    let url = format!("http://{}", listener.local_addr()?);
    let (stop, stopped) = oneshot::channel::<()>();
    let config = ServerConfig { loopback_only: true, ..ServerConfig::default() };
    let serving = runtime.spawn(serve(listener, Arc::new(EngineBackend::new(engine)), config, async {
        // Dropped or sent, it is over.
        let _ = stopped.await;
    }));
    let measured = measure(arguments, url);
    drop(stop);
    runtime.block_on(serving).context("the server")??;
    measured
}

fn page(measured: &Agents) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut page = format!(
        "{}, {} prompts\n\
         calls     {} valid, {} of the right functions, {} with the right arguments\n\
         speed     {:.1} tok/s of text, {:.1} of calls: {:.2} x",
        measured.workload,
        measured.n,
        percent(measured.valid),
        percent(measured.right_function),
        percent(measured.right_arguments),
        measured.tok_s_free,
        measured.tok_s_constrained,
        measured.speedup
    );
    if let Some(share) = measured.forced_share {
        page += &format!(" ({} of the tokens forced)", percent(share));
    }
    page += &format!(
        "\nsecond turn with 20 tools: first token after {:.3} s; with the time of day in the instructions {:.3} s\n",
        measured.second_turn_ttft_s, measured.second_turn_clock_ttft_s
    );
    if let Some([one, eight]) = measured.held_over_free {
        page += &format!("text held to a grammar, over free text: {one:.3} x alone, {eight:.3} x of eight together\n");
    }
    page
}
