//! The labels of metrics. All values are of small closed sets: no label names a request, a flow or a tenant.

use duet_driver::{LoadEnd, Origin};
use duet_scheduler::progressive::Role;
use duet_scheduler::{End, Line};
use duet_types::{Class, FinishReason, Stage};
use prometheus_client::encoding::EncodeLabelSet;

/// `class="reactive"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfClass {
    class: &'static str,
}

/// `class="reactive",stage="decode"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfStage {
    class: &'static str,
    stage: &'static str,
}

/// `stage="decode"`, of any class.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfAnyStage {
    stage: &'static str,
}

/// `class="reactive",outcome="stop"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfEnd {
    class: &'static str,
    outcome: &'static str,
}

/// `outcome="failed"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfSpill {
    outcome: &'static str,
}

/// `graph="decode",outcome="failed"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfLoad {
    graph: &'static str,
    outcome: &'static str,
}

/// `from="disk"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfOrigin {
    from: &'static str,
}

/// `use="valid"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfUse {
    r#use: &'static str,
}

impl OfUse {
    pub(super) const VALID: Self = Self { r#use: "valid" };
    pub(super) const WASTED: Self = Self { r#use: "wasted" };
    pub(super) const UNDERUTILISED: Self = Self { r#use: "underutilised" };
}

/// `lane="cpu0"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfLane {
    pub(super) lane: String,
}

impl OfClass {
    pub(super) const ALL: [Class; 2] = [Class::Reactive, Class::Proactive];
}

impl From<Class> for OfClass {
    fn from(class: Class) -> Self {
        Self { class: class_name(class) }
    }
}

impl From<(Class, Stage)> for OfStage {
    fn from((class, stage): (Class, Stage)) -> Self {
        Self { class: class_name(class), stage: stage_name(stage) }
    }
}

impl OfStage {
    /// A queue, if a request in it waits for something.
    pub(super) fn of_line(class: Class, line: Line) -> Option<Self> {
        let stage = match line {
            Line::Queued => "queued",
            Line::Prefill => stage_name(Stage::Prefill),
            Line::Decode => stage_name(Stage::Decode),
            Line::Away => return None,
        };
        Some(Self { class: class_name(class), stage })
    }
}

impl From<Stage> for OfAnyStage {
    fn from(stage: Stage) -> Self {
        Self { stage: stage_name(stage) }
    }
}

impl OfEnd {
    pub(super) const ALL: [End; 4] = [
        End::Finished(FinishReason::Stop),
        End::Finished(FinishReason::Length),
        End::Finished(FinishReason::Cancelled),
        End::Failed,
    ];
}

impl From<(Class, End)> for OfEnd {
    fn from((class, end): (Class, End)) -> Self {
        let outcome = match end {
            End::Finished(FinishReason::Stop) => "stop",
            End::Finished(FinishReason::Length) => "length",
            End::Finished(FinishReason::Cancelled) => "cancelled",
            End::Failed => "failed",
        };
        Self { class: class_name(class), outcome }
    }
}

impl OfSpill {
    pub(super) const DONE: Self = Self { outcome: "done" };
    pub(super) const FAILED: Self = Self { outcome: "failed" };
}

impl OfLoad {
    pub(super) const ALL: [Self; 4] = [
        Self { graph: "prefill", outcome: "done" },
        Self { graph: "prefill", outcome: "failed" },
        Self { graph: "decode", outcome: "done" },
        Self { graph: "decode", outcome: "failed" },
    ];
}

impl From<(Role, LoadEnd)> for OfLoad {
    fn from((role, end): (Role, LoadEnd)) -> Self {
        let graph = match role {
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        };
        let outcome = match end {
            LoadEnd::Done => "done",
            LoadEnd::Failed => "failed",
        };
        Self { graph, outcome }
    }
}

impl From<Origin> for OfOrigin {
    fn from(origin: Origin) -> Self {
        let from = match origin {
            Origin::Nowhere => "nowhere",
            Origin::Memory => "memory",
            Origin::Disk => "disk",
            Origin::Own => "own",
        };
        Self { from }
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Reactive => "reactive",
        Class::Proactive => "proactive",
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Prefill => "prefill",
        Stage::Decode => "decode",
        Stage::Verify => "verify",
    }
}
