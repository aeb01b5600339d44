//! Real tokens in virtual time are those of the model alone and of the engine, whatever the scheduler does with them.
//!
//! Each scenario is drawn from a seed: requests of both classes that come close together, some with a beginning in common
//! and some that continue an earlier conversation, kernels that fail, little memory. What is asserted of the tokens would
//! be worth little if nothing happened to them, so it is counted what did.

use duet_bench::functional::{self, Answer, FunctionalError, RealModel};
use duet_bench::load::Plan;
use duet_driver::Observer;
use duet_engine::profile::heg;
use duet_engine::{Engine, EngineConfig, GenerateRequest, GenerationEvent, SamplingParams, StopConditions};
use duet_kernels::crew::Solo;
use duet_model::forward::{Activations, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_model::template::{ChatMessage, Turn};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Command, End, Event, SchedulerConfig, Source};
use duet_sim::{Client, Failing, Metrics, Random, Scenario, Simulation, Truth, machines};
use duet_types::{Class, FinishReason, Instant, Nanos, RequestId, TokenId, Tokens};
use std::path::Path;
use std::sync::Arc;

/// A prompt and the longest answer to it.
#[derive(Clone, Debug)]
struct Ask {
    prompt: Vec<TokenId>,
    output: Tokens,
}

/// What is to come of an ask.
type Expected = (Vec<TokenId>, End);

fn tiny(name: &str) -> Arc<Model> {
    let path = format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    load(Path::new(&path))
}

fn load(path: &Path) -> Arc<Model> {
    Arc::new(Model::load(path, &LoadOptions::default(), &mut |_| {}).unwrap())
}

/// The model alone, one token after the other: the tokens that are likeliest, to the end of the turn or as many as asked.
fn alone(model: &Model, ask: &Ask) -> Expected {
    let context = model.config().context.as_usize();
    let len_max = context.min(ask.prompt.len() + ask.output.as_usize());
    let mut kv = model.kv_pool(KvFormat::F16, Tokens(len_max as u32)).table();
    let (mut tokens, mut logits) = (ask.prompt.clone(), Vec::new());
    for position in 0.. {
        let mut pass =
            Pass::new(model, Activations::new(model, 1), vec![Segment::new(kv, vec![tokens[position]])]).unwrap();
        model.run_span(&mut pass, 0..model.node_count(), &Solo);
        model.logits(&mut pass, &[0], &mut logits, &Solo);
        kv = pass.finish().1.remove(0);
        if position + 1 == tokens.len() {
            // Of equals the first.
            let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            tokens.push(TokenId(best as u32));
            let ends_turn = model.tokenizer().is_end_of_generation(TokenId(best as u32));
            if ends_turn || tokens.len() == len_max {
                let reason = if ends_turn { FinishReason::Stop } else { FinishReason::Length };
                return (tokens.split_off(ask.prompt.len()), End::Finished(reason));
            }
        }
    }
    unreachable!("it ends with the context")
}

/// The engine when it has nothing else to do.
fn served(engine: &Engine, ask: &Ask) -> Expected {
    let request = GenerateRequest {
        prompt: ask.prompt.clone(),
        sampling: SamplingParams::default(),
        stop: StopConditions { max_tokens: Some(ask.output), ..StopConditions::default() },
        class: Class::Reactive,
        ..GenerateRequest::default()
    };
    let mut generation = engine.submit(request).unwrap();
    let mut tokens = Vec::new();
    loop {
        match generation.next_blocking().expect("a generation has an end") {
            GenerationEvent::Reading { .. } | GenerationEvent::Embedding(_) | GenerationEvent::Prompt(_) => {}
            GenerationEvent::Token { token, .. } => tokens.push(token),
            GenerationEvent::Finished { reason, .. } => return (tokens, End::Finished(reason)),
            GenerationEvent::Failed(error) => panic!("{error}"),
        }
    }
}

/// What happened to requests.
#[derive(Debug, Default)]
struct Seen {
    /// Answers that came to their end.
    whole: usize,
    /// Kernels that took a part of the rows of a pass.
    parts: usize,
    /// Kernels of rows of several requests.
    batches: usize,
    failures: usize,
    spills: usize,
    discards: usize,
    taken_over: usize,
    forked: usize,
}

impl Observer for Seen {
    fn event(&mut self, _: Instant, event: &Event) {
        match event {
            Event::KernelFailed { .. } => self.failures += 1,
            Event::Restored { source: Some(Source::TakenOver(_)), .. } => self.taken_over += 1,
            Event::Restored { source: Some(Source::Forked(_)), .. } => self.forked += 1,
            _ => {}
        }
    }

    fn command(&mut self, _: Instant, command: &Command) {
        match command {
            Command::Launch { kernel, .. } => {
                let rows: u32 = kernel.members.iter().map(|member| member.len().0).sum();
                self.parts += usize::from(kernel.rows != (0..rows));
                self.batches += usize::from(kernel.members.len() > 1);
            }
            Command::Spill(_) => self.spills += 1,
            Command::Discard(_) => self.discards += 1,
            _ => {}
        }
    }
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.parts += other.parts;
        self.batches += other.batches;
        self.failures += other.failures;
        self.spills += other.spills;
        self.discards += other.discards;
        self.taken_over += other.taken_over;
        self.forked += other.forked;
    }
}

/// Requests, of which some continue another with its answer, and some only begin alike; and the answers.
fn asks(model: &Model, random: &mut Random) -> (Vec<Ask>, Vec<Expected>) {
    let vocabulary = model.config().vocabulary as u32;
    let mut asks: Vec<Ask> = Vec::new();
    let mut answers: Vec<Expected> = Vec::new();
    for index in 0..ASKS {
        let earlier = random.between(0, index.max(1)) as usize;
        let mut prompt = match (index, random.between(0, 3)) {
            (0, _) | (_, 0) => Vec::new(),
            (_, 1) => [&asks[earlier].prompt[..], &answers[earlier].0[..]].concat(),
            _ => {
                let beginning = &asks[earlier].prompt;
                beginning[..random.between(1, beginning.len() as u32 + 1) as usize].to_vec()
            }
        };
        prompt.truncate(150);
        let own = random.between(1, 90);
        prompt.extend((0..own).map(|_| TokenId(random.between(0, vocabulary))));
        let ask = Ask { prompt, output: Tokens(random.between(1, 14)) };
        answers.push(alone(model, &ask));
        asks.push(ask);
    }
    (asks, answers)
}

/// Who waits for which answer, when, and what goes wrong.
fn scenario(policy: PolicyName, config: SchedulerConfig, asks: &[Ask], random: &mut Random) -> Scenario {
    let client = |ask: &Ask| {
        let class = if random.between(0, 2) == 0 { Class::Reactive } else { Class::Proactive };
        let failing = if random.between(0, 8) == 0 { Failing::Once(random.between(0, 6)) } else { Failing::Never };
        let arrives = Instant(u64::from(random.between(0, 150)) * 1_000_000);
        Client { arrives, failing, ..Client::new(class, 1, ask.output.0) }
    };
    let clients = asks.iter().map(client).collect();
    let mut scenario = Scenario { clients, ..Scenario::new(policy, config) };
    (scenario.truth.jitter, scenario.truth.seed) = (0.3, random.number());
    scenario
}

/// The machines of the simulator, with chunks that prompts are longer than.
fn machine(which: usize, layers: usize, memory: Option<(usize, usize)>) -> SchedulerConfig {
    let mut config = [machines::npu_igpu, machines::cpu, machines::single][which]();
    config.heg.layers = layers;
    config.limits.chunk = Tokens(32);
    if let Some((pages, disk)) = memory {
        // Pages of ten positions; the longest request takes 26.
        (config.memory.pages, config.memory.disk_pages) = (pages, disk);
    }
    config
}

fn check(name: &str, policies: &[PolicyName]) -> Seen {
    let model = tiny(name);
    let real = RealModel { model: &model, kv_format: KvFormat::F16, threads: 2 };
    let mut random = Random::new(11);
    let (asks, expected) = asks(&model, &mut random);
    let prompts: Vec<Vec<TokenId>> = asks.iter().map(|ask| ask.prompt.clone()).collect();
    let mut seen = Seen::default();
    for &policy in policies {
        for which in 0..3 {
            for memory in [None, Some((60, 100)), Some((45, 0))] {
                let config = machine(which, model.config().layers, memory);
                let scenario = scenario(policy, config, &asks, &mut random);
                let run = functional::run(real, prompts.clone(), &scenario, Seen::default()).unwrap();
                seen.add(&run.seen);
                for (index, (answer, expected)) in run.answers.iter().zip(&expected).enumerate() {
                    let of = format!("{policy} on machine {which} with {memory:?}: request {index}");
                    if answer.end == End::Failed {
                        assert_ne!(scenario.clients[index].failing, Failing::Never, "{of} failed");
                        assert!(expected.0.starts_with(&answer.tokens), "{of} has {:?}", answer.tokens);
                    } else {
                        assert_eq!((&answer.tokens, answer.end), (&expected.0, expected.1), "{of}");
                        seen.whole += 1;
                    }
                }
            }
        }
    }
    seen
}

#[test]
fn tokens_are_those_of_the_model_alone() {
    let seen = check("llama", &PolicyName::ALL);
    let all = [
        seen.whole / 10,
        seen.parts,
        seen.batches,
        seen.failures,
        seen.spills,
        seen.discards,
        seen.taken_over,
        seen.forked,
    ];
    assert!(all.into_iter().all(|count| count > 20), "too little happened: {seen:?}");
}

/// Windows, several ropes, seven layers.
#[test]
fn tokens_are_those_of_the_model_alone_with_windows() {
    check("gemma3", &[PolicyName::Duet, PolicyName::AgentXpu]);
}

#[test]
fn a_client_that_leaves_has_the_beginning_of_its_answer() {
    let model = tiny("llama");
    let prompts: Vec<Vec<TokenId>> = (0..4).map(|seed| vec![TokenId(seed + 40); 60]).collect();
    let clients = (0..4).map(|_| Client::new(Class::Proactive, 1, 30)).collect();
    let mut scenario = Scenario { clients, ..Scenario::new(PolicyName::Duet, machines::cpu()) };
    let run = |scenario: &Scenario| {
        let real = RealModel { model: &model, kv_format: KvFormat::F16, threads: 1 };
        functional::run(real, prompts.clone(), scenario, Metrics::default()).unwrap()
    };
    let whole = run(&scenario);
    let half = whole.seen.latency(RequestId(2)).unwrap().0 / 2;
    scenario.clients[2].cancelled = Some(Instant(half));
    let Answer { tokens, end, .. } = &run(&scenario).answers[2];
    assert_eq!(*end, End::Finished(FinishReason::Cancelled));
    assert!(!tokens.is_empty() && tokens.len() < whole.answers[2].tokens.len(), "{} tokens", tokens.len());
    assert!(whole.answers[2].tokens.starts_with(tokens));
}

#[test]
fn what_does_not_fit_the_model_is_refused() {
    let model = tiny("llama");
    let refused = |prompts: Vec<Vec<TokenId>>, config: SchedulerConfig| {
        let clients = vec![Client::new(Class::Reactive, 1, 4)];
        let scenario = Scenario { clients, ..Scenario::new(PolicyName::Duet, config) };
        let real = RealModel { model: &model, kv_format: KvFormat::F16, threads: 1 };
        functional::run(real, prompts, &scenario, Metrics::default()).unwrap_err()
    };
    let cpu = machines::cpu;
    let context = model.config().context;
    let vocabulary = model.config().vocabulary as u32;
    let long = vec![TokenId(1); context.as_usize()];
    assert_eq!(refused(vec![], cpu()), FunctionalError::Prompts { prompts: 0, clients: 1 });
    assert_eq!(refused(vec![vec![]], cpu()), FunctionalError::EmptyPrompt { client: 0 });
    let too_long = FunctionalError::PromptTooLong { client: 0, prompt: long.len(), context };
    assert_eq!(refused(vec![long], cpu()), too_long);
    let token = TokenId(vocabulary);
    assert_eq!(refused(vec![vec![token]], cpu()), FunctionalError::Token { client: 0, token });
    let layers = FunctionalError::Layers { machine: 5, model: 2 };
    assert_eq!(refused(vec![vec![TokenId(1)]], machine(1, 5, None)), layers);
}

/// An answer may be asked for that is longer than the context: it ends there.
#[test]
fn an_answer_ends_with_the_context() {
    let model = tiny("llama");
    let clients = vec![Client::new(Class::Reactive, 1, u32::MAX)];
    let scenario = Scenario { clients, ..Scenario::new(PolicyName::Duet, machines::single()) };
    let real = RealModel { model: &model, kv_format: KvFormat::F16, threads: 1 };
    let ask = Ask { prompt: vec![TokenId(7); 240], output: Tokens(1000) };
    let run = functional::run(real, vec![ask.prompt.clone()], &scenario, Metrics::default()).unwrap();
    assert_eq!((run.answers[0].tokens.clone(), run.answers[0].end), alone(&model, &ask));
}

#[test]
fn a_simulation_has_figures_of_real_answers() {
    let model = tiny("llama");
    let (asks, expected) = asks(&model, &mut Random::new(2));
    let config = machine(0, model.config().layers, None);
    let clients = scenario(PolicyName::AgentXpu, config.clone(), &asks, &mut Random::new(3)).clients;
    let clients = clients.into_iter().map(|client| Client { failing: Failing::Never, ..client }).collect();
    let plan = Plan { clients, prompts: asks.iter().map(|ask| ask.prompt.clone()).collect() };
    let truth = Truth::of(&config);
    let simulation = Simulation { policy: PolicyName::AgentXpu, config, truth, power: None };
    let real = RealModel { model: &model, kv_format: KvFormat::F16, threads: 1 };
    let run = functional::simulate(real, plan, &simulation, Nanos(150_000_000)).unwrap();
    let answers: Vec<Expected> = run.answers.into_iter().map(|answer| (answer.tokens, answer.end)).collect();
    assert_eq!(answers, expected);
    let length = |(ask, answer): (&Ask, &Expected)| ask.prompt.len() + answer.0.len();
    assert_eq!(run.seen.tokens, asks.iter().zip(&expected).map(length).sum::<usize>() as u64);
    assert_eq!(run.seen.reactive.n + run.seen.proactive.n, asks.len());
}

#[test]
fn a_real_model_answers_as_the_engine_does() {
    let Some(path) = duet_testing::path(duet_testing::Need::Model) else { return };
    let model = load(&path);
    let engine =
        Engine::start(Arc::clone(&model), EngineConfig { threads: Some(1), ..EngineConfig::default() }).unwrap();
    let asks: Vec<Ask> = QUESTIONS.iter().map(|question| asked(&model, question)).collect();
    let expected: Vec<Expected> = asks.iter().map(|ask| served(&engine, ask)).collect();
    drop(engine);
    let real = RealModel { model: &model, kv_format: KvFormat::default(), threads: 2 };
    for (policy, which) in [(PolicyName::AgentXpu, 0), (PolicyName::Duet, 1), (PolicyName::Restart, 1)] {
        let mut config = machine(which, model.config().layers, None);
        config.heg = heg(&model, KvFormat::default());
        config.limits.preempt = Nanos(10_000_000);
        let scenario = scenario(policy, config, &asks, &mut Random::new(5));
        let prompts = asks.iter().map(|ask| ask.prompt.clone()).collect();
        let run = functional::run(real, prompts, &scenario, Metrics::default()).unwrap();
        for (answer, (tokens, end)) in run.answers.iter().zip(&expected) {
            assert_eq!((&answer.tokens, answer.end), (tokens, *end), "{policy}: {}", answer.text);
        }
        assert!(run.answers[0].text.contains("Paris"), "{}", run.answers[0].text);
        assert!(run.seen.summary().tokens_per_s > 0.0);
    }
}

fn asked(model: &Model, question: &str) -> Ask {
    let prompt = model.template().render(&[ChatMessage::new("user", question)], None, Turn::Generate).unwrap();
    Ask { prompt: model.tokenizer().encode_prompt(&prompt, SpecialTokens::Parse), output: Tokens(16) }
}

/// Requests of a scenario.
const ASKS: u32 = 14;

const QUESTIONS: [&str; 4] = [
    "What is the capital of France? Answer in one sentence.",
    "Name three colours.",
    "Summarise in one sentence: Tom and Ann wanted to meet at the station at nine. Tom's train was late, so Ann waited \
     in the café, read a book and had two cups of tea. When Tom came at eleven they went to the museum, which closes \
     early on Mondays, and saw only the garden.",
    "What is the capital of Italy? Answer in one sentence.",
];
