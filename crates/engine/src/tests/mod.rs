//! The engine on real lanes with the fake model: the same runtime that serves, with a model that tests can foresee.

mod best;
mod cancelling;
mod constrained;
mod drafting_by_model;
mod embedding;
mod encoding;
mod ending;
mod exact;
mod exactness;
mod exchanging;
mod failing;
mod flows;
mod giving_back;
mod kept_prompt;
mod prompt_scores;
mod queueing;
mod recovering;
mod remembering;
mod speculating;
mod streaming;
mod thinking;

use crate::backend::Backend as _;
use crate::calibration::Calibrate;
use crate::draft_model::DraftModel;
use crate::drafting::Past;
use crate::exchange::GraphExchange;
use crate::fake_model::{FakeModel, Hold, SPELL, VOCABULARY};
use crate::handle::Generation;
use crate::learned::LearnedFile;
use crate::request::{
    EngineError, GenerateRequest, GenerationEvent, PromptToken, SamplingParams, StopConditions, Usage,
};
use crate::runtime::{Runtime, RuntimeConfig};
use crate::stats::EngineStats;
use duet_device::{Cpu, CpuConfig, Pinning};
use duet_driver::Observer;
use duet_model::forward::PreparesRows;
use duet_model::kv::PAGE_TOKENS;
use duet_scheduler::heg::{OnDisk, RoutedWeights, SequenceWise, TokenWise};
use duet_scheduler::machine::{Anchors, Capabilities, FewRows, Lane, PerRow};
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{
    GraphSet, Heg, Limits, Machine, Mechanisms, MemoryLimits, SchedulerConfig, StatePages, Verify, WindowPages,
};
use duet_speculate::Method;
use duet_types::{Class, FinishReason, LaneId, LaneSet, Nanos, TokenId, Tokens};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A runtime under test.
struct Bench {
    runtime: Runtime<FakeModel>,
    hold: Arc<Hold>,
}

/// All that came of a generation.
#[derive(Debug)]
struct Answer {
    /// What was told of the prompt.
    prompt: Vec<PromptToken>,
    tokens: Vec<TokenId>,
    /// One per token, and the end's.
    texts: Vec<String>,
    embedding: Option<Vec<f32>>,
    end: Result<(FinishReason, Usage), EngineError>,
}

/// How a runtime under test runs.
#[derive(Clone, Debug)]
struct Setup {
    lanes: Vec<usize>,
    /// What the first lane can do. A static one is in no team, and reads prompts whole.
    first: Capabilities,
    /// Makes graphs for it.
    prepares: Option<Arc<dyn PreparesRows>>,
    /// Exchanges its graphs.
    exchange: Option<GraphExchange>,
    chunk: u32,
    policy: PolicyName,
    /// As long as so many nodes are predicted to take; every node takes a millisecond.
    preempt_nodes: u64,
    queue_max: usize,
    queue_tokens_max: Tokens,
    spill_pages: usize,
    age: Nanos,
    speculate: Method,
    verify: Verify,
    calibrate: Calibrate,
    learned: Option<LearnedFile>,
    /// Feed-forward weights that are not all in memory.
    disk: Option<OnDisk>,
}

/// Two lanes of one thread, chunks of 8 tokens, spans of 2 of the model's 7 nodes: everything is cut.
fn setup() -> Setup {
    Setup {
        lanes: vec![1, 1],
        first: Capabilities::CORES,
        prepares: None,
        exchange: None,
        chunk: 8,
        policy: PolicyName::Duet,
        preempt_nodes: 2,
        queue_max: 1000,
        queue_tokens_max: Tokens(1 << 20),
        spill_pages: 0,
        age: Nanos(1_000_000_000),
        speculate: Method::None,
        verify: Verify::Paying,
        calibrate: Calibrate::default(),
        learned: None,
        disk: None,
    }
}

impl Setup {
    fn scheduler(&self, pages: usize) -> SchedulerConfig {
        let anchors = Anchors {
            macs_per_s: 1e9,
            attention_macs_per_s: 1e9,
            bytes_per_s: 1e9,
            launch: Nanos::ZERO,
            exposed: 0.0,
            per_row: PerRow::NONE,
            few_rows: FewRows::NONE,
        };
        let lane = Lane::new("cpu", Capabilities::CORES, anchors);
        let mut machine = Machine::of(vec![lane; self.lanes.len()]);
        machine.lanes[0].capabilities = self.first;
        if self.lanes.len() > 1 && self.first.is_dynamic() {
            machine = machine.with_team(anchors);
        }
        // A megabyte of weights a node is a millisecond, however many rows there are.
        let linear = TokenWise { macs_per_row: 1.0, weight_bytes: 1e6, row_bytes: 0.0, routed: None };
        let routed = self.disk.map(|disk| RoutedWeights { bytes: 0.5e6, share: 0.5, disk: Some(disk) });
        let ffn = TokenWise { routed, ..linear };
        let attention = SequenceWise { macs_per_pair: 0.0, bytes_per_position: 0.0, row_bytes: 0.0, windowed: None };
        let limits = Limits {
            chunk: Tokens(self.chunk),
            prefill_rows: if self.first.is_dynamic() { Tokens(self.chunk + 4) } else { Tokens(1000) },
            preempt: Nanos(2 * self.preempt_nodes * 1_000_000),
            age: self.age,
            verify: self.verify,
            ..Limits::default()
        };
        SchedulerConfig {
            machine,
            heg: Heg { layers: 2, qkv: linear, ffn, attention, head: linear, experts: None, for_head: None },
            limits,
            memory: MemoryLimits {
                page: Tokens(PAGE_TOKENS as u32),
                pages,
                disk_pages: self.spill_pages,
                states: StatePages::NONE,
                windows: WindowPages::NONE,
            },
            mechanisms: Mechanisms::ALL,
            encoder: Some(Heg {
                layers: 3,
                qkv: linear,
                ffn: linear,
                attention,
                head: linear,
                experts: None,
                for_head: None,
            }),
            graphs: self.exchange.clone().map(|exchange| GraphSet {
                lanes: LaneSet::first(self.lanes.len() as u8),
                blocks: exchange.blocks,
                budget: exchange.budget,
            }),
        }
    }
}

impl Bench {
    fn new(model: FakeModel) -> Self {
        Self::with(model, &setup())
    }

    /// A model that spells `script` after every `SPELL`.
    fn spelling(script: &[TokenId]) -> Self {
        Self::new(FakeModel { script: script.to_vec(), ..FakeModel::new(1000, 100) })
    }

    fn with(model: FakeModel, setup: &Setup) -> Self {
        Self::observed(model, setup, Vec::new())
    }

    fn observed(model: FakeModel, setup: &Setup, observers: Vec<Box<dyn Observer + Send>>) -> Self {
        Self::built(model, setup, observers, None)
    }

    fn with_past(model: FakeModel, setup: &Setup, past: Option<Past>) -> Self {
        Self::built(model, setup, Vec::new(), past)
    }

    fn built(model: FakeModel, setup: &Setup, observers: Vec<Box<dyn Observer + Send>>, past: Option<Past>) -> Self {
        Self::drafting(model, None, setup, (observers, past))
    }

    /// Beside a draft model.
    fn drafting(
        model: FakeModel,
        draft: Option<FakeModel>,
        setup: &Setup,
        (observers, past): (Vec<Box<dyn Observer + Send>>, Option<Past>),
    ) -> Self {
        let hold = Arc::clone(&model.hold);
        let scheduler = setup.scheduler(model.kv_pages().capacity);
        let cpu = Cpu::start(&CpuConfig { lanes: setup.lanes.clone(), pinning: Pinning::Floating }).unwrap();
        let config = RuntimeConfig {
            scheduler,
            measured_at: 0,
            policy: setup.policy,
            queue_max: setup.queue_max,
            queue_tokens_max: setup.queue_tokens_max,
            spill_folder: std::env::temp_dir(),
            observers,
            probe: None,
            speculate: setup.speculate,
            calibrate: setup.calibrate,
            past,
            learned: setup.learned.clone(),
            prepares: setup.prepares.clone().map(|device| (LaneId(0), device)),
            exchanges: setup.exchange.as_ref().map(|exchange| Arc::clone(&exchange.device)),
        };
        let draft = draft.map(|draft| DraftModel::new(draft, VOCABULARY, 0.25));
        Self { runtime: Runtime::start(model, draft, cpu, config).unwrap(), hold }
    }

    fn submit(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        let (id, events) = self.runtime.submit(request)?;
        Ok(Generation { id, events, engine: self.runtime.canceller() })
    }

    fn start(&self, request: GenerateRequest) -> Generation {
        self.submit(request).unwrap()
    }

    fn answer(&self, request: GenerateRequest) -> Answer {
        answer(self.start(request))
    }

    fn stats(&self) -> EngineStats {
        self.runtime.stats()
    }

    /// Rows that passes which came to their end have computed.
    fn rows(&self) -> usize {
        self.runtime.backend().rows.load(Ordering::Relaxed)
    }

    /// Those of them that were to be read behind the last layer.
    fn head_rows(&self) -> usize {
        self.runtime.backend().head_rows.load(Ordering::Relaxed)
    }
}

impl Answer {
    fn text(&self) -> String {
        self.texts.concat()
    }

    fn reason(&self) -> FinishReason {
        self.end.as_ref().unwrap().0
    }

    fn usage(&self) -> Usage {
        self.end.as_ref().unwrap().1
    }

    fn error(&self) -> &EngineError {
        self.end.as_ref().unwrap_err()
    }
}

/// Waits for the end, and checks that it is the end.
fn answer(mut generation: Generation) -> Answer {
    let (mut prompt, mut tokens, mut texts, mut embedding) = (Vec::new(), Vec::new(), Vec::new(), None);
    let end = loop {
        match generation.next_blocking().expect("a generation has an end") {
            GenerationEvent::Reading { .. } => {}
            GenerationEvent::Prompt(told) => prompt.extend(told),
            GenerationEvent::Embedding(values) => assert_eq!(embedding.replace(values), None, "there is one"),
            GenerationEvent::Token { token, text, .. } => {
                tokens.push(token);
                texts.push(text);
            }
            GenerationEvent::Finished { text, reason, usage } => {
                texts.push(text);
                break Ok((reason, usage));
            }
            GenerationEvent::Failed(error) => break Err(error),
        }
    };
    assert_eq!(generation.next_blocking(), None, "nothing follows the end");
    Answer { prompt, tokens, texts, embedding, end }
}

fn letters(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(u32::from(byte - b'a'))).collect()
}

fn request(prompt: &[TokenId]) -> GenerateRequest {
    GenerateRequest {
        prompt: prompt.to_vec(),
        sampling: SamplingParams::default(),
        stop: StopConditions::default(),
        class: Class::Reactive,
        ..GenerateRequest::default()
    }
}

/// Background work, whose kernels are cut.
fn background(request: GenerateRequest) -> GenerateRequest {
    GenerateRequest { class: Class::Proactive, ..request }
}

/// Asks for the script.
fn spell() -> GenerateRequest {
    request(&[TokenId(0), SPELL])
}

/// Asks for `max_tokens` letters that depend on all of `prompt`.
fn hashed(prompt: &[TokenId], max_tokens: u32) -> GenerateRequest {
    let mut request = request(prompt);
    request.stop.max_tokens = Some(Tokens(max_tokens));
    request
}
