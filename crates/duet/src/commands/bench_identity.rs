//! `duet bench identity`: whether drafting changes an answer.

use crate::bad_input::BadInput;
use crate::cli::IdentityArgs;
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::session;
use duet_bench::speculate::{Identity, Settings, identity as answer_both_ways};
use duet_engine::EngineConfig;
use duet_types::Tokens;

pub(super) fn identity(arguments: &IdentityArgs) -> anyhow::Result<()> {
    let speculate = arguments.draft.method(arguments.engine.speculate)?;
    let model = session::open(&arguments.model, &arguments.engine)?;
    let draft = session::open_draft(&arguments.draft, &arguments.engine)?;
    let settings = Settings {
        files: arguments.workload.clone(),
        contenders: Vec::new(),
        limit: arguments.limit.unwrap_or(usize::MAX),
        output: Tokens(arguments.max_tokens),
        temperature: arguments.temperature,
        config: EngineConfig { verify: arguments.verify.into(), speculate, draft, ..arguments.engine.config() },
    };
    let mut printed = Ok(());
    let mut different = Vec::new();
    let mut tell = |found: &Identity| {
        let text = if arguments.json { serde_json::to_string(found).map_err(Into::into) } else { Ok(page(found)) };
        let result = text.and_then(|text| print(&(text + "\n")));
        if printed.is_ok() {
            printed = result;
        }
        different.extend(found.different.iter().map(|index| format!("prompt {} of {}", index + 1, found.workload)));
    };
    let progress = |what: &str| eprintln_quiet(&format!("bench: {what}"));
    match answer_both_ways(&model, &settings, &progress, &mut tell) {
        Ok(()) if different.is_empty() => printed,
        Ok(()) => anyhow::bail!("drafts change answers: {}", different.join(", ")),
        Err(error) if error.is_bad_input() => Err(BadInput(error.to_string()).into()),
        Err(error) => Err(error.into()),
    }
}

fn page(found: &Identity) -> String {
    let Identity { workload, n, too_long, tokens, drafted, accepted, different } = found;
    let long = if *too_long > 0 { format!(", {too_long} too long for the model") } else { String::new() };
    let result = if different.is_empty() { "identical".to_owned() } else { format!("{} DIFFERENT", different.len()) };
    format!(
        "{workload:16} {n:4} prompts{long}, {tokens} tokens, {accepted} of {drafted} drafted rows accepted: {result}"
    )
}
