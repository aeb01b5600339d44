//! A small real engine: bytes and a few words for tokens, a hash for a model.
//!
//! It keeps what is awkward about the real one: it runs apart from the server, refuses before any work and fails in the
//! middle of it, holds text back that may become a stop string, and stops when its generation is dropped.

use duet_agents::{Automaton, Begins, Limits, Refused, TokenText, ToolFormat, Turn, Vocabulary, constraint};
use duet_engine::Constraint;
use duet_engine::{
    DraftCounts, EncodeRequest, EngineError, FlowView, GenerateRequest, GenerationEvent, KeptView, KvPlace, Output,
    Progress, PromptToken, RequestView, TokenLogprobs, Usage,
};
use duet_model::ExpertReads;
use duet_model::LoadOptions;
use duet_model::encoder::Encoder;
use duet_model::forward::FateCounts;
use duet_model::tokenizer::TooManyTokens;
use duet_server::{About, Backend, Chat, ChatMessage, ChatPrompt, EventFuture, Events, Families, PromptError};
use duet_types::{Class, FinishReason, FlowId, Nanos, RequestId, Stage, TokenId, Tokens};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};

pub(crate) struct Fake {
    pub(crate) context: Tokens,
    pub(crate) fault: Fault,
    /// If present, what every answer says.
    pub(crate) says: Option<String>,
    /// How it marks calls and reasoning.
    pub(crate) families: Families,
    /// Whether what it says is what its grammar lets it say. (It has the test's word for that.)
    pub(crate) is_held: bool,
    /// If present, every token takes a permit, which the test gives.
    pub(crate) gate: Option<Arc<Semaphore>>,
    /// If present, what makes vectors or scores of texts: a real one.
    pub(crate) encoder: Option<Arc<Encoder>>,
    /// Texts that were encoded, of each request.
    pub(crate) encodings: Mutex<Vec<EncodeRequest>>,
    /// How many texts were made tokens of.
    pub(crate) encoded: Mutex<usize>,
    /// What was submitted.
    pub(crate) requests: Mutex<Vec<GenerateRequest>>,
    /// What is open and what is kept, by tenant and key.
    pub(crate) flows: Arc<Mutex<Vec<FlowView>>>,
    /// How many generations were dropped before their end.
    pub(crate) cancelled: watch::Sender<usize>,
}

pub(crate) enum Fault {
    None,
    /// Says before submission that there is no room.
    Full(EngineError),
    /// Every submission is refused.
    Refuse(EngineError),
    /// Fails after so many tokens.
    Fail(usize, EngineError),
    /// Ends without an end after so many tokens.
    Vanish(usize),
    /// Panics on submission.
    Panic,
    /// Has stopped for good.
    Stopped,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            context: Tokens(4096),
            fault: Fault::None,
            says: None,
            families: Families { tools: ToolFormat::Hermes, reasoning: None },
            is_held: false,
            gate: None,
            encoder: None,
            encodings: Mutex::default(),
            encoded: Mutex::default(),
            requests: Mutex::default(),
            flows: Arc::default(),
            cancelled: watch::Sender::new(0),
        }
    }
}

impl Backend for Fake {
    fn model_name(&self) -> &str {
        "vendor/fake"
    }

    fn about(&self) -> About<'_> {
        About { template: "{{ messages }}", eos: Some(END_OF_TURN), ..About::default() }
    }

    fn vocabulary(&self) -> usize {
        VOCABULARY.len()
    }

    fn embedding_width(&self) -> usize {
        EMBEDDING_WIDTH
    }

    fn context(&self) -> Tokens {
        self.context
    }

    fn has_room(&self, _: Class) -> Result<(), EngineError> {
        match &self.fault {
            Fault::Full(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn encode_chat(&self, chat: &Chat<'_>, most: Tokens) -> Result<ChatPrompt, PromptError> {
        let Chat { messages, tools, told } = chat;
        if messages.iter().any(|message| message.content == "refuse me") {
            return Err(PromptError::Template("as you wish".to_owned()));
        }
        let render = |message: &ChatMessage| {
            let thought = message.reasoning.iter().map(|thought| format!("({thought})")).collect::<String>();
            format!("<{}>{thought}{}", message.role.name(), message.content)
        };
        let tools = tools.iter().map(|tool| format!("<tool>{}", tool.name)).collect::<String>();
        let told = told.iter().map(|(name, value)| format!("<{name}={value}>")).collect::<String>();
        let text = tools + &told + &messages.iter().map(render).collect::<String>();
        Ok(ChatPrompt { tokens: self.encode_text(&text, most)?, begins: Begins::Outside })
    }

    fn families(&self) -> Families {
        self.families
    }

    /// What cannot be asked for is refused.
    fn constrain(&self, turn: &Turn<'_>) -> Result<Option<Constraint>, Refused> {
        let Some(grammar) = constraint(turn, &|_| None)?.filter(|_| self.is_held) else { return Ok(None) };
        let tokens = VOCABULARY.iter().map(|bytes| TokenText::Text(bytes.clone()));
        let spell = |text: &str| text.bytes().map(|byte| TokenId(u32::from(byte))).collect();
        let vocabulary = Vocabulary::new(tokens, &[END_OF_TURN], spell)?;
        Automaton::start(&vocabulary, &grammar, Limits::default()).map(|automaton| Some(Constraint::new(automaton)))
    }

    fn special(&self, name: &str) -> Option<TokenId> {
        (name == "<end>").then_some(END_OF_TURN)
    }

    fn encode_text(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        *self.encoded.lock().expect("no test panicked") += 1;
        if text.len() > most.as_usize() {
            return Err(TooManyTokens { most });
        }
        Ok(text.bytes().map(|byte| TokenId(u32::from(byte))).collect())
    }

    fn encode_mark(&self, mark: &str) -> Vec<TokenId> {
        mark.bytes().map(|byte| TokenId(u32::from(byte))).collect()
    }

    fn encode_answer(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        self.encode_text(text, most)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        VOCABULARY.get(token.0 as usize).map_or(&[], Vec::as_slice)
    }

    fn special_name(&self, token: TokenId) -> Option<&str> {
        (token == END_OF_TURN).then_some("<end>")
    }

    fn submit(&self, request: GenerateRequest) -> Result<Box<dyn Events>, EngineError> {
        match &self.fault {
            Fault::Refuse(error) => return Err(error.clone()),
            Fault::Panic => panic!("injected"),
            _ => {}
        }
        let prompt = Tokens(request.prompt.len() as u32);
        if prompt == Tokens::ZERO {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt > self.context {
            return Err(EngineError::PromptTooLong { prompt, context: self.context });
        }
        let mut events = self.events(&request, self.context - prompt);
        match &self.fault {
            Fault::Fail(after, error) => {
                events.truncate(*after);
                events.push(GenerationEvent::Failed(error.clone()));
            }
            Fault::Vanish(after) => events.truncate(*after),
            _ => {}
        }
        let open = Open { flows: Arc::clone(&self.flows), request: self.enter(&request) };
        self.requests.lock().expect("no test panicked").push(request);
        let (sender, receiver) = mpsc::unbounded_channel();
        let gate = self.gate.clone();
        tokio::spawn(async move {
            for event in events {
                if let (Some(gate), GenerationEvent::Token { .. } | GenerationEvent::Embedding(_)) = (&gate, &event) {
                    gate.acquire().await.expect("tests do not close the gate").forget();
                }
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Box::new(FakeEvents { receiver, ended: false, cancelled: self.cancelled.clone(), _open: open }))
    }

    fn flows(&self) -> Vec<FlowView> {
        lock(&self.flows).clone()
    }

    fn encoder(&self) -> Option<&Arc<Encoder>> {
        self.encoder.as_ref()
    }

    fn encode(&self, request: EncodeRequest) -> Result<Box<dyn Events>, EngineError> {
        if let Fault::Refuse(error) = &self.fault {
            return Err(error.clone());
        }
        let encoder = self.encoder.as_ref().expect("there is one");
        let results = encoder.encode_alone(Arc::clone(&request.texts)).expect("texts of this encoder");
        let mut events: Vec<_> = results.into_iter().map(GenerationEvent::Embedding).collect();
        let (text, reason, usage) = (String::new(), FinishReason::Stop, Usage::default());
        events.push(GenerationEvent::Finished { text, reason, usage });
        self.encodings.lock().expect("no test panicked").push(request);
        Ok(Box::new(Encoded(events.into())))
    }

    fn is_running(&self) -> bool {
        !matches!(self.fault, Fault::Stopped)
    }

    fn metrics(&self) -> String {
        let requests = self.requests.lock().expect("no test panicked").len();
        format!("# TYPE fake_requests counter\nfake_requests_total {requests}\n# EOF\n")
    }
}

/// What came of texts.
struct Encoded(VecDeque<GenerationEvent>);

impl Events for Encoded {
    fn next(&mut self) -> EventFuture<'_> {
        let event = self.0.pop_front();
        Box::pin(async { event })
    }
}

/// An encoder of the fixtures of `duet-model`.
pub(crate) fn encoder(name: &str) -> Arc<Encoder> {
    let path = format!("{}/../model/tests/fixtures/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Arc::new(Encoder::load(path.as_ref(), &LoadOptions::default()).expect("the fixture is whole"))
}

impl Fake {
    /// Enters a request in its flow: the one of its tenant with its key, or a new one.
    fn enter(&self, request: &GenerateRequest) -> RequestId {
        let id = RequestId(self.requests.lock().expect("no test panicked").len() as u64);
        let mut flows = lock(&self.flows);
        let same = |flow: &FlowView| flow.key.is_some() && (flow.tenant, &flow.key) == (request.tenant, &request.flow);
        let index = flows.iter().position(same).unwrap_or_else(|| {
            let (flow, key, tenant) = (FlowId(flows.len() as u64), request.flow.clone(), request.tenant);
            flows.push(FlowView { flow, key, tenant, requests: Vec::new(), kept: Vec::new() });
            flows.len() - 1
        });
        let prompt = Tokens(request.prompt.len() as u32);
        flows[index].requests.push(RequestView {
            request: id,
            class: request.class,
            // What is gated has yet to begin.
            stage: self.gate.is_none().then_some(Stage::Decode),
            prompt,
            computed: if self.gate.is_none() { prompt } else { Tokens::ZERO },
            generated: Tokens::ZERO,
            is_waiting: self.gate.is_some(),
            node: 0,
            age: Nanos(1_500_000),
        });
        id
    }

    /// What an answer says, if that is given: of a bounded thought, its beginning. (A token is a byte.)
    fn says(&self, request: &GenerateRequest) -> Option<String> {
        let says = self.says.clone()?;
        let Some(bound) = &request.thought else { return Some(says) };
        let (opening, closing) = (bound.format.marks()[0], bound.format.closing());
        let parts = says.split_once(closing).and_then(|(thought, said)| Some((thought.strip_prefix(opening)?, said)));
        let cut = parts.map(|(thought, said)| {
            let thought = &thought[..thought.floor_char_boundary(bound.max.as_usize())];
            format!("{opening}{thought}{closing}{said}")
        });
        Some(cut.unwrap_or(says))
    }

    /// All that will come of a request. A pure function of it, seedless sampling included.
    fn events(&self, request: &GenerateRequest, room: Tokens) -> Vec<GenerationEvent> {
        let limit = request.stop.max_tokens.unwrap_or(Tokens(u32::MAX)).min(room).as_usize();
        let mut events = Vec::new();
        if request.progress == Progress::Told {
            let read = Tokens(request.prompt.len() as u32);
            events.push(GenerationEvent::Reading { read, cached: Tokens(3) });
        }
        events.extend(prompt_scores(request));
        let limit = match request.output {
            Output::Answer => limit,
            Output::KeptPrompt => 0,
            Output::Embedding => {
                events.push(GenerationEvent::Embedding(embedding(&request.prompt)));
                0
            }
        };
        let says = self.says(request);
        let (mut text, mut sent) = (String::new(), 0);
        let (mut reason, mut stopped_by) = (FinishReason::Length, None);
        for position in 0..limit {
            let said = says.as_deref().map(|text| text.as_bytes().get(position));
            let ends_turn = said.map_or(position == LENGTH, |byte| byte.is_none()) && !request.stop.ignore_eos;
            let token = match said.flatten() {
                _ if ends_turn => END_OF_TURN,
                Some(byte) => TokenId(u32::from(*byte)),
                None => wanted(request).unwrap_or_else(|| choose(request, position, 0)),
            };
            text += std::str::from_utf8(self.token_bytes(token)).expect("words are text");
            let stops = request.stop.stop.iter().enumerate();
            let stop = stops.filter_map(|(which, stop)| Some((text.find(stop.as_str())?, which))).min();
            if let Some((stop, which)) = stop {
                text.truncate(stop);
                stopped_by = Some(which);
                reason = FinishReason::Stop;
            }
            let held = request.stop.stop.iter().map(String::len).max().unwrap_or(0);
            let safe =
                if stop.is_some() { text.len() } else { text.floor_char_boundary(text.len().saturating_sub(held)) };
            let safe = safe.max(sent);
            let logprobs = request.logprobs.map(|alternatives| TokenLogprobs {
                chosen: -0.5,
                top: (0..alternatives).map(|rank| (choose(request, position, rank), -0.5 - f32::from(rank))).collect(),
            });
            events.push(GenerationEvent::Token { token, text: text[sent..safe].to_owned(), logprobs });
            sent = safe;
            if ends_turn {
                reason = FinishReason::Stop;
            }
            if reason == FinishReason::Stop {
                break;
            }
        }
        let usage = Usage {
            prompt: Tokens(request.prompt.len() as u32),
            cached: Tokens(3),
            generated: Tokens(
                events.iter().filter(|event| matches!(event, GenerationEvent::Token { .. })).count() as u32
            ),
            forced: Tokens::ZERO,
            drafts: DraftCounts {
                accepted: Tokens(request.predicted.len() as u32),
                rejected: Tokens(1),
                ..DraftCounts::default()
            },
            experts: FateCounts::default(),
            expert_reads: ExpertReads::default(),
            stopped_by,
            time_to_first_token: Duration::from_millis(1),
            total: Duration::from_millis(2),
        };
        events.push(GenerationEvent::Finished { text: text[sent..].to_owned(), reason, usage });
        events
    }
}

/// How likely a prompt is, a few tokens at a time: what stands there is never among the likeliest.
fn prompt_scores(request: &GenerateRequest) -> Vec<GenerationEvent> {
    let Some(alternatives) = request.prompt_logprobs else { return Vec::new() };
    let of = |position: usize| TokenLogprobs {
        chosen: -2.5,
        top: (0..alternatives).map(|rank| (choose(request, position, rank), -0.5 - f32::from(rank))).collect(),
    };
    let tokens = request.prompt.iter().enumerate();
    let told = tokens.map(|(at, &token)| PromptToken { token, logprobs: (at > 0).then(|| of(at)) });
    told.collect::<Vec<_>>().chunks(5).map(|told| GenerationEvent::Prompt(told.to_vec())).collect()
}

/// The token at a position; `rank` 0 is the chosen one.
fn choose(request: &GenerateRequest, position: usize, rank: u8) -> TokenId {
    let mut hasher = DefaultHasher::new();
    let seed = if request.sampling.temperature == 0.0 { None } else { request.sampling.seed };
    (seed, &request.prompt, position).hash(&mut hasher);
    let word = (hasher.finish() + u64::from(rank)) % WORDS.len() as u64;
    TokenId(256 + word as u32)
}

/// How often each of a few remainders occurs, at a length of 1.
pub(crate) fn embedding(prompt: &[TokenId]) -> Vec<f32> {
    let mut counts = vec![0.0_f32; EMBEDDING_WIDTH];
    prompt.iter().for_each(|token| counts[token.0 as usize % EMBEDDING_WIDTH] += 1.0);
    let length = counts.iter().map(|count| count * count).sum::<f32>().sqrt();
    counts.into_iter().map(|count| count / length).collect()
}

/// The token that a request insists on, if it does.
fn wanted(request: &GenerateRequest) -> Option<TokenId> {
    request.sampling.logit_bias.iter().find(|(_, bias)| *bias >= 100.0).map(|(token, _)| *token)
}

/// A request that stands in its flow until this is dropped; then its prompt is kept.
struct Open {
    flows: Arc<Mutex<Vec<FlowView>>>,
    request: RequestId,
}

impl Drop for Open {
    fn drop(&mut self) {
        for flow in lock(&self.flows).iter_mut() {
            let ended = flow.requests.extract_if(.., |request| request.request == self.request);
            let kept = |request: RequestView| KeptView { tokens: request.prompt, pages: 1, place: KvPlace::Memory };
            flow.kept.extend(ended.map(kept));
        }
    }
}

fn lock(flows: &Mutex<Vec<FlowView>>) -> MutexGuard<'_, Vec<FlowView>> {
    flows.lock().expect("no test panicked")
}

struct FakeEvents {
    receiver: mpsc::UnboundedReceiver<GenerationEvent>,
    ended: bool,
    cancelled: watch::Sender<usize>,
    _open: Open,
}

impl Events for FakeEvents {
    fn next(&mut self) -> EventFuture<'_> {
        Box::pin(async {
            let event = self.receiver.recv().await;
            self.ended = !matches!(event, Some(GenerationEvent::Token { .. }));
            event
        })
    }
}

impl Drop for FakeEvents {
    fn drop(&mut self) {
        if !self.ended {
            self.cancelled.send_modify(|count| *count += 1);
        }
    }
}

pub(crate) const EMBEDDING_WIDTH: usize = 4;
/// Tokens until the model ends its turn, which takes one token more.
pub(crate) const LENGTH: usize = 20;
const WORDS: [&str; 8] = [" north", " south", " east", " west", " naïve", " €", " up", " down"];
/// A token without text.
const END_OF_TURN: TokenId = TokenId(256 + WORDS.len() as u32);
static VOCABULARY: std::sync::LazyLock<Vec<Vec<u8>>> = std::sync::LazyLock::new(|| {
    (0..=255).map(|byte| vec![byte]).chain(WORDS.iter().map(|word| word.as_bytes().to_vec())).chain([vec![]]).collect()
});
