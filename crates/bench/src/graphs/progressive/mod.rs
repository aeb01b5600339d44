//! Graphs exchanged while a prompt is read, in real time, beside what it is compared with. (CoordGen §3.2, Figure 8)
//!
//! What graphs cost is profiled first (`profile.rs`); of that the plans are made (`methods.rs`), and each is followed
//! (`answer.rs`). A prompt comes when its plan's first graphs are loaded; loading these is not in its time. All read in
//! chunks of 256 rows, and attention runs on one core.

mod answer;
mod methods;
mod profile;
mod turns;

pub use methods::Method;
pub(super) use profile::PROFILED;

use super::bed::Bed;
use super::line::{Line, MemoryLine, ProfileLine};
use super::{GraphsError, Settings};
use crate::load::Progress;
use crate::probe::rss_bytes;
use answer::Answering;
use duet_offload::switching::{Loaded, Placement, Shelf};
use duet_scheduler::progressive::{Pair, Resident, Role, Timeline};
use duet_types::{Nanos, Tokens};
use profile::Profile;
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
    let profile = Profile::measure(bed, &shelf, settings.samples.min(PROFILES_MAX))?;
    SHAPES.iter().for_each(|&rows| tell(Line::Profile(profile_line(&shelf, &profile, rows))));
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

fn profile_line(shelf: &Shelf, profile: &Profile, rows: Tokens) -> ProfileLine {
    let (load, chunk) = profile.sums(rows);
    ProfileLine {
        setting: format!("graphs of {rows} rows"),
        n: profile.samples(),
        blocks: shelf.count(),
        load_ms: load.as_millis_f64(),
        chunk_ms: chunk.as_millis_f64(),
        bytes: (0..shelf.count()).map(|block| shelf.bytes(block, rows).0).sum(),
    }
}

/// Rows of a chunk, and of the graph that reads it (`G¹`).
const CHUNK: Tokens = Tokens(256);
/// Rows of the graph that decodes (`G²`).
const DECODE: Tokens = Tokens(32);
/// Rows of all graphs; the first one is the head's.
const SHAPES: [Tokens; 4] = [DECODE, Tokens(64), Tokens(128), CHUNK];
/// A profile of more samples takes longer than what is measured with it.
const PROFILES_MAX: usize = 3;
