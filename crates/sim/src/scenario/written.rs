//! Scenarios written as text, so that one that a random test found can be read, changed and run again.

use super::{Scenario, Words, machine};
use crate::client::{Client, Continues, Failing, Graphs};
use crate::truth::Truth;
use duet_scheduler::{HeadRows, Mechanism, SchedulerConfig};
use duet_types::{Class, Nanos, Net, Tokens};
use std::fmt;

/// As text that is read back as the same scenario, as far as the text can say: a machine's own figures go without saying.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = machine_name(&self.config);
        write!(f, "{name}  policy {}", self.policy)?;
        let usual = machine(Words::of(name)).map_err(|_| fmt::Error)?;
        let off = |mechanism: &Mechanism| !self.config.mechanisms.has(*mechanism);
        for mechanism in Mechanism::ALL.into_iter().filter(off) {
            write!(f, "  without {mechanism}")?;
        }
        write_limits(f, &self.config, &usual.config)?;
        write_truth(f, &self.truth, &usual.truth)?;
        for client in &self.clients {
            write_client(f, client, &self.clients)?;
        }
        let lost = &self.truth.faults.lost;
        lost.iter().try_for_each(|(at, lane)| write!(f, "\nat {}  lane {lane} is lost", Millis(at.0)))?;
        for (from, until, lane) in &self.truth.faults.slow {
            write!(f, "\nat {}  lane {lane} is slow until {}", Millis(from.0), Millis(until.0))?;
        }
        let works = &self.truth.faults.works_again;
        works.iter().try_for_each(|(at, lane)| write!(f, "\nat {}  lane {lane} works again", Millis(at.0)))
    }
}

fn machine_name(config: &SchedulerConfig) -> &'static str {
    if config.graphs.is_some() {
        return "exchanging";
    }
    if config.heg.experts.is_some() {
        return "launching";
    }
    if config.heg.ffn.routed.is_some() {
        return "mixture";
    }
    if config.heg.for_head.is_some() {
        return "for-head";
    }
    match (config.machine.lanes[0].name.as_str(), config.machine.lanes.len()) {
        ("npu", 2) => "npu-igpu",
        ("npu", _) => "npu-igpu-cpu",
        ("igpu", _) => "half-on-igpu",
        ("gpu", _) => "discrete-gpu",
        ("cpu0", _) => "cpu",
        _ => "single",
    }
}

fn write_limits(f: &mut fmt::Formatter<'_>, config: &SchedulerConfig, usual: &SchedulerConfig) -> fmt::Result {
    let ((limits, memory), (other, other_memory)) = ((&config.limits, &config.memory), (&usual.limits, &usual.memory));
    option(f, "chunk", limits.chunk, other.chunk)?;
    option(f, "prefill-rows", limits.prefill_rows, other.prefill_rows)?;
    option(f, "batch", limits.batch, other.batch)?;
    option(f, "cap", limits.batch_cap, other.batch_cap)?;
    option(f, "preempt", Millis(limits.preempt.0), Millis(other.preempt.0))?;
    option(f, "stall", Millis(limits.decode_stall.0), Millis(other.decode_stall.0))?;
    option(f, "age", Millis(limits.age.0), Millis(other.age.0))?;
    option(f, "overtaking", Millis(limits.overtaking.0), Millis(other.overtaking.0))?;
    option(f, "share", limits.overdue_share, other.overdue_share)?;
    option(f, "stretch", limits.stretch, other.stretch)?;
    option(f, "occupancy", config.machine.lane(config.machine.decode_lane()).occupancy, 1.0)?;
    option(f, "expiry", Millis(limits.graph_expiry.0), Millis(other.graph_expiry.0))?;
    option(f, "graphs", limits.graphs, other.graphs)?;
    option(f, "page", memory.page, other_memory.page)?;
    option(f, "pages", memory.pages, other_memory.pages)?;
    option(f, "disk", memory.disk_pages, other_memory.disk_pages)?;
    let (windows, others) = (&memory.windows, &other_memory.windows);
    option(f, "window-tail", windows.tail, others.tail)?;
    option(f, "window-lasting", windows.lasting.0, others.lasting.0)?;
    option(f, "window-whole", windows.whole.0, others.whole.0)
}

fn write_truth(f: &mut fmt::Formatter<'_>, truth: &Truth, usual: &Truth) -> fmt::Result {
    let (contention, other) = (&truth.machine.contention, &usual.machine.contention);
    option(f, "contention", contention.memory_beside_memory, other.memory_beside_memory)?;
    option(f, "beside-compute", contention.memory_beside_compute, other.memory_beside_compute)?;
    option(f, "page-io", Millis(truth.page_io.0), Millis(usual.page_io.0))?;
    option(f, "jitter", truth.jitter, usual.jitter)?;
    option(f, "seed", truth.seed, usual.seed)?;
    option(f, "hang-timeout", truth.hang_timeout, usual.hang_timeout)?;
    truth.faults.spills.iter().try_for_each(|spill| write!(f, "  spill-fails {spill}"))?;
    truth.faults.graph_loads.iter().try_for_each(|load| write!(f, "  graph-load-fails {load}"))
}

/// An option of the machine line, unless it is as usual.
fn option<T: fmt::Display + PartialEq>(f: &mut fmt::Formatter<'_>, name: &str, value: T, usual: T) -> fmt::Result {
    if value == usual { Ok(()) } else { write!(f, "  {name} {value}") }
}

fn write_client(f: &mut fmt::Formatter<'_>, client: &Client, others: &[Client]) -> fmt::Result {
    let class = if client.class == Class::Reactive { "reactive" } else { "proactive" };
    write!(f, "\nat {}  {}  {class}  prompt {}", Millis(client.arrives.0), client.name, client.prompt)?;
    write!(f, "  output {}", client.output)?;
    match client.continues {
        Some(Continues { client, shared: Tokens(u32::MAX) }) => write!(f, "  continues {}", others[client].name)?,
        Some(Continues { client, shared }) => write!(f, "  shares {shared} of {}", others[client].name)?,
        None => {}
    }
    if let Some(at) = client.cancelled {
        write!(f, "  cancelled {}", Millis(at.0))?;
    }
    write_which(f, "fails", client.failing)?;
    write_which(f, "hangs", client.hanging)?;
    if client.head == HeadRows::All {
        write!(f, "  scored")?;
    }
    if client.net == Net::Encoder {
        write!(f, "  encodes")?;
    }
    if let Some(chance) = client.drafts {
        write!(f, "  drafts {}", (chance.tokens() * 1000.0).round())?;
    }
    if client.masks > Nanos::ZERO {
        write!(f, "  masks {}", Millis(client.masks.0))?;
    }
    match client.graph {
        Graphs::Compile => Ok(()),
        Graphs::Slow(factor) => write!(f, "  graph-slow {factor}"),
        Graphs::Fail => write!(f, "  graph-fails"),
    }
}

fn write_which(f: &mut fmt::Formatter<'_>, verb: &str, which: Failing) -> fmt::Result {
    match which {
        Failing::Never => Ok(()),
        Failing::Once(which) => write!(f, "  {verb}-once {which}"),
        Failing::From(first) => write!(f, "  {verb}-from {first}"),
    }
}

/// A time as scenarios have it.
#[derive(PartialEq)]
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0 as f64 / 1e6)
    }
}

/// The text: it is what a random test that failed shows, and the example `timeline` takes it.
impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
