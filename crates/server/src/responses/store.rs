//! Responses that clients may come back to: in memory only, and bounded.
//!
//! **Invariant:** a user's responses are at most [`RESPONSES_MAX`] with at most [`BYTES_MAX`] bytes; where there would be
//! more, the oldest that have ended are dropped. What is under way is bounded apart from that. No user sees, or makes room at the cost of, another's.
//! **Invariant:** work in the background goes on for as long as its response is open here, and no longer.
//!
//! Each response has all of the conversation that ends with it, so it does not need those before it. What conversations have in
//! common is shared, but counted in each: the bound holds whatever is dropped.

use super::items::KeptItem;
use crate::error::ApiError;
use crate::intake::{Hold, Intake};
use duet_types::TenantId;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Items that came together: a request's input, or its answer.
pub(crate) type Items = Arc<[KeptItem]>;

/// The responses of all users.
#[derive(Debug)]
pub(crate) struct Store {
    shelves: Mutex<HashMap<TenantId, Shelf>>,
    /// What large requests hold while they are answered: of their input, and of what their responses say of them.
    under_way: Intake,
}

impl Default for Store {
    fn default() -> Self {
        Self { shelves: Mutex::default(), under_way: Intake::new(UNDER_WAY_BYTES_MAX) }
    }
}

/// A response that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) response: Value,
    pub(crate) input: Items,
    /// The conversation to its end: what was before it, its input, its answer.
    pub(crate) conversation: Vec<Items>,
    pub(crate) state: Ended,
}

/// Whether a conversation can go on from a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Answered,
    Failed,
}

/// One user's responses.
#[derive(Debug, Default)]
struct Shelf {
    /// By age.
    entries: BTreeMap<u64, Entry>,
    /// Places in `entries`.
    places: HashMap<Arc<str>, u64>,
    next_place: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    id: Arc<str>,
    response: Arc<str>,
    input: Items,
    conversation: Vec<Items>,
    state: State,
    bytes: usize,
}

#[derive(Debug)]
enum State {
    /// Under way in the background. Dropping this ends the work.
    Open {
        _stop: oneshot::Sender<()>,
    },
    Ended {
        how: Ended,
        was: Delivered,
    },
}

/// How a response that has ended was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivered {
    Directly,
    InBackground,
}

impl Store {
    /// Room for a request of so many bytes, for as long as it is answered.
    ///
    /// # Errors
    /// [`ApiError::IntakeFull`] if other requests have it.
    pub(crate) fn hold(&self, bytes: usize) -> Result<Hold, ApiError> {
        let mut hold = self.under_way.hold();
        hold.grow(bytes)?;
        Ok(hold)
    }

    /// Keeps a response that was answered directly.
    pub(crate) fn keep(&self, tenant: TenantId, id: &str, finished: Finished) {
        let state = State::Ended { how: finished.state, was: Delivered::Directly };
        self.with(tenant, |shelf| shelf.put(Entry::new(id, finished, state)));
    }

    /// Opens a response in the background. What comes back is told, or dropped, when the work is to end.
    pub(crate) fn open(&self, tenant: TenantId, id: &str, response: Value, input: Items) -> oneshot::Receiver<()> {
        let (stop, stopped) = oneshot::channel();
        let open = Finished { response, input, conversation: Vec::new(), state: Ended::Answered };
        self.with(tenant, |shelf| shelf.put(Entry::new(id, open, State::Open { _stop: stop })));
        stopped
    }

    /// Says how an open response stands. Does nothing if it is not open.
    pub(crate) fn update(&self, tenant: TenantId, id: &str, response: &Value) {
        self.with(tenant, |shelf| {
            if let Some(entry) = shelf.entry(id)
                && matches!(entry.state, State::Open { .. })
            {
                entry.response = response.to_string().into();
            }
        });
    }

    /// Ends an open response. Does nothing if it is not open.
    pub(crate) fn finish(&self, tenant: TenantId, id: &str, finished: Finished) {
        self.with(tenant, |shelf| {
            if shelf.entry(id).is_some_and(|entry| matches!(entry.state, State::Open { .. })) {
                let state = State::Ended { how: finished.state, was: Delivered::InBackground };
                shelf.remove(id);
                shelf.put(Entry::new(id, finished, state));
            }
        });
    }

    /// Ends an open response that nobody works on any more: its status becomes `status`. Does nothing if it is not open.
    pub(crate) fn give_up(&self, tenant: TenantId, id: &str, status: &'static str) {
        self.with(tenant, |shelf| {
            if let Some(entry) = shelf.entry(id) {
                entry.give_up(status);
            }
        });
    }

    /// A response as JSON.
    pub(crate) fn response(&self, tenant: TenantId, id: &str) -> Result<Arc<str>, ApiError> {
        self.found(tenant, id, |entry| Ok(Arc::clone(&entry.response)))
    }

    /// What a response was an answer to.
    pub(crate) fn input(&self, tenant: TenantId, id: &str) -> Result<Items, ApiError> {
        self.found(tenant, id, |entry| Ok(Arc::clone(&entry.input)))
    }

    /// The conversation that a response ends, to go on from there.
    pub(crate) fn conversation(&self, tenant: TenantId, id: &str) -> Result<Vec<Items>, ApiError> {
        const PARAM: &str = "previous_response_id";
        let state = |why| Err(ApiError::ResponseState { id: id.to_owned(), param: Some(PARAM), why });
        let found = self.found(tenant, id, |entry| match entry.state {
            State::Ended { how: Ended::Answered, .. } => Ok(entry.conversation.clone()),
            State::Ended { .. } => state("has no answer to go on from"),
            State::Open { .. } => state("has not ended yet"),
        });
        found.map_err(|error| match error {
            ApiError::ResponseNotFound { id, .. } => ApiError::ResponseNotFound { id, param: Some(PARAM.to_owned()) },
            error => error,
        })
    }

    /// Items by their ids, of any of a user's conversations; the last that has the id.
    pub(crate) fn items(&self, tenant: TenantId, ids: &HashSet<&str>) -> HashMap<Arc<str>, KeptItem> {
        self.with(tenant, |shelf| {
            let all = shelf.entries.values().flat_map(|entry| &entry.conversation).flat_map(|items| items.iter());
            let wanted = all.filter(|item| ids.contains(&*item.id));
            wanted.map(|item| (Arc::clone(&item.id), item.clone())).collect()
        })
    }

    /// Forgets a response; work on it ends.
    pub(crate) fn remove(&self, tenant: TenantId, id: &str) -> Result<(), ApiError> {
        let removed = self.with(tenant, |shelf| shelf.remove(id));
        removed.map(drop).ok_or_else(|| not_found(id))
    }

    /// Ends work in the background. What has ended stays as it is.
    pub(crate) fn cancel(&self, tenant: TenantId, id: &str) -> Result<Arc<str>, ApiError> {
        self.found(tenant, id, |entry| {
            if let State::Ended { was: Delivered::Directly, .. } = entry.state {
                let why = "was not asked for in the background, so there is nothing to cancel";
                return Err(ApiError::ResponseState { id: id.to_owned(), param: None, why });
            }
            entry.give_up("cancelled");
            Ok(Arc::clone(&entry.response))
        })
    }

    fn found<T>(
        &self,
        tenant: TenantId,
        id: &str,
        look: impl FnOnce(&mut Entry) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        self.with(tenant, |shelf| shelf.entry(id).map_or_else(|| Err(not_found(id)), look))
    }

    fn with<T>(&self, tenant: TenantId, act: impl FnOnce(&mut Shelf) -> T) -> T {
        let mut shelves: MutexGuard<'_, _> = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        act(shelves.entry(tenant).or_default())
    }
}

impl Shelf {
    fn entry(&mut self, id: &str) -> Option<&mut Entry> {
        self.places.get(id).and_then(|place| self.entries.get_mut(place))
    }

    fn put(&mut self, entry: Entry) {
        let place = self.next_place;
        self.next_place += 1;
        self.bytes += entry.bytes;
        self.places.insert(Arc::clone(&entry.id), place);
        self.entries.insert(place, entry);
        while self.entries.len() > RESPONSES_MAX || self.bytes > BYTES_MAX {
            let ended = self.entries.values().find(|entry| matches!(entry.state, State::Ended { .. }));
            let Some(oldest) = ended.map(|entry| Arc::clone(&entry.id)) else { break };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, id: &str) -> Option<Entry> {
        let removed = self.entries.remove(&self.places.remove(id)?)?;
        self.bytes -= removed.bytes;
        Some(removed)
    }
}

impl Entry {
    fn new(id: &str, finished: Finished, state: State) -> Self {
        let Finished { response, input, conversation, .. } = finished;
        let response: Arc<str> = response.to_string().into();
        let of_items =
            |items: &Items| items.iter().map(|item| item.id.len() + item.json.len() + ITEM_BYTES).sum::<usize>();
        let held: usize = conversation.iter().map(of_items).sum();
        let bytes = response.len() + held + of_items(&input) + ITEM_BYTES;
        Self { id: id.into(), response, input, conversation, state, bytes }
    }

    fn give_up(&mut self, status: &'static str) {
        if !matches!(self.state, State::Open { .. }) {
            return;
        }
        if let Ok(mut response) = serde_json::from_str::<Value>(&self.response) {
            response["status"] = status.into();
            self.response = response.to_string().into();
        }
        self.state = State::Ended { how: Ended::Failed, was: Delivered::InBackground };
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::ResponseNotFound { id: id.chars().take(ID_CHARS_MAX).collect(), param: None }
}

/// Of one user. Agents come back to the last few; a day of them is kept.
const RESPONSES_MAX: usize = 1024;
/// Of one user; several of the longest conversations, or all responses of the usual length.
const BYTES_MAX: usize = 32 << 20;
/// Of all users. Some hundred conversations of the usual length, each request of which comes whole.
const UNDER_WAY_BYTES_MAX: usize = 64 << 20;
/// What an item costs beside its text.
const ITEM_BYTES: usize = 128;
/// A client may have sent a megabyte for an id.
const ID_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const USER: TenantId = TenantId(1);

    fn finished(text: &str) -> Finished {
        let item = KeptItem { id: "msg_1".into(), json: text.into() };
        let items: Items = [item].into();
        let (response, input) = (json!({"status": "completed"}), Arc::clone(&items));
        Finished { response, input, conversation: vec![items], state: Ended::Answered }
    }

    #[test]
    fn the_oldest_make_room_and_work_that_goes_on_does_not() {
        let store = Store::default();
        let mut stopped = store.open(USER, "open", json!({"status": "queued"}), Arc::new([]));
        for number in 0..2 * RESPONSES_MAX {
            store.keep(USER, &number.to_string(), finished("x"));
        }
        assert!(store.response(USER, "0").is_err());
        assert!(store.response(USER, &(2 * RESPONSES_MAX - 1).to_string()).is_ok());
        assert!(
            store.response(USER, "open").is_ok()
                && stopped.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
        );
        let large = "x".repeat(BYTES_MAX / 5);
        (0..10).for_each(|number| store.keep(USER, &format!("large {number}"), finished(&large)));
        assert!(store.response(USER, "large 7").is_err() && store.response(USER, "large 9").is_ok());
        store.keep(USER, "too large", finished(&"x".repeat(BYTES_MAX)));
        assert!(store.response(USER, "too large").is_err());
        let held = store.with(USER, |shelf| shelf.entries.values().map(|entry| entry.bytes).sum::<usize>());
        assert_eq!(held, store.with(USER, |shelf| shelf.bytes));
    }

    #[test]
    fn users_do_not_see_each_other() {
        let store = Store::default();
        store.keep(USER, "mine", finished("x"));
        assert!(store.response(TenantId(2), "mine").is_err() && store.remove(TenantId(2), "mine").is_err());
        assert!(store.items(TenantId(2), &HashSet::from(["msg_1"])).is_empty());
        assert_eq!(store.items(USER, &HashSet::from(["msg_1"])).len(), 1);
        assert!(store.remove(USER, "mine").is_ok() && store.response(USER, "mine").is_err());
    }

    #[test]
    fn what_is_cancelled_stays_so_and_its_work_ends() {
        let store = Store::default();
        let mut stopped = store.open(USER, "open", json!({"status": "queued"}), Arc::new([]));
        assert!(store.conversation(USER, "open").is_err());
        assert!(store.cancel(USER, "open").is_ok_and(|response| response.contains("cancelled")));
        assert!(stopped.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        store.finish(USER, "open", finished("x"));
        assert!(store.response(USER, "open").is_ok_and(|response| response.contains("cancelled")));
        store.keep(USER, "direct", finished("x"));
        assert!(store.cancel(USER, "direct").is_err());
    }
}
