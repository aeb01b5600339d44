//! The items of an answer, as they come, and the events that tell of them.
//!
//! **Invariant:** at most one item is open, and it is the last; what is done does not change. The events tell all of what the
//! items hold, in its order, each with the next number.

use super::call::OpenCall;
use crate::ids::Ids;
use crate::reply::{Call, Frame, Said, Whole};
use serde_json::{Map, Value, json};

/// An answer in the making.
#[derive(Debug, Default)]
pub(crate) struct Output {
    done: Vec<Value>,
    open: Option<Open>,
    /// A call whose arguments are coming; no other item is open then.
    call: Option<OpenCall>,
    /// White space before the first word of a message: between calls it means nothing.
    blank: String,
    /// Scores of tokens that have said nothing yet, since the last thought or call: they go with the message that follows.
    early: Vec<Value>,
    /// All that was thought.
    pub(crate) reasoning: String,
    next_number: u64,
}

/// An item that grows.
#[derive(Debug)]
struct Open {
    kind: Kind,
    id: String,
    text: String,
    logprobs: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
}

/// How an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemStatus {
    Completed,
    Incomplete,
}

impl Output {
    /// An event with the next number.
    pub(crate) fn event(&mut self, name: &'static str, body: Value) -> Frame {
        let mut event = Map::new();
        event.insert("type".to_owned(), name.into());
        event.insert("sequence_number".to_owned(), self.next_number.into());
        self.next_number += 1;
        if let Value::Object(body) = body {
            event.extend(body);
        }
        Frame::named(name, &Value::Object(event))
    }

    /// Adds a piece; `logprobs` are those of the tokens that came with it.
    pub(crate) fn add(&mut self, ids: &Ids, said: Said, logprobs: Vec<Value>) -> Vec<Frame> {
        let mut frames = Vec::new();
        match said {
            Said::Text(text) => {
                let is_open = self.open.as_ref().is_some_and(|open| open.kind == Kind::Message);
                if !is_open && text.trim().is_empty() {
                    self.blank += &text;
                    self.early.extend(logprobs);
                    return frames;
                }
                self.say(ids, &text, logprobs, &mut frames);
            }
            Said::Reasoning(text) => {
                self.blank.clear();
                self.early.clear();
                self.reasoning += &text;
                self.grow(ids, Kind::Reasoning, &text, Vec::new(), &mut frames);
            }
            Said::CallBegun(call) => self.begin_call(ids, call, &mut frames),
            Said::Arguments { fragment, .. } => self.grow_call(&fragment, &mut frames),
            Said::CallEnded { whole, .. } => {
                self.early.clear();
                let status = if whole == Whole::Yes { ItemStatus::Completed } else { ItemStatus::Incomplete };
                self.end_call(status, &mut frames);
            }
        }
        frames
    }

    /// Ends the answer. One that says nothing says an empty message.
    pub(crate) fn end(&mut self, ids: &Ids, status: ItemStatus) -> Vec<Frame> {
        let mut frames = Vec::new();
        let is_silent = self.open.is_none() && self.call.is_none() && self.done.is_empty();
        if is_silent {
            self.say(ids, "", Vec::new(), &mut frames);
        }
        self.close(status, &mut frames);
        self.end_call(status, &mut frames);
        frames
    }

    /// The items that are done.
    pub(crate) fn items(&self) -> &[Value] {
        &self.done
    }

    /// Adds to a message, behind what has waited for it to begin.
    fn say(&mut self, ids: &Ids, text: &str, logprobs: Vec<Value>, frames: &mut Vec<Frame>) {
        let text = std::mem::take(&mut self.blank) + text;
        let mut scores = std::mem::take(&mut self.early);
        scores.extend(logprobs);
        self.grow(ids, Kind::Message, &text, scores, frames);
    }

    fn grow(&mut self, ids: &Ids, kind: Kind, text: &str, logprobs: Vec<Value>, frames: &mut Vec<Frame>) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(ItemStatus::Completed, frames);
            self.begin(ids, kind, frames);
        }
        let Some(open) = &mut self.open else { return };
        open.text += text;
        let (at, mut delta) = (open.place(self.done.len()), json!({"delta": text}));
        if kind == Kind::Message {
            delta["logprobs"] = logprobs.as_slice().into();
        }
        open.logprobs.extend(logprobs);
        if !text.is_empty() {
            frames.push(self.event(kind.delta_event(), with(at, delta)));
        }
    }

    fn begin(&mut self, ids: &Ids, kind: Kind, frames: &mut Vec<Frame>) {
        let open = Open { kind, id: ids.next(kind.id_prefix()), text: String::new(), logprobs: Vec::new() };
        let index = self.done.len();
        let (added, at, part) = (open.begun(), open.place(index), open.part());
        self.open = Some(open);
        frames.push(self.event("response.output_item.added", json!({"output_index": index, "item": added})));
        frames.push(self.event("response.content_part.added", with(at, json!({"part": part}))));
    }

    /// Ends what is open, if anything is.
    fn close(&mut self, status: ItemStatus, frames: &mut Vec<Frame>) {
        let Some(open) = self.open.take() else { return };
        let index = self.done.len();
        let at = open.place(index);
        let mut text = json!({"text": open.text});
        if open.kind == Kind::Message {
            text["logprobs"] = open.logprobs.as_slice().into();
        }
        frames.push(self.event(open.kind.done_event(), with(at.clone(), text)));
        frames.push(self.event("response.content_part.done", with(at, json!({"part": open.part()}))));
        self.push(open.ended(status), frames);
    }

    fn begin_call(&mut self, ids: &Ids, call: Call, frames: &mut Vec<Frame>) {
        self.close(ItemStatus::Completed, frames);
        self.blank.clear();
        self.early.clear();
        let call = OpenCall::new(ids.next("fc_"), call);
        let added = json!({"output_index": self.done.len(), "item": call.item("in_progress")});
        self.call = Some(call);
        frames.push(self.event("response.output_item.added", added));
    }

    fn grow_call(&mut self, fragment: &str, frames: &mut Vec<Frame>) {
        let index = self.done.len();
        let Some(call) = &mut self.call else { return };
        call.push(fragment);
        let delta = with(call.place(index), json!({"delta": fragment}));
        frames.push(self.event("response.function_call_arguments.delta", delta));
    }

    /// Ends the call that is open, if one is.
    fn end_call(&mut self, status: ItemStatus, frames: &mut Vec<Frame>) {
        let Some(call) = self.call.take() else { return };
        let done = with(call.place(self.done.len()), call.done());
        frames.push(self.event("response.function_call_arguments.done", done));
        self.push(call.item(status.name()), frames);
    }

    fn push(&mut self, item: Value, frames: &mut Vec<Frame>) {
        let body = json!({"output_index": self.done.len(), "item": item});
        frames.push(self.event("response.output_item.done", body));
        self.done.push(item);
    }
}

impl Open {
    /// Where its text is.
    fn place(&self, index: usize) -> Value {
        json!({"item_id": self.id, "output_index": index, "content_index": 0})
    }

    fn part(&self) -> Value {
        match self.kind {
            Kind::Message => {
                json!({"type": "output_text", "text": self.text, "annotations": [], "logprobs": self.logprobs})
            }
            Kind::Reasoning => json!({"type": "reasoning_text", "text": self.text}),
        }
    }

    fn begun(&self) -> Value {
        self.item("in_progress", json!([]))
    }

    fn ended(&self, status: ItemStatus) -> Value {
        self.item(status.name(), json!([self.part()]))
    }

    fn item(&self, status: &str, content: Value) -> Value {
        let Self { id, kind, .. } = self;
        match kind {
            Kind::Message => {
                json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
            }
            Kind::Reasoning => {
                json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": content})
            }
        }
    }
}

impl Kind {
    fn id_prefix(self) -> &'static str {
        match self {
            Self::Message => "msg_",
            Self::Reasoning => "rs_",
        }
    }

    fn delta_event(self) -> &'static str {
        match self {
            Self::Message => "response.output_text.delta",
            Self::Reasoning => "response.reasoning_text.delta",
        }
    }

    fn done_event(self) -> &'static str {
        match self {
            Self::Message => "response.output_text.done",
            Self::Reasoning => "response.reasoning_text.done",
        }
    }
}

impl ItemStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Both objects as one.
fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Said {
        Said::Text(text.to_owned())
    }

    /// Marks around thoughts and calls have scores, and say nothing.
    #[test]
    fn scores_alone_open_and_close_no_item() {
        let (mut output, ids) = (Output::default(), Ids::default());
        let score = |name: &str| vec![json!(name)];
        output.add(&ids, text(""), score("<think>"));
        output.add(&ids, Said::Reasoning("Hm.".to_owned()), score("Hm."));
        output.add(&ids, text(""), score(" "));
        output.add(&ids, Said::Reasoning(" So.".to_owned()), score("So."));
        output.add(&ids, text("\n"), score("newline"));
        output.add(&ids, text("Yes"), score("Yes"));
        output.add(&ids, text(""), score("<tool_call>"));
        let call = Call { index: 0, id: "1".to_owned(), name: "f".to_owned(), arguments: String::new() };
        output.add(&ids, Said::CallBegun(call), Vec::new());
        output.add(&ids, text(""), score(" "));
        output.add(&ids, Said::Arguments { index: 0, fragment: "{}".to_owned() }, score("{}"));
        output.add(&ids, Said::CallEnded { index: 0, whole: Whole::Yes }, Vec::new());
        output.add(&ids, text(""), score("</tool_call>"));
        output.end(&ids, ItemStatus::Completed);
        let kinds: Vec<_> = output.items().iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call"]);
        let part = &output.items()[1]["content"][0];
        assert_eq!((&part["text"], &part["logprobs"]), (&json!("\nYes"), &json!(["newline", "Yes", "<tool_call>"])));
    }
}
