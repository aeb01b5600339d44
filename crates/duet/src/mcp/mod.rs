//! The engine as tools of the Model Context Protocol, for other agents that have work to push into the background.
//!
//! `tools` says what there is and reads what is asked (`arguments`); `work` asks the model. `commands/mcp.rs` speaks over
//! stdin and stdout.
//!
//! **Invariant:** all that is generated is of the proactive class, has a limit of tokens, and is owned by its call: a call
//! that is cancelled is dropped, and with it the generation.
//! **Invariant:** an argument is honoured or refused by its name; none is dropped silently. Refusals are results of the
//! tool (`isError`), which the client's model reads and can mend; only a tool that does not exist is an error of the
//! protocol.

mod arguments;
mod classify;
mod tools;
mod work;

use arguments::Refusal;
use duet_server::EngineBackend;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use std::sync::Arc;
use tokio::sync::watch;
use tools::Call;
use work::Worker;

/// Answers clients, as soon as there is a model.
pub(crate) struct AgentTools {
    /// Absent while the model loads.
    backend: watch::Receiver<Option<Arc<EngineBackend>>>,
}

impl AgentTools {
    /// Tools of the model that is to come.
    pub(crate) fn new(backend: watch::Receiver<Option<Arc<EngineBackend>>>) -> Self {
        Self { backend }
    }

    /// Waits for the model, and does what is asked.
    async fn work(&self, call: Call) -> Result<CallToolResult, Refusal> {
        let mut backend = self.backend.clone();
        let loaded = backend.wait_for(Option::is_some).await.ok().and_then(|backend| backend.clone());
        let backend = loaded.ok_or_else(|| Refusal("the model was not loaded".to_owned()))?;
        call.answer(&Worker::new(backend)).await
    }
}

impl ServerHandler for AgentTools {
    fn get_info(&self) -> ServerConfig {
        let name = Implementation::new("duet", env!("CARGO_PKG_VERSION")).with_title("duet: a model on this machine");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(name)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let Some(read) = tools::read(&request.name, arguments) else {
            let name: String = request.name.chars().take(NAME_CHARS_MAX).collect();
            let known = tools::NAMES.join(", ");
            return Err(ErrorData::invalid_params(format!("there is no tool {name:?}; there are {known}"), None));
        };
        let work = async { self.work(read?).await };
        let done = tokio::select! {
            done = work => done,
            // Nobody reads this answer.
            () = context.ct.cancelled() => Err(Refusal("the call was cancelled".to_owned())),
        };
        let result = done.unwrap_or_else(|Refusal(why)| CallToolResult::error(vec![ContentBlock::text(why)]));
        Ok(result.into())
    }
}

const INSTRUCTIONS: &str = "A small language model on the person's own machine, for work that nobody waits for: nothing \
    leaves the machine, and calls may take from seconds to minutes. Several calls at once are batched.";
/// Longer names are cut in messages.
const NAME_CHARS_MAX: usize = 64;
