//! How many blocks a model is cut into, and the rows of its two graphs: every candidate is tried with the times that were
//! profiled of it, on the requests that are to be served. (CoordGen §3.1; sd.npu §4.1)

use super::blocks::{Blocks, Pair, Role};
use super::just_in_time::just_in_time;
use super::problem::{Problem, ProblemError};
use super::prompt::Prompt;
use super::timeline::Timeline;
use duet_types::{Bytes, Nanos, Tokens};

/// A way to cut the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Candidate {
    /// Blocks (`N`).
    pub blocks: usize,
    /// Rows of the graphs (`G¹`, `G²`).
    pub rows: Pair<Tokens>,
}

/// What was profiled of a candidate, and what it is to do.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The blocks; they say which candidate it is.
    pub blocks: Blocks,
    /// The requests.
    pub uses: Vec<Use>,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Use {
    /// What is read.
    pub prompt: Prompt,
    /// Passes of the decode graph for its answer. More rows verify longer drafts, and so may take fewer.
    pub passes: u32,
}

/// What a candidate comes to, over all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Which one.
    pub candidate: Candidate,
    /// From each prompt to the end of its answer.
    pub total: Nanos,
    /// From each prompt to where it can be answered.
    pub ready: Nanos,
    /// How long the lane waited for graphs.
    pub stalled: Nanos,
    /// The most that graphs took at once.
    pub peak: Bytes,
}

/// All candidates that fit, and the best of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// In the order in which they came.
    pub points: Vec<Point>,
    /// The one with the least total; of equals the one with the least memory, then with the fewest blocks.
    pub best: Point,
}

/// Tries all candidates within a budget. Absent if none fits.
///
/// # Errors
/// If a request cannot be.
pub fn choose(trials: &[Trial], budget: Bytes) -> Result<Option<Choice>, ProblemError> {
    let mut points = Vec::new();
    for trial in trials {
        match point(trial, budget) {
            Ok(point) => points.push(point),
            Err(ProblemError::Budget { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let best = points.iter().copied().min_by_key(|point| (point.total, point.peak, point.candidate.blocks));
    Ok(best.map(|best| Choice { points, best }))
}

fn point(trial: &Trial, budget: Bytes) -> Result<Point, ProblemError> {
    let blocks = &trial.blocks;
    let candidate = Candidate { blocks: blocks.count(), rows: blocks.rows() };
    let (total, ready) = (Nanos::ZERO, Nanos::ZERO);
    let mut point = Point { candidate, total, ready, stalled: Nanos::ZERO, peak: Bytes::ZERO };
    for served in &trial.uses {
        let problem = Problem::new(blocks, served.prompt, &vec![Role::Prefill; blocks.count()], budget)?;
        let timeline = Timeline::of(&just_in_time(&problem), blocks);
        let pass = blocks.pass(Role::Decode, served.prompt.context + served.prompt.rows);
        let ready = Nanos(timeline.ready().0);
        let decode = Nanos(u64::from(served.passes).saturating_mul(pass.0));
        point.ready = sum(point.ready, ready);
        point.total = sum(point.total, sum(ready, decode));
        point.stalled = sum(point.stalled, timeline.stalled);
        point.peak = point.peak.max(timeline.peak);
    }
    Ok(point)
}

/// As many requests as there may be: what is longer than all time is as long.
fn sum(a: Nanos, b: Nanos) -> Nanos {
    Nanos(a.0.saturating_add(b.0))
}

#[cfg(test)]
mod tests {
    use super::super::blocks::{Block, GraphCost, PassTime};
    use super::*;

    /// A model of 12 layers that takes 240 for a prefill pass and `decode` for one of the decode graph; 12 bytes.
    fn trial(blocks: usize, rows: [u32; 2], decode: u64, passes: u32) -> Trial {
        let share = |whole: u64| Nanos(whole / blocks as u64);
        let cost = |whole| GraphCost {
            pass: PassTime { empty: share(whole), per_position: Nanos(0) },
            load: share(240),
            bytes: Bytes(12 / blocks as u64),
        };
        let rows = Pair { prefill: Tokens(rows[0]), decode: Tokens(rows[1]) };
        let block = Block { prefill: cost(240), decode: cost(decode) };
        let prompt = Prompt { context: Tokens(0), rows: Tokens(1024) };
        Trial { blocks: Blocks::new(rows, vec![block; blocks]).unwrap(), uses: vec![Use { prompt, passes }] }
    }

    #[test]
    fn more_blocks_hide_more_and_long_answers_want_fast_decoding() {
        // One block cannot be loaded behind itself; six can be loaded behind each other.
        let trials = [trial(1, [256, 64], 60, 100), trial(6, [256, 64], 60, 100), trial(6, [256, 32], 40, 200)];
        let choice = choose(&trials, Bytes(12)).unwrap().unwrap();
        assert_eq!(choice.best.candidate.blocks, 6);
        assert_eq!(choice.best.candidate.rows.decode, Tokens(64));
        assert_eq!(choice.points.len(), 3);
        assert_eq!(choice.points[0].ready, Nanos(4 * 240 + 240));
        assert_eq!(choice.points[1].ready, Nanos(4 * 240));
        // If shorter drafts were verified as well in as many passes, the faster graph were the better one.
        let trials = [trial(6, [256, 64], 60, 100), trial(6, [256, 32], 40, 100)];
        assert_eq!(choose(&trials, Bytes(12)).unwrap().unwrap().best.candidate.rows.decode, Tokens(32));
    }

    #[test]
    fn what_does_not_fit_is_no_candidate() {
        assert_eq!(choose(&[trial(1, [256, 64], 60, 1)], Bytes(11)), Ok(None));
        let mut long = trial(1, [256, 64], 60, 1);
        long.uses[0].prompt.rows = Tokens(u32::MAX);
        assert!(choose(&[long], Bytes(12)).unwrap_err().to_string().contains("rows"));
    }
}
