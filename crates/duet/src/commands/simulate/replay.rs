//! `duet simulate --replay`: a recorded run again, and how near the simulator comes to it.

use super::judgement::{page, report};
use crate::bad_input::BadInput;
use crate::failure::print;
use duet_sim::Recorded;
use duet_sim::fidelity::judge;
use duet_types::Class;
use serde_json::Value;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// When the background's requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Arrivals {
    /// At the times of the log.
    AsRecorded,
    /// Each when one before it has ended.
    KeptInFlight,
}

impl Arrivals {
    fn of(self, recorded: Recorded) -> Recorded {
        match self {
            Self::AsRecorded => recorded,
            Self::KeptInFlight => recorded.kept_in_flight(Class::Proactive),
        }
    }
}

/// How near the simulator comes to a log, as an object; nothing if no request is in it.
pub(in crate::commands) fn compared(log: &Path, background: Arrivals) -> anyhow::Result<Option<Value>> {
    let recorded = Recorded::read(BufReader::new(File::open(log)?))
        .map_err(|error| anyhow::anyhow!("{}: {error}", log.display()))?;
    let recorded = background.of(recorded);
    Ok((!recorded.clients.is_empty()).then(|| report(&recorded, &judge(&recorded))))
}

pub(super) fn replay(log: &Path, background: Arrivals, json: bool) -> anyhow::Result<()> {
    let refused = |error: &dyn std::fmt::Display| BadInput(format!("--replay {}: {error}", log.display()));
    let file = File::open(log).map_err(|error| refused(&error))?;
    let recorded = background.of(Recorded::read(BufReader::new(file)).map_err(|error| refused(&error))?);
    if recorded.clients.is_empty() {
        return Err(refused(&"no request is in it; record while requests are served").into());
    }
    let fidelity = judge(&recorded);
    if json {
        return print(&(serde_json::to_string(&report(&recorded, &fidelity))? + "\n"));
    }
    print(&page(&recorded, &fidelity))
}
