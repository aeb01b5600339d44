//! Trace events as they are written: Chrome's JSON.

use crate::fact::Subject;
use duet_scheduler::{End, Member};
use duet_types::{Class, FinishReason, FlowId, Instant, Nanos, RequestId, Stage, Tokens};
use serde::Serialize;

/// How many requests wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Queues {
    pub(crate) queued: usize,
    pub(crate) prefill: usize,
    pub(crate) decode: usize,
}

/// A trace event. `ph` is its kind.
#[derive(Serialize)]
pub(crate) struct TraceEvent<'a, A> {
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) cat: &'static str,
    pub(crate) ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dur: Option<f64>,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// An instant's mark is as high as its track.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) s: Option<&'static str>,
    pub(crate) args: A,
}

/// What is told of a kernel.
#[derive(Serialize)]
pub(crate) struct KernelArgs<'a> {
    pub(crate) flow: &'a [FlowId],
    pub(crate) class: &'static str,
    pub(crate) stage: &'static str,
    /// Request and positions of each member.
    pub(crate) rows: Vec<String>,
    pub(crate) nodes: String,
    /// Which rows of the pass, if not all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<String>,
    pub(crate) kernel: u64,
    pub(crate) pass: u64,
    pub(crate) predicted_us: f64,
    pub(crate) actual_us: f64,
    pub(crate) reason: String,
    pub(crate) lanes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<bool>,
}

#[derive(Serialize)]
pub(crate) struct NameArgs<'a> {
    pub(crate) name: &'a str,
}

#[derive(Serialize)]
pub(crate) struct SortArgs {
    pub(crate) sort_index: u32,
}

/// What is told of an instant.
#[derive(Default, Serialize)]
pub(crate) struct InstantArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flow: Option<FlowId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<Tokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached: Option<Tokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lasted_us: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) by: Vec<RequestId>,
}

/// `7[0..256]`: request 7, its first 256 positions.
pub(crate) fn positions(member: &Member) -> String {
    format!("{}[{}..{}]", member.request, member.rows.start, member.rows.end)
}

pub(crate) fn of(subject: Subject) -> InstantArgs {
    let Subject { request, flow, class } = subject;
    InstantArgs { request: Some(request), flow: Some(flow), class: Some(class_name(class)), ..InstantArgs::default() }
}

pub(crate) fn whose(request: RequestId) -> InstantArgs {
    InstantArgs { request: Some(request), ..InstantArgs::default() }
}

pub(crate) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Reactive => "reactive",
        Class::Proactive => "proactive",
    }
}

pub(crate) fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Prefill => "prefill",
        Stage::Decode => "decode",
        Stage::Verify => "verify",
    }
}

pub(crate) fn end_name(end: End) -> &'static str {
    match end {
        End::Finished(FinishReason::Stop | FinishReason::Length) => "ends",
        End::Finished(FinishReason::Cancelled) => "cancelled",
        End::Failed => "failed",
    }
}

pub(crate) fn micros(instant: Instant) -> f64 {
    instant.0 as f64 / 1e3
}

pub(crate) fn span_micros(span: Nanos) -> f64 {
    span.0 as f64 / 1e3
}
