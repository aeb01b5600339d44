//! Graphs exchanged while a prompt is read, in real time, beside what it is compared with. (CoordGen §3.2, Figure 8)
//!
//! What graphs cost is profiled first ([`GraphCosts`]), with all layers; of that the plans are made (`methods.rs`), and each is followed
//! (`answer.rs`). A prompt comes when its plan's first graphs are loaded; loading these is not in its time. All read in
//! chunks of 256 rows, and attention runs on one core.

mod answer;
mod methods;
mod turns;

pub use methods::Method;

use super::line::{Line, MemoryLine, ProfileLine};
use super::{GraphsError, Settings};
use crate::bed::Bed;
use crate::load::Progress;
use crate::probe::rss_bytes;
use answer::Answering;
use duet_offload::switching::{GraphCosts, Loaded, Measuring, Placement, Shelf};
use duet_scheduler::progressive::{Blocks, Candidate, Pair, Resident, Role, Timeline};
use duet_types::{Nanos, Tokens};
use turns::Turns;

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), GraphsError> {
    progress("compiling the graphs of all blocks");
    let placement = Placement { device: bed.device.clone(), cache: bed.cache.clone() };
    let shelf = Shelf::fill(&bed.model, placement, settings.blocks, &SHAPES, &mut |_| {})?;
    if let Some(memory) = memory(&shelf)? {
        tell(Line::Memory(memory));
    }
    progress("profiling the blocks");
    let measuring =
        Measuring { rows: SHAPES.to_vec(), samples: settings.samples.min(PROFILES_MAX), time: Nanos(u64::MAX) };
    let profile =
        Profile { costs: GraphCosts::measure(&bed.model, shelf.all_layers(), &measuring)?, blocks: shelf.count() };
    for rows in SHAPES {
        tell(Line::Profile(profile.line(rows)?));
    }
    let answering = Answering { bed, shelf: &shelf, output: settings.output };
    for &length in &settings.lengths {
        warm_up(settings, &answering, &profile, length)?;
        let turns = turns(settings, &answering, &profile, length, progress)?;
        let lines = turns.lines(length).ok_or(GraphsError::NoResult)?;
        lines.into_iter().for_each(|line| tell(Line::Progressive(line)));
    }
    Ok(())
}

/// All methods in turns, on one prompt. Each turn begins with another method, so that none is always the first.
fn turns(
    settings: &Settings,
    answering: &Answering<'_>,
    profile: &Profile,
    length: Tokens,
    progress: Progress<'_>,
) -> Result<Turns, GraphsError> {
    let (prompt, samples) = (answering.bed.text(length.as_usize()), settings.samples.max(1));
    let mut turns = Turns::of(&settings.methods);
    let count = turns.methods.len();
    for turn in 0..samples {
        for measured in (0..count).map(|index| (index + turn) % count) {
            let measured = &mut turns.methods[measured];
            let method = measured.method;
            progress(&format!("{length} tokens, {method}, {} of {samples}", turn + 1));
            let blocks = profile.blocks(method.rows())?;
            let plan = method.plan(&blocks, length)?;
            measured.predicted_ready = Nanos(Timeline::of(&plan, &blocks).ready().0);
            measured.answers.push(answering.answer(&blocks, plan, &prompt)?);
        }
    }
    Ok(turns)
}

/// The first answer of a length takes memory from the system that the others find there.
fn warm_up(
    settings: &Settings,
    answering: &Answering<'_>,
    profile: &Profile,
    length: Tokens,
) -> Result<(), GraphsError> {
    let Some(method) = settings.methods.first() else { return Ok(()) };
    let blocks = profile.blocks(method.rows())?;
    let plan = method.plan(&blocks, length)?;
    answering.prefill(&blocks, plan, &answering.bed.text(length.as_usize())).map(|_| ())
}

/// What one set of graphs and then a second one add to the memory in use.
fn memory(shelf: &Shelf) -> Result<Option<MemoryLine>, GraphsError> {
    let Some(before) = rss_bytes() else { return Ok(None) };
    let rows = Pair { prefill: CHUNK, decode: DECODE };
    let load = |role| Loaded::load(shelf, rows, &vec![Resident::One(role); shelf.count()]);
    let decode = load(Role::Decode)?;
    let one = rss_bytes();
    let prefill = load(Role::Prefill)?;
    let two = rss_bytes();
    drop((decode, prefill));
    let grown = |after: Option<u64>| after.map(|after| after.saturating_sub(before));
    Ok(grown(one).zip(grown(two)).map(|(one_set_bytes, two_sets_bytes)| MemoryLine {
        setting: "memory",
        n: 1,
        one_set_bytes,
        two_sets_bytes,
    }))
}

/// What the graphs of each block cost.
struct Profile {
    costs: GraphCosts,
    blocks: usize,
}

impl Profile {
    /// The blocks with graphs of these rows.
    fn blocks(&self, rows: Pair<Tokens>) -> Result<Blocks, GraphsError> {
        Ok(self.costs.blocks(Candidate { blocks: self.blocks, rows })?)
    }

    fn line(&self, rows: Tokens) -> Result<ProfileLine, GraphsError> {
        let blocks = self.blocks(Pair { prefill: CHUNK, decode: rows })?;
        let chunk: Nanos = (0..blocks.count()).map(|block| blocks.time(block, Role::Decode, Tokens::ZERO, CHUNK)).sum();
        let shape = self.costs.shapes().iter().find(|shape| shape.rows == rows);
        Ok(ProfileLine {
            setting: format!("graphs of {rows} rows"),
            n: shape.map_or(0, |shape| shape.samples),
            blocks: blocks.count(),
            load_ms: blocks.load(Role::Decode).as_millis_f64(),
            chunk_ms: chunk.as_millis_f64(),
            bytes: blocks.bytes(Role::Decode).0,
        })
    }
}

/// Tokens that are measured with, however short the prompts: a chunk, and as many before it.
pub(super) const TOKENS_MIN: usize = 2 * CHUNK.0 as usize;
/// Rows of a chunk, and of the graph that reads it (`G¹`).
const CHUNK: Tokens = Tokens(256);
/// Rows of the graph that decodes (`G²`).
const DECODE: Tokens = Tokens(32);
/// Rows of all graphs; the first one is the head's.
const SHAPES: [Tokens; 4] = [DECODE, Tokens(64), Tokens(128), CHUNK];
/// A profile of more samples takes longer than what is measured with it.
const PROFILES_MAX: usize = 3;
