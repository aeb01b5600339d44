//! `duet bench throughput --device`: speed of an engine as it serves, on cores and devices.

use crate::cli::{DraftArgs, EngineArgs, ThroughputArgs};
use crate::failure::print;
use crate::offloading;
use crate::progress::eprintln_quiet;
use crate::session;
use duet_bench::served::{self, Served, Settings, Share};
use duet_engine::EngineConfig;

pub(super) fn served(arguments: &ThroughputArgs) -> anyhow::Result<()> {
    let settings = Settings {
        prompt: arguments.prompt,
        generate: arguments.generate,
        batches: arguments.batch.clone(),
        samples: arguments.samples,
    };
    let engine_arguments = EngineArgs::to_measure(arguments.threads, arguments.expert_memory);
    let batch = settings.batches.iter().copied().max().unwrap_or(1);
    let config = engine_arguments.config();
    let config = EngineConfig { batch: config.batch.max(batch), ..config };
    let devices = (&arguments.device, &DraftArgs::default());
    let engine = session::start_with(&arguments.model, &engine_arguments, devices, None, config)?;
    let measured = served::run(&engine, &settings, |phase| eprintln_quiet(&format!("bench: {phase}")))?;
    offloading::tell_shares(&engine);
    print(&if arguments.json { serde_json::to_string(&measured)? + "\n" } else { page(&measured) })
}

fn page(measured: &Served) -> String {
    let mut page = format!(
        "{} as it is served, medians of {}\nprefill   {:.0} tok/s at {} tokens; {}\n",
        measured.model,
        measured.n,
        measured.prefill_tok_s,
        measured.prompt,
        by(&measured.shares)
    );
    for decode in &measured.decode {
        page += &format!("decode    {:.1} tok/s at batch {}; {}\n", decode.tok_s, decode.batch, by(&decode.shares));
    }
    page
}

/// `linear work 80.0 % gpu, 20.0 % cpu`.
fn by(shares: &[Share]) -> String {
    let shares: Vec<String> = shares.iter().map(|of| format!("{:.1} % {}", 100.0 * of.share, of.of)).collect();
    format!("linear work {}", shares.join(", "))
}
