//! One file per command. A new one is a variant of [`Command`], a module here and a line in [`dispatch`].

mod bench;
mod bench_agents;
mod bench_agreement;
mod bench_compose;
mod bench_graphs;
mod bench_identity;
mod bench_lines;
mod bench_load;
mod bench_moe;
mod bench_quality;
mod bench_served;
mod bench_speculate;
mod cache;
mod calibrate;
mod chat;
mod devices;
mod embed;
mod history;
mod inspect;
mod mcp;
mod moefy;
mod profile;
mod profile_graphs;
mod pull;
mod replay;
mod report;
mod run;
mod serve;
mod simulate;

use crate::cli::Command;

/// Does what was asked.
pub(crate) fn dispatch(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Pull(arguments) => pull::pull(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Chat(arguments) => chat::chat(arguments),
        Command::Serve(arguments) => serve::serve(arguments),
        Command::Embed(arguments) => embed::embed(arguments),
        Command::Mcp(arguments) => mcp::mcp(arguments),
        Command::History(arguments) => history::history(arguments),
        Command::Cache(arguments) => cache::cache(&arguments.command),
        Command::Inspect(arguments) => inspect::inspect(arguments),
        Command::Devices(arguments) => devices::devices(arguments),
        Command::Profile(arguments) => profile::profile(arguments),
        Command::Replay(arguments) => replay::replay(arguments),
        Command::Simulate(arguments) => simulate::simulate(arguments),
        Command::Moefy(arguments) => moefy::moefy(arguments),
        Command::Calibrate(arguments) => calibrate::calibrate(arguments),
        Command::Bench(arguments) => bench::bench(arguments),
        Command::Report(arguments) => report::report(arguments),
    }
}
