//! Chat templates: a conversation to the text that a model was trained on.
//!
//! The template is a program in the model file, in Jinja as Hugging Face runs it; the golden tests compare with real
//! Jinja2. **Invariants.** A template is compiled once. Rendering has no effect outside its result: a template reads no
//! file, and of the world it sees only the date. Steps, nesting and output are bounded, so a template in a loop is
//! stopped with [`TemplateError::Limit`]. Not bounded is memory *inside* a rendering: a hostile template that
//! doubles a string can fill it, as it could under Jinja2. Take model files from people you trust.

mod calendar;
mod environment;
mod error;
mod message;
mod output;
mod python;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use minijinja::value::Serde;
use minijinja::{Environment, context};

pub use error::TemplateError;
pub use message::{ChatMessage, Turn};

/// A chat template, compiled.
pub struct ChatTemplate {
    /// Or why there is none.
    environment: Result<Environment<'static>, String>,
    source: String,
    /// Of conversations with tools, if the file has another one for them.
    with_tools: Option<Box<ChatTemplate>>,
    bos: String,
    eos: String,
}

/// The name of the only template in the environment. It has no ending that would ask for HTML.
const NAME: &str = "chat";

/// Address space, not memory: pages come when they are touched. A level of nesting takes up to 160 bytes (measured
/// for minijinja 3.0), and there are no more levels than [`environment::FUEL`].
const STACK_BYTES: usize = 256 << 20;

/// What most models without a template were trained on.
const CHATML: &str = include_str!("chatml.jinja");

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of those tokens, which templates write themselves.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        Self::with_clock(source, bos, eos, Arc::new(SystemTime::now))
    }

    /// As [`Self::new`]. One that cannot be read is an error of whoever renders: a model without a conversation needs none.
    #[must_use]
    pub fn even_unreadable(source: &str, bos: &str, eos: &str) -> Self {
        Self::new(source, bos, eos).unwrap_or_else(|error| {
            let why = match error {
                TemplateError::Syntax(why) => why,
                other => other.to_string(),
            };
            let (source, bos, eos) = (source.to_owned(), bos.to_owned(), eos.to_owned());
            Self { environment: Err(why), source, with_tools: None, bos, eos }
        })
    }

    /// The same with another template for conversations in which tools are told, called or answer.
    #[must_use]
    pub fn with_tools(self, template: Self) -> Self {
        Self { with_tools: Some(Box::new(template)), ..self }
    }

    /// The ChatML template, for models that bring none: every message as
    /// `<|im_start|>role\ncontent<|im_end|>\n`. Tools are not told.
    #[must_use]
    pub fn chatml() -> Self {
        // A constant that the tests compile.
        Self::new(CHATML, "<|im_start|>", "<|im_end|>").expect("ChatML is a template")
    }

    /// The same template at a time that stands still, so that what it renders can be compared.
    pub fn at(self, now: SystemTime) -> Result<Self, TemplateError> {
        let template = Self::with_clock(&self.source, &self.bos, &self.eos, Arc::new(move || now))?;
        let with_tools = self.with_tools.map(|template| template.at(now).map(Box::new)).transpose()?;
        Ok(Self { with_tools, ..template })
    }

    /// The text of the template.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of the template for conversations with tools, which tells how calls are written.
    #[must_use]
    pub fn source_with_tools(&self) -> &str {
        self.with_tools.as_ref().map_or(&self.source, |template| &template.source)
    }

    /// The prompt for a conversation. `tools` are JSON schemas in a list, as in the OpenAI API.
    ///
    /// The text holds special tokens and is to be encoded with them parsed. Takes some ten microseconds and one more
    /// per message, and a thread for that long.
    pub fn render(
        &self,
        messages: &[ChatMessage],
        tools: Option<&serde_json::Value>,
        turn: Turn,
    ) -> Result<String, TemplateError> {
        self.render_with(messages, tools, turn, &serde_json::Map::new())
    }

    /// The same for a template that is told more, by the names that it knows: `enable_thinking`, for example. Messages and
    /// what else it is told by [`Self::render`] cannot be told otherwise.
    pub fn render_with(
        &self,
        messages: &[ChatMessage],
        tools: Option<&serde_json::Value>,
        turn: Turn,
        told: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<String, TemplateError> {
        let has_tools = tools.is_some() || messages.iter().any(ChatMessage::is_of_tools);
        if let Some(template) = self.with_tools.as_ref().filter(|_| has_tools) {
            return template.render_with(messages, tools, turn, told);
        }
        // A template can nest values as deep as it has steps, and dropping or comparing them recurses.
        // A stack for the deepest is too much to ask of every caller.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("chat template".into()).stack_size(STACK_BYTES);
            let rendering = thread.spawn_scoped(scope, || self.render_here(messages, tools, turn, told))?;
            rendering.join().unwrap_or_else(|_| Err(TemplateError::Render("the template engine panicked".into())))
        })
    }

    fn render_here(
        &self,
        messages: &[ChatMessage],
        tools: Option<&serde_json::Value>,
        turn: Turn,
        told: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<String, TemplateError> {
        let environment = self.environment.as_ref().map_err(|why| TemplateError::Syntax(why.clone()))?;
        let template = environment.get_template(NAME).map_err(|error| TemplateError::from_render(&error))?;
        let values = context! {
            messages => Serde(messages),
            tools => Serde(tools),
            documents => (),
            add_generation_prompt => turn == Turn::Generate,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            ..minijinja::Value::from(Serde(told))
        };
        let mut output = output::Bounded::default();
        let rendered = template.render_captured_to(values, &mut output);
        if output.is_full() {
            return Err(TemplateError::Limit("it writes too much"));
        }
        rendered.map_err(|error| TemplateError::from_render(&error))?;
        Ok(output.into_text())
    }

    fn with_clock(source: &str, bos: &str, eos: &str, clock: environment::Clock) -> Result<Self, TemplateError> {
        let mut environment = environment::environment(clock).map_err(|error| TemplateError::from_syntax(&error))?;
        environment
            .add_template_owned(NAME, environment::without_training_tags(source))
            .map_err(|error| TemplateError::from_syntax(&error))?;
        let (source, bos, eos) = (source.to_owned(), bos.to_owned(), eos.to_owned());
        Ok(Self { environment: Ok(environment), source, with_tools: None, bos, eos })
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("source", &self.source)
            .field("with_tools", &self.with_tools)
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::slice;

    #[test]
    fn conversations_with_tools_have_the_template_that_is_for_them() {
        let [plain, with_tools] = ["plain{{ messages | length }}", "tools{{ messages | length }}"]
            .map(|source| ChatTemplate::new(source, "", "").unwrap());
        let template = plain.with_tools(with_tools).at(SystemTime::UNIX_EPOCH).unwrap();
        let tools = json!([]);
        let render = |messages: &[ChatMessage], tools| template.render(messages, tools, Turn::Generate).unwrap();
        let asked = ChatMessage::new("user", "What time is it?");
        let called = ChatMessage { tool_calls: Some(json!([])), ..ChatMessage::new("assistant", "") };
        let said = ChatMessage::new("tool", "noon");
        assert_eq!(render(slice::from_ref(&asked), None), "plain1");
        assert_eq!(render(slice::from_ref(&asked), Some(&tools)), "tools1");
        assert_eq!(render(&[asked.clone(), called], None), "tools2");
        assert_eq!(render(&[asked, said], None), "tools2");
        assert!(template.source().starts_with("plain") && template.source_with_tools().starts_with("tools"));
    }
}
