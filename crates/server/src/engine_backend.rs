//! The real [`Backend`]: a running engine and its model.

use crate::backend::{About, Backend, Chat, ChatPrompt, Events, Families, PromptError};
use crate::for_template::{for_template, rules};
use crate::messages::Role;
use duet_agents::{
    Automaton, Begins, Limits, ReasoningFormat, Refused, TokenText, ToolFormat, Turn as Wanted, Vocabulary, constraint,
};
use duet_engine::{Constraint, EncodeRequest, Engine, EngineError, FlowView, GenerateRequest};
use duet_model::encoder::Encoder;
use duet_model::template::Turn;
use duet_model::tokenizer::{SpecialTokens, TooManyTokens};
use duet_types::{Class, TokenId, Tokens};
use std::sync::{Arc, OnceLock};

/// Serves what an engine runs.
#[derive(Clone)]
pub struct EngineBackend {
    engine: Engine,
    families: Families,
    /// Made for the first answer that is held to a grammar: a tenth of a second.
    vocabulary: Arc<OnceLock<Result<Vocabulary, Refused>>>,
}

impl EngineBackend {
    /// Keeps `engine` running for as long as it lives.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        let template = engine.model().template();
        let families = Families {
            tools: ToolFormat::of_template(template.source_with_tools()),
            reasoning: ReasoningFormat::of_template(template.source()),
        };
        Self { engine, families, vocabulary: Arc::default() }
    }

    fn vocabulary_of_grammars(&self) -> Result<&Vocabulary, Refused> {
        let made = self.vocabulary.get_or_init(|| {
            let model = Arc::clone(self.engine.model());
            let tokenizer = model.tokenizer();
            let all = (0..tokenizer.vocabulary() as u32).map(TokenId);
            let ends: Vec<TokenId> = all.clone().filter(|token| tokenizer.is_end_of_generation(*token)).collect();
            let texts: Vec<TokenText> = all
                .map(|token| match tokenizer.text_of_special(token) {
                    Some(name) => TokenText::Special(name.to_owned()),
                    None => TokenText::Text(tokenizer.bytes(token).to_vec()),
                })
                .collect();
            let spelled = Arc::clone(&model);
            Vocabulary::new(texts, &ends, move |text| spelled.tokenizer().encode(text, SpecialTokens::AsText))
        });
        made.as_ref().map_err(Clone::clone)
    }
}

impl EngineBackend {
    /// What the template makes of a conversation. If it refuses rules where they stand, they are told where it takes them.
    fn rendered(&self, chat: &Chat<'_>) -> Result<String, PromptError> {
        let template = self.engine.model().template();
        let render = |chat: &Chat<'_>| {
            let (messages, tools) = for_template(chat, self.families.tools);
            template.render_with(&messages, tools.as_ref(), Turn::Generate, chat.told)
        };
        render(chat).or_else(|refused| {
            let refused = PromptError::Template(refused.to_string());
            let Some(messages) = rules::at_the_beginning(chat.messages) else { return Err(refused) };
            render(&Chat { messages: &messages, ..*chat }).map_err(|_| refused)
        })
    }
}

impl std::fmt::Debug for EngineBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineBackend").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Backend for EngineBackend {
    fn model_name(&self) -> &str {
        &self.engine.model().config().name
    }

    fn about(&self) -> About<'_> {
        let model = self.engine.model();
        let config = model.config();
        About {
            architecture: &config.architecture,
            template: model.template().source(),
            context: config.context,
            weights: model.weight_bytes(),
            bos: model.tokenizer().bos(),
            eos: model.tokenizer().eos(),
        }
    }

    fn vocabulary(&self) -> usize {
        self.engine.model().tokenizer().vocabulary()
    }

    fn embedding_width(&self) -> usize {
        self.engine.model().blueprint().hidden
    }

    fn context(&self) -> Tokens {
        self.engine.context()
    }

    fn has_room(&self, class: Class) -> Result<(), EngineError> {
        self.engine.has_room(class)
    }

    fn encode_chat(&self, chat: &Chat<'_>, most: Tokens) -> Result<ChatPrompt, PromptError> {
        let model = self.engine.model();
        // Before the template takes copies of it. Templates may trim texts, and shorten what assistants said.
        let kept = chat.messages.iter().filter(|message| message.role != Role::Assistant);
        if model.tokenizer().certainly_exceeds(kept.map(|message| message.content.trim()), most) {
            return Err(TooManyTokens { most }.into());
        }
        let text = self.rendered(chat)?;
        let begins = self.families.reasoning.map_or(Begins::Outside, |format| format.begins(&text));
        let tokens = model.tokenizer().encode_prompt_within(&text, SpecialTokens::Parse, most)?;
        Ok(ChatPrompt { tokens, begins })
    }

    fn families(&self) -> Families {
        self.families
    }

    fn constrain(&self, turn: &Wanted<'_>) -> Result<Option<Constraint>, Refused> {
        let special = |name: &str| self.special(name);
        let Some(grammar) = constraint(turn, &special)? else { return Ok(None) };
        let automaton = Automaton::start(self.vocabulary_of_grammars()?, &grammar, Limits::default())?;
        Ok(Some(Constraint::new(automaton)))
    }

    fn special(&self, name: &str) -> Option<TokenId> {
        self.engine.model().tokenizer().special(name)
    }

    fn encode_mark(&self, mark: &str) -> Vec<TokenId> {
        self.engine.model().tokenizer().encode(mark, SpecialTokens::Parse)
    }

    /// What looks like a special token in a text that is expected is text.
    fn encode_answer(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        self.engine.model().tokenizer().encode_within(text, SpecialTokens::AsText, most)
    }

    /// Special tokens in the text count: whoever writes raw prompts means them.
    fn encode_text(&self, text: &str, most: Tokens) -> Result<Vec<TokenId>, TooManyTokens> {
        self.engine.model().tokenizer().encode_prompt_within(text, SpecialTokens::Parse, most)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.engine.model().tokenizer().bytes(token)
    }

    fn special_name(&self, token: TokenId) -> Option<&str> {
        self.engine.model().tokenizer().text_of_special(token)
    }

    fn submit(&self, request: GenerateRequest) -> Result<Box<dyn Events>, EngineError> {
        Ok(Box::new(self.engine.submit(request)?))
    }

    fn encoder(&self) -> Option<&Arc<Encoder>> {
        self.engine.encoder()
    }

    fn encode(&self, request: EncodeRequest) -> Result<Box<dyn Events>, EngineError> {
        Ok(Box::new(self.engine.encode(request)?))
    }

    fn flows(&self) -> Vec<FlowView> {
        self.engine.flows()
    }

    fn is_running(&self) -> bool {
        self.engine.is_running()
    }

    fn metrics(&self) -> String {
        self.engine.metrics_text()
    }
}
