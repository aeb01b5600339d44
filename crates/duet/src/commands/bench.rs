//! `duet bench`: measurements, as a table for people or one JSON object a line.

use super::{
    bench_agents, bench_agreement, bench_compose, bench_graphs, bench_identity, bench_load, bench_moe, bench_quality,
    bench_served, bench_speculate,
};
use crate::cli::{BenchArgs, BenchCommand, ThroughputArgs};
use crate::failure::print;
use crate::{models, session};
use duet_bench::throughput::{self, Ceilings, PassCost, Report, Settings};
use duet_types::Bytes;
use std::time::Instant;

pub(super) fn bench(arguments: &BenchArgs) -> anyhow::Result<()> {
    match &arguments.command {
        BenchCommand::Throughput(arguments) => measure_throughput(arguments),
        BenchCommand::Load(arguments) => bench_load::load(arguments),
        BenchCommand::Compose(arguments) => bench_compose::compose(arguments),
        BenchCommand::Speculate(arguments) => bench_speculate::speculate(arguments),
        BenchCommand::Identity(arguments) => bench_identity::identity(arguments),
        BenchCommand::Agents(arguments) => bench_agents::agents(arguments),
        BenchCommand::Perplexity(arguments) => bench_quality::perplexity(arguments),
        BenchCommand::Quality(arguments) => bench_quality::quality(arguments),
        BenchCommand::Agreement(arguments) => bench_agreement::agreement(arguments),
        BenchCommand::Graphs(arguments) => bench_graphs::graphs(arguments),
        BenchCommand::Moe(arguments) => bench_moe::moe(arguments),
    }
}

fn measure_throughput(arguments: &ThroughputArgs) -> anyhow::Result<()> {
    if !arguments.device.devices.is_empty() {
        return bench_served::served(arguments);
    }
    let settings = Settings {
        prompt: arguments.prompt,
        generate: arguments.generate,
        batches: arguments.batch.clone(),
        threads: arguments.threads.unwrap_or_else(|| duet_device::available_cores().len()),
        samples: arguments.samples,
        long_contexts: arguments.long.clone(),
    };
    let path = models::locate(&arguments.model)?;
    let progress = |phase: &str| eprintln!("bench: {phase}");
    let report = match arguments.expert_memory {
        None => throughput::run(&path, &settings, progress)?,
        Some(memory) => {
            let start = Instant::now();
            let model = session::open_with_experts_on_disk(&path, memory)?;
            throughput::run_loaded(&path, (model, start.elapsed()), &settings, progress)?
        }
    };
    if arguments.json {
        return print(&(serde_json::to_string(&report)? + "\n"));
    }
    print(&page(&report))
}

/// `44 % of the ceiling`, or why nobody can say.
fn share(share: Option<f64>, suspect: Option<&str>) -> String {
    match (share, suspect) {
        (Some(share), _) => format!("{:.0} % of the ceiling", 100.0 * share),
        (None, Some(why)) => format!("SUSPECT: {why}"),
        (None, None) => "no share of the ceiling was measured".to_owned(),
    }
}

fn unsettled(ceilings: &Ceilings) -> String {
    let Ceilings { found, unsettled, .. } = *ceilings;
    if unsettled == 0 { String::new() } else { format!(" ({unsettled} of {found} times the probes did not agree)") }
}

fn page(report: &Report) -> String {
    let mut page = format!(
        "{} on {} threads ({}), medians of {}\n\
         ceilings  {:.0} GMAC/s int8, {:.1} GB/s read{}; cores meet in {:.0} ns\n\
         fetching  {}\n\
         load      {:.2} s\n\
         memory    {} packed, {} KV{}\n\
         prefill   {:.0} tok/s at {} tokens; linear layers {:.0} GMAC/s, {}; attention {:.0} % of the time\n",
        report.model,
        report.threads,
        report.isa,
        report.n,
        report.ceilings.int8_gmacs,
        report.ceilings.read_gbs,
        unsettled(&report.ceilings),
        report.ceilings.meeting_ns,
        report.read_ahead,
        report.load_s,
        Bytes(report.weight_bytes),
        Bytes(report.kv_bytes),
        report.peak_rss_bytes.map(|bytes| format!(", {} at most in use", Bytes(bytes))).unwrap_or_default(),
        report.prefill_tok_s,
        report.prompt,
        report.prefill_linear_gmacs,
        share(report.prefill_share_of_ceiling, report.suspect.as_deref()),
        report.prefill_attention_share * 100.0,
    );
    for decode in &report.decode {
        page += &format!(
            "decode    {:.1} tok/s at batch {}; {:.1} GB/s, {}\n",
            decode.tok_s,
            decode.batch,
            decode.read_gbs,
            share(decode.read_share, decode.suspect.as_deref())
        );
        if let Some(reads) = &decode.experts {
            page += &format!(
                "experts   {} read from disk for a token; {:.0} % in memory, {:.0} % foreseen; {:.2} s waited\n",
                Bytes(reads.bytes_per_token as u64),
                100.0 * reads.in_memory,
                100.0 * reads.foreseen,
                reads.waited_s
            );
        }
    }
    for decode in &report.decode_long {
        page += &format!(
            "decode    {:.1} tok/s at a context of {} ({} KV); {:.1} GB/s, {}\n",
            decode.tok_s,
            decode.context,
            decode.kv,
            decode.read_gbs,
            share(decode.read_share, decode.suspect.as_deref())
        );
    }
    let mut costs = |place: &str, costs: &[PassCost]| {
        for PassCost { rows, ms, ratio } in costs {
            page += &format!("pass      {rows:>2} rows{place} {ms:.2} ms, {ratio:.2} of one row\n");
        }
    };
    costs("", &report.pass_cost);
    for long in &report.pass_cost_long {
        costs(&format!(" at a context of {}", long.context), &long.pass_cost);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_told_or_why_there_is_none() {
        assert_eq!(share(Some(0.516), None), "52 % of the ceiling");
        assert_eq!(share(None, Some("above it")), "SUSPECT: above it");
        let of = |unsettled| Ceilings { int8_gmacs: 1.0, read_gbs: 1.0, meeting_ns: 1.0, found: 9, unsettled };
        assert_eq!(unsettled(&of(0)), "");
        let told = unsettled(&of(2));
        assert_eq!(told, " (2 of 9 times the probes did not agree)");
    }
}
