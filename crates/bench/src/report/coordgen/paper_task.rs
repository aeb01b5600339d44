//! The paper's four tasks, and the workloads that stand for them. (CoordGen §4.1)

use crate::traces::Task;
use std::fmt;

/// A task of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaperTask {
    /// Documents to be summarised.
    Summary,
    /// Questions with retrieved passages.
    Rag,
    /// Steps on a phone's screen.
    Ui,
    /// Messages to be answered.
    Tweet,
}

impl PaperTask {
    /// All of them, in the paper's order.
    pub(super) const ALL: [Self; 4] = [Self::Summary, Self::Rag, Self::Ui, Self::Tweet];

    /// What a workload stands for, by its name.
    pub(super) fn of(task: &Task) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.workload() == task.name)
    }

    fn workload(self) -> &'static str {
        match self {
            Self::Summary => "coord_summary",
            Self::Rag => "coord_rag",
            Self::Ui => "ui_droidtask",
            Self::Tweet => "reply_tweet",
        }
    }
}

impl fmt::Display for PaperTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Summary => "summary",
            Self::Rag => "rag",
            Self::Ui => "ui",
            Self::Tweet => "tweet",
        })
    }
}
