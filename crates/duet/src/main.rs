//! `duet`: an on-device LLM engine for personal agents.
//!
//! stdout holds what was asked for and nothing else; everything a person is told goes to stderr. The exit status is 0,
//! 2 if what was given is wrong, 1 if running failed (see [`failure`]).

mod api_keys;
mod bad_input;
mod chat;
mod cli;
mod commands;
mod devices;
mod disk;
mod failure;
mod fitting;
mod history;
mod inspect;
mod lanes;
mod logging;
mod mcp;
mod models;
mod offloading;
mod progress;
mod prompt;
mod session;
mod speed;
mod spoken;
mod state;
mod terminal;
mod weight_cache;
mod weights;

use clap::Parser;
use duet_device::leave;
use duet_kernels::isa::Isa;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn main() -> ! {
    failure::explain_panics();
    // Elsewhere this signal also tells of a stack that overflows.
    #[cfg(target_os = "linux")]
    duet_device::explain_lost_files();
    let cli = cli::Cli::parse();
    let work = || -> anyhow::Result<()> {
        logging::start(cli.verbose)?;
        // Whatever is asked for: a name that is ignored would be found out by nobody.
        Isa::chosen()?;
        commands::dispatch(&cli.command)
    };
    let ended = catch_unwind(AssertUnwindSafe(work));
    leave(match ended {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => failure::report(&error),
        // The hook has said what happened.
        Err(_) => 1,
    })
}
