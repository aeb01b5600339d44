//! The meter: how long each lane worked at what, and the energy of it.
//!
//! A lane is busy from a kernel's launch to its end. Energy is each lane's power at its work, its idle power for the rest,
//! and the power of compiling graphs. *Utilisation* counts decode as busy as the system's monitor shows it, and prefill as
//! all busy. (Agent.xpu §6.4)

use crate::soc::Power;
use duet_driver::Observer;
use duet_scheduler::{Command, Event};
use duet_types::{Instant, KernelId, LaneId, LaneSet, Nanos, Stage};
use std::collections::BTreeMap;

/// Sees kernels begin and end.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    running: BTreeMap<KernelId, (LaneSet, Stage, Instant)>,
    lanes: BTreeMap<LaneId, Busy>,
    last: Instant,
    /// For how long requests come.
    window: Nanos,
    within: BTreeMap<LaneId, Nanos>,
}

/// For how long a lane worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// At passes that read prompts.
    pub prefill: Nanos,
    /// At passes that only decode.
    pub decode: Nanos,
}

impl Busy {
    /// At anything.
    #[must_use]
    pub fn all(self) -> Nanos {
        self.prefill + self.decode
    }
}

impl Meter {
    /// One that also tells apart what is done while requests come, which is for `window`.
    #[must_use]
    pub fn of(window: Nanos) -> Self {
        Self { window, ..Self::default() }
    }

    /// For how long a lane worked while requests came.
    #[must_use]
    pub fn within(&self, lane: LaneId) -> Nanos {
        self.within.get(&lane).copied().unwrap_or_default()
    }

    /// What a lane did.
    #[must_use]
    pub fn lane(&self, lane: LaneId) -> Busy {
        self.lanes.get(&lane).copied().unwrap_or_default()
    }

    /// When the last kernel ended.
    #[must_use]
    pub fn last(&self) -> Instant {
        self.last
    }

    /// Joules that the lanes took until the last kernel ended.
    #[must_use]
    pub fn lanes_joules(&self, power: &Power) -> f64 {
        let lanes = power.lanes.iter().enumerate().map(|(index, unit)| {
            let busy = self.lane(LaneId(index as u8));
            let idle = Nanos(self.last.0).saturating_sub(busy.all());
            let joules = |watts: f64, time: Nanos| watts * time.as_secs_f64();
            joules(unit.prefill, busy.prefill) + joules(unit.decode, busy.decode) + joules(unit.idle, idle)
        });
        lanes.sum()
    }

    fn end(&mut self, now: Instant, kernel: KernelId) {
        let Some((lanes, stage, since)) = self.running.remove(&kernel) else { return };
        self.last = now;
        let cut = |at: Instant| Nanos(at.0.min(self.window.0));
        let within = cut(now).saturating_sub(cut(since));
        for lane in lanes.iter() {
            *self.within.entry(lane).or_default() += within;
            let busy = self.lanes.entry(lane).or_default();
            match stage {
                Stage::Prefill => busy.prefill += now - since,
                Stage::Decode | Stage::Verify => busy.decode += now - since,
            }
        }
    }
}

impl Observer for Meter {
    fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::KernelDone { kernel, .. } | Event::KernelFailed { kernel } => self.end(now, *kernel),
            Event::LaneLost { lane } => {
                let lost = self.running.iter().filter(|(_, (lanes, ..))| lanes.contains(*lane));
                for kernel in lost.map(|(&id, _)| id).collect::<Vec<_>>() {
                    self.end(now, kernel);
                }
            }
            _ => {}
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        if let Command::Launch { lanes, kernel, .. } = command {
            self.running.insert(kernel.id, (*lanes, kernel.stage(), now));
        }
    }
}
