//! Timelines: what ran on which lane, when, and why, for <https://ui.perfetto.dev>.
//!
//! Chrome's JSON trace events, one a line. There is a track for each lane, with a complete slice for each kernel; a
//! track of arrivals, ends, preemptions and spills; and counters of the queues. Times are the world's, in microseconds,
//! so that real and virtual runs open side by side. The format allows the closing bracket to be missing: what a killed
//! process has written is a timeline too.
//!
//! **Invariant:** slices of a lane follow each other and never nest. A write error ends the trace, never the run; it is
//! kept for whoever asks.

use crate::digest::Digest;
use crate::event_log::FLUSH_INTERVAL;
use crate::fact::{Fact, KernelEnd, LaneHealth, Launched, LoadEnd};
use crate::observer::Observer;
use crate::trace_event::{
    InstantArgs, KernelArgs, NameArgs, Queues, SortArgs, TraceEvent, class_name, end_name, micros, of, positions,
    span_micros, stage_name, whose,
};
use duet_scheduler::{Command, Event, Line, SchedulerConfig};
use duet_types::{Class, Instant, LaneId, Nanos, Tokens};
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};

/// Writes a timeline while it happens.
pub struct Trace<W: Write> {
    /// Absent once a write failed.
    out: Option<W>,
    error: Option<io::Error>,
    line: String,
    digest: Digest,
    /// The queues as the counters last told them, for each class.
    told: [Queues; 2],
    last: Instant,
    flushed: Instant,
}

impl<W: Write> Trace<W> {
    /// Begins a timeline of what runs on the lanes of `config`.
    pub fn begin(out: W, config: &SchedulerConfig) -> Self {
        let mut trace = Self {
            out: Some(out),
            error: None,
            line: String::from("["),
            digest: Digest::default(),
            told: [Queues::default(); 2],
            last: Instant::default(),
            flushed: Instant::default(),
        };
        trace.meta("process_name", REQUESTS, NameArgs { name: "duet" });
        trace.name_track(REQUESTS, "requests");
        for (lane, described) in config.machine.lanes.iter().enumerate() {
            trace.name_track(track(LaneId(lane as u8)), &described.name);
        }
        trace
    }

    /// The write error that ended the trace, the first time it is asked for.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    fn name_track(&mut self, tid: u32, name: &str) {
        self.meta("thread_name", tid, NameArgs { name });
        self.meta("thread_sort_index", tid, SortArgs { sort_index: tid });
    }

    fn meta(&mut self, name: &str, tid: u32, args: impl Serialize) {
        self.write(&TraceEvent { name, cat: "", ph: "M", ts: None, dur: None, pid: PROCESS, tid, s: None, args });
    }

    /// Tells what the queues came to at the last time that something happened, if that was before `now`.
    fn tell_queues(&mut self, now: Instant) {
        if now <= self.last {
            return;
        }
        for class in [Class::Reactive, Class::Proactive] {
            let waiting = |line| self.digest.waiting(line, class);
            let queues = Queues {
                queued: waiting(Line::Queued),
                prefill: waiting(Line::Prefill),
                decode: waiting(Line::Decode),
            };
            if std::mem::replace(&mut self.told[class as usize], queues) == queues {
                continue;
            }
            let name = match class {
                Class::Reactive => "reactive requests that wait",
                Class::Proactive => "proactive requests that wait",
            };
            let ts = Some(micros(self.last));
            let tid = REQUESTS;
            self.write(&TraceEvent { name, cat: "", ph: "C", ts, dur: None, pid: PROCESS, tid, s: None, args: queues });
        }
        self.last = now;
        if now - self.flushed >= FLUSH_INTERVAL {
            self.flushed = now;
            let result = self.out.as_mut().map_or(Ok(()), Write::flush);
            self.note(result);
        }
    }

    fn tell(&mut self, now: Instant, fact: Fact) {
        match fact {
            Fact::KernelEnded { launched, took, end } => self.slice(&launched, took, end),
            Fact::Arrived { subject, prompt } => {
                self.instant(now, "arrives", InstantArgs { prompt: Some(prompt), ..of(subject) });
            }
            Fact::Restored { subject, cached, .. } if cached > Tokens::ZERO => {
                self.instant(now, "restored", InstantArgs { cached: Some(cached), ..of(subject) });
            }
            Fact::Preempted { victims, by } => {
                for victim in victims {
                    self.instant(now, "preempted", InstantArgs { by: by.clone(), ..of(victim) });
                }
            }
            Fact::Lane { lane, health } => {
                let name = match health {
                    LaneHealth::Well => "lane back",
                    LaneHealth::Slow => "lane slow",
                    LaneHealth::Lost => "lane lost",
                };
                self.mark(now, track(lane), name, InstantArgs::default());
            }
            Fact::SpillBegan { request } => self.instant(now, "spills", whose(request)),
            Fact::Spilled { request } => self.instant(now, "spilled", whose(request)),
            Fact::SpillFailed { request } => self.instant(now, "spill failed", whose(request)),
            Fact::Discarded { subject, .. } => self.instant(now, "discarded", of(subject)),
            Fact::GraphLoaded { took, end, .. } => {
                let name = match end {
                    LoadEnd::Done => "graph loaded",
                    LoadEnd::Failed => "graph not loaded",
                };
                let lasted_us = Some(span_micros(took));
                self.instant(now, name, InstantArgs { lasted_us, ..InstantArgs::default() });
            }
            Fact::Ended { subject, end, lasted } => {
                let lasted_us = Some(span_micros(lasted));
                self.instant(now, end_name(end), InstantArgs { lasted_us, ..of(subject) });
            }
            Fact::Restored { .. }
            | Fact::Began { .. }
            | Fact::PassBegan { .. }
            | Fact::Read { .. }
            | Fact::Tokens { .. } => {}
        }
    }

    fn instant(&mut self, now: Instant, name: &str, args: InstantArgs) {
        self.mark(now, REQUESTS, name, args);
    }

    fn mark(&mut self, now: Instant, tid: u32, name: &str, args: InstantArgs) {
        let ts = Some(micros(now));
        self.write(&TraceEvent { name, cat: "request", ph: "i", ts, dur: None, pid: PROCESS, tid, s: Some("t"), args });
    }

    /// One slice on the track of each lane of the team.
    fn slice(&mut self, launched: &Launched, took: Nanos, end: KernelEnd) {
        let kernel = &launched.kernel;
        let (class, stage) = (class_name(kernel.class()), stage_name(kernel.stage()));
        let requests: Vec<String> = kernel.members.iter().map(|member| member.request.to_string()).collect();
        let name = format!("{stage} {}", requests.join(","));
        let all: u32 = kernel.members.iter().map(|member| member.len().0).sum();
        let part = (kernel.rows != (0..all)).then(|| format!("{}..{} of {all}", kernel.rows.start, kernel.rows.end));
        for lane in launched.lanes.iter() {
            let args = KernelArgs {
                flow: &launched.flows,
                class,
                stage,
                rows: kernel.members.iter().map(positions).collect(),
                nodes: format!("{}..{}", kernel.nodes.start, kernel.nodes.end),
                part: part.clone(),
                kernel: kernel.id.0,
                pass: kernel.pass.0,
                predicted_us: span_micros(kernel.predicted),
                actual_us: span_micros(took),
                reason: launched.reason.to_string(),
                lanes: launched.lanes.to_string(),
                failed: (end == KernelEnd::Failed).then_some(true),
                waits: (end == KernelEnd::Waits).then_some(true),
            };
            let (ts, dur) = (Some(micros(launched.at)), Some(span_micros(took)));
            let tid = track(lane);
            self.write(&TraceEvent { name: &name, cat: class, ph: "X", ts, dur, pid: PROCESS, tid, s: None, args });
        }
    }

    /// Writes an event whole, so that only the last one can be cut off.
    fn write(&mut self, event: &TraceEvent<'_, impl Serialize>) {
        let Some(out) = &mut self.out else { return };
        self.line.push('\n');
        // Its fields are numbers and strings: writing them to memory cannot fail.
        let Ok(text) = serde_json::to_string(event) else { return };
        self.line.push_str(&text);
        let result = out.write_all(self.line.as_bytes());
        self.note(result);
        self.line.clear();
        self.line.push(',');
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.out = None;
            self.error = Some(error);
        }
    }
}

impl<W: Write> Observer for Trace<W> {
    fn event(&mut self, now: Instant, event: &Event) {
        self.tell_queues(now);
        for fact in self.digest.event(now, event) {
            self.tell(now, fact);
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.tell_queues(now);
        for fact in self.digest.command(now, command) {
            self.tell(now, fact);
        }
    }
}

/// The orderly end. Nobody is left to be told of an error.
impl<W: Write> Drop for Trace<W> {
    fn drop(&mut self) {
        self.tell_queues(Instant(u64::MAX));
        if let Some(out) = &mut self.out {
            let _ = out.write_all(b"\n]\n").and_then(|()| out.flush());
        }
    }
}

impl<W: Write> fmt::Debug for Trace<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("error", &self.error).finish_non_exhaustive()
    }
}

fn track(lane: LaneId) -> u32 {
    REQUESTS + 1 + u32::from(lane.0)
}

/// All tracks are of one process.
const PROCESS: u32 = 1;
/// The track of what happens to requests; lanes come below it.
const REQUESTS: u32 = 1;
