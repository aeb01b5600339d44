//! What progressive scheduling is compared with, as plans of the same kind. (CoordGen §3.2, Figure 8b; sd.npu §3.1)
//!
//! One graph for both stages pads every pass to its rows. Both graphs resident hold the weights twice. The synchronous
//! switch loads all decode graphs when the prompt is read. The naive asynchronous one loads each as soon as its block has
//! computed the last chunk.

use super::blocks::{Blocks, Role};
use super::plan::{Exchange, Load, Plan};
use super::problem::{Problem, ProblemError, Resident, check};
use super::prompt::{Place, Prompt};

/// One graph for both stages.
///
/// # Errors
/// If the prompt cannot be.
pub fn shared(blocks: &Blocks, prompt: Prompt, role: Role) -> Result<Plan, ProblemError> {
    resident(blocks, prompt, Resident::One(role))
}

/// Both graphs, from the beginning.
///
/// # Errors
/// If the prompt cannot be.
pub fn both_resident(blocks: &Blocks, prompt: Prompt) -> Result<Plan, ProblemError> {
    resident(blocks, prompt, Resident::Both)
}

/// The synchronous switch.
#[must_use]
pub fn synchronous(problem: &Problem<'_>) -> Plan {
    let end = problem.prompt.end(problem.blocks);
    plan(problem, problem.unswitched().into_iter().map(|block| load(block, end)).collect())
}

/// The naive asynchronous switch.
#[must_use]
pub fn asynchronous(problem: &Problem<'_>) -> Plan {
    plan(problem, problem.unswitched().into_iter().map(|block| load(block, after_last(problem, block))).collect())
}

/// The place where a block has computed its last chunk.
pub(super) fn after_last(problem: &Problem<'_>, block: usize) -> Place {
    let chunk = problem.prompt.chunks(problem.blocks).saturating_sub(1);
    Place { chunk, block }.next(problem.blocks.count())
}

pub(super) fn load(block: usize, at: Place) -> Load {
    Load { block, role: Role::Decode, at }
}

/// A plan of these loads. None is put off behind one of a later place: the block that waits for it would wait for ever.
pub(super) fn plan(problem: &Problem<'_>, mut loads: Vec<Load>) -> Plan {
    let mut latest = Place::START;
    for load in &mut loads {
        latest = latest.max(load.at);
        load.at = latest;
    }
    let initial = problem.resident.iter().map(|&role| Resident::One(role)).collect();
    Plan { prompt: problem.prompt, initial, loads, exchange: problem.exchange }
}

fn resident(blocks: &Blocks, prompt: Prompt, resident: Resident) -> Result<Plan, ProblemError> {
    check(prompt)?;
    let initial = vec![resident; blocks.count()];
    Ok(Plan { prompt, initial, loads: Vec::new(), exchange: Exchange::InPlace })
}
