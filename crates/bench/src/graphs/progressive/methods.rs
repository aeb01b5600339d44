//! The ways to have graphs for both stages, as plans.

use super::{CHUNK, DECODE, SHAPES};
use crate::graphs::GraphsError;
use duet_scheduler::progressive::{
    Blocks, Pair, Plan, Problem, Prompt, Role, asynchronous, both_resident, greedy, just_in_time, shared, synchronous,
};
use duet_types::Tokens;
use std::fmt;
use std::str::FromStr;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Both graphs of each block are loaded all the time.
    Both,
    /// One graph with this number of rows for both stages.
    Shared(Tokens),
    /// All graphs are exchanged when the prompt is read.
    Synchronous,
    /// Each when its block has computed the last chunk.
    Asynchronous,
    /// The paper's rule.
    Greedy,
    /// The latest start that still hides the loads. (Ours)
    LatestStart,
    /// The same with room for one graph more. (Ours)
    LatestStartBeside,
}

impl Method {
    /// All.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let switching =
            [Self::Synchronous, Self::Asynchronous, Self::Greedy, Self::LatestStart, Self::LatestStartBeside];
        [Self::Both].into_iter().chain(SHAPES.map(Self::Shared)).chain(switching).collect()
    }

    /// Whether graphs are exchanged.
    pub(super) fn exchanges(self) -> bool {
        !matches!(self, Self::Both | Self::Shared(_))
    }

    /// Rows of its graphs.
    pub(super) fn rows(self) -> Pair<Tokens> {
        match self {
            Self::Shared(rows) => Pair { prefill: CHUNK, decode: rows },
            _ => Pair { prefill: CHUNK, decode: DECODE },
        }
    }

    /// Its plan for a prompt of `rows` rows.
    pub(super) fn plan(self, blocks: &Blocks, rows: Tokens) -> Result<Plan, GraphsError> {
        let prompt = Prompt { context: Tokens::ZERO, rows };
        let in_place = || Problem::in_place(blocks, prompt);
        let plan = match self {
            Self::Both => both_resident(blocks, prompt),
            Self::Shared(_) => shared(blocks, prompt, Role::Decode),
            Self::Synchronous => in_place().map(|problem| synchronous(&problem)),
            Self::Asynchronous => in_place().map(|problem| asynchronous(&problem)),
            Self::Greedy => in_place().map(|problem| greedy(&problem)),
            Self::LatestStart => in_place().map(|problem| just_in_time(&problem)),
            Self::LatestStartBeside => Problem::beside(blocks, prompt).map(|problem| just_in_time(&problem)),
        };
        plan.map_err(GraphsError::Problem)
    }
}

/// Its name on the command line and in what is printed.
impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Both => f.write_str("both"),
            Self::Shared(rows) => write!(f, "shared-{rows}"),
            Self::Synchronous => f.write_str("synchronous"),
            Self::Asynchronous => f.write_str("asynchronous"),
            Self::Greedy => f.write_str("progressive"),
            Self::LatestStart => f.write_str("latest-start"),
            Self::LatestStartBeside => f.write_str("latest-start-beside"),
        }
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let all = Self::all();
        let names = || all.iter().map(Self::to_string).collect::<Vec<_>>().join(", ");
        let found = all.iter().copied().find(|method| method.to_string() == name);
        found.ok_or_else(|| format!("there is no method `{name}`; there are {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_their_names() {
        for method in Method::all() {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        assert!("shared-33".parse::<Method>().unwrap_err().contains("shared-32, shared-64"));
    }
}
