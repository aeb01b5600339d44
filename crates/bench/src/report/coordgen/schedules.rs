//! Ways to come from the graphs that read prompts to those that decode, as the scheduler plans and predicts them.

use duet_scheduler::progressive::{
    Blocks, Plan, Problem, Prompt, Timeline, asynchronous, both_resident, exact, greedy, just_in_time, synchronous,
};
use duet_types::Tokens;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// Both graphs of each block are resident: there is nothing to do.
    Both,
    /// All are loaded when the prompt is read.
    Synchronous,
    /// Each is loaded when its block has computed the last chunk.
    Asynchronous,
    /// The paper's greedy rule.
    Greedy,
    /// The latest start that hides the loads, with room for one graph of each block.
    JustInTime,
    /// The same with room for a graph more.
    Beside,
    /// The best of all plans with room for one graph of each block, where there are few blocks and chunks.
    Optimal,
}

impl Schedule {
    /// All that exchange graphs.
    pub(super) const EXCHANGING: [Self; 5] =
        [Self::Synchronous, Self::Asynchronous, Self::Greedy, Self::JustInTime, Self::Beside];

    /// What the page calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Both => "both resident",
            Self::Synchronous => "synchronous",
            Self::Asynchronous => "asynchronous",
            Self::Greedy => "the paper's rule",
            Self::JustInTime => "latest start",
            Self::Beside => "one graph more",
            Self::Optimal => "the optimum",
        }
    }

    /// What it takes for a prompt of `prompt` tokens.
    pub(super) fn timeline(self, blocks: &Blocks, prompt: u32) -> Timeline {
        let rows = Tokens(prompt.clamp(1, Blocks::POSITIONS_MAX.0));
        Timeline::of(&self.plan(blocks, Prompt { context: Tokens::ZERO, rows }), blocks)
    }

    /// Seconds until such a prompt is read and the graphs that decode are there.
    pub(super) fn ready(self, blocks: &Blocks, prompt: u32) -> f64 {
        self.timeline(blocks, prompt).ready().0 as f64 / 1e9
    }

    fn plan(self, blocks: &Blocks, prompt: Prompt) -> Plan {
        let problem = match self {
            Self::Beside => Problem::beside(blocks, prompt),
            _ => Problem::in_place(blocks, prompt),
        };
        let problem = problem.expect("a prompt that was clamped can be read");
        match self {
            Self::Both => both_resident(blocks, prompt).expect("a prompt that was clamped can be read"),
            Self::Synchronous => synchronous(&problem),
            Self::Asynchronous => asynchronous(&problem),
            Self::Greedy => greedy(&problem),
            Self::JustInTime | Self::Beside => just_in_time(&problem),
            Self::Optimal => exact(&problem).unwrap_or_else(|| just_in_time(&problem)),
        }
    }
}
