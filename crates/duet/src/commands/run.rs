//! `duet run`: one prompt, one answer. stdout holds the answer and nothing else.

use crate::bad_input::BadInput;
use crate::cli::{HistoryDefault, RunArgs};
use crate::failure::print;
use crate::models;
use crate::offloading;
use crate::progress::eprintln_quiet;
use crate::prompt::{self, Message, Prompt};
use crate::session;
use crate::speed;
use crate::spoken::Spoken;
use duet_engine::profile::{FirstProfile, Profiler};
use duet_engine::{Engine, EngineConfig, GenerateRequest, GenerationEvent, TaskName};
use duet_kernels::memory::give_back_freed;
use duet_model::Model;
use duet_types::Class;
use std::io::Read;
use std::sync::Arc;

pub(super) fn run(arguments: &RunArgs) -> anyhow::Result<()> {
    // A lone model is a forgotten prompt; answering its name would hide that, after a download perhaps.
    let (model, prompt) = (arguments.model(), arguments.prompt()?);
    if model == models::DEFAULT && models::is_model_name(prompt) {
        let model = prompt;
        return Err(BadInput(format!("no PROMPT given for the model `{model}`; use: duet run {model} PROMPT")).into());
    }
    let text = match prompt {
        "-" => stdin_text()?,
        prompt => prompt.to_owned(),
    };
    let beside = (&arguments.device, &arguments.draft);
    let history = arguments.history.place(HistoryDefault::Off);
    let config = EngineConfig { first_profile: FirstProfile::Estimated, ..arguments.engine.config() };
    let engine = session::start_with(model, &arguments.engine, beside, history, config.clone())?;
    answer(&engine, text, arguments)?;
    measure_after(engine, &config);
    Ok(())
}

fn answer(engine: &Engine, text: String, arguments: &RunArgs) -> anyhow::Result<()> {
    let Prompt { tokens, marks, split } = encode(engine.model(), text, arguments)?;
    let mut spoken = Spoken::new(split);
    let mut generation = engine.submit(GenerateRequest {
        prompt: tokens,
        marks,
        sampling: arguments.sampling.params(TEMPERATURE_DEFAULT),
        stop: arguments.sampling.stop(),
        class: Class::Reactive,
        task: arguments.system.as_deref().map(TaskName::of_instructions).unwrap_or_default(),
        ..GenerateRequest::default()
    })?;
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { text, .. } => spoken.say(&text)?,
            GenerationEvent::Finished { text, usage, .. } => {
                spoken.say(&text)?;
                spoken.end()?;
                if !spoken.answer().ends_with('\n') {
                    print("\n")?;
                }
                if spoken.is_thought_alone() {
                    eprintln_quiet(
                        "the model was still thinking when its answer ended; --max-tokens gives it more room",
                    );
                }
                tracing::info!("{}", speed::line(&usage));
                offloading::tell_shares(engine);
                return Ok(());
            }
            GenerationEvent::Failed(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("the engine stopped before the answer was complete")
}

/// Measures the machine if nobody had: the answer is there, and did not wait for it. Nor does it fail with this.
fn measure_after(engine: Engine, config: &EngineConfig) {
    let Some(folder) = config.profile_folder.as_ref().filter(|_| engine.is_estimated()) else { return };
    eprintln_quiet("measuring this machine, for later starts");
    let model = Arc::clone(engine.model());
    // Its threads are on the cores that are measured, and its memory is not to lie beside theirs.
    drop(engine);
    give_back_freed();
    let profiler = Profiler::start(model, config);
    if let Err(error) = profiler.and_then(|profiler| profiler.measure_first(folder)) {
        tracing::warn!("this machine could not be measured: {error}");
    }
}

/// Repeatable unless asked otherwise: the answer may feed a script.
const TEMPERATURE_DEFAULT: f32 = 0.0;

fn encode(model: &Model, text: String, arguments: &RunArgs) -> anyhow::Result<Prompt> {
    if arguments.raw {
        return Ok(prompt::encode_text(model, &text));
    }
    let system = arguments.system.clone().map(Message::system);
    let messages: Vec<_> = system.into_iter().chain([Message::user(text)]).collect();
    prompt::encode_chat(model, &messages)
}

fn stdin_text() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => BadInput("PROMPT from stdin is not UTF-8 text".into()).into(),
        _ => anyhow::Error::new(error).context("cannot read PROMPT from stdin"),
    })?;
    // The newline that ends a line of a shell is not part of what was asked.
    let text = text.trim_end_matches(['\n', '\r']).to_owned();
    if text.is_empty() {
        return Err(BadInput("PROMPT from stdin is empty".into()).into());
    }
    Ok(text)
}
