//! First come, first served, one request at a time: the oldest request has the whole machine until it ends.
//!
//! It ignores class, so a short question waits for a long summary: it is the bottom line that the other policies are
//! compared with, and the simplest client of the scheduler's plumbing.

use super::{Decision, Policy, View};
use crate::command::Reason;
use crate::request_table::Lifecycle;

/// Serves requests in the order of arrival, each to its end, on all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fcfs;

impl Policy for Fcfs {
    fn decide(&self, view: &View<'_>) -> Vec<Decision> {
        let Some(oldest) = view.requests().next() else { return Vec::new() };
        if !oldest.is_idle() {
            return Vec::new();
        }
        let reason = match oldest.lifecycle() {
            Lifecycle::Queued => return vec![Decision::Begin(oldest.id())],
            Lifecycle::Restoring => return Vec::new(),
            Lifecycle::Prefilling { cached, computed, pass: None } if cached == computed => Reason::FirstCome,
            Lifecycle::Prefilling { .. } | Lifecycle::Decoding { .. } => Reason::RunsToCompletion,
        };
        assert_eq!(view.idle(), view.lanes(), "only the oldest request runs");
        vec![Decision::Launch { request: oldest.id(), lanes: view.lanes(), reason }]
    }
}
