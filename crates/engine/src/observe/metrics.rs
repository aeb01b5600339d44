//! Metrics: counts what happens, and writes its figures as text.
//!
//! Counting happens under the engine's lock and takes some atomic additions; writing the text does not need the lock.

use super::draft_model::DraftModelFamilies;
use super::exact::{ExactFamilies, raise};
use super::expert_memory::ExpertMemoryFamilies;
use super::experts::ExpertFamilies;
use super::families::Families;
use super::labels::{OfClass, OfLane, OfSpill, OfStage, OfUse};
use crate::draft_model::ModelWork;
use crate::drafting::DraftCost;
use crate::exact::ExactCounts;
use duet_device::Absences;
use duet_driver::{Fact, Found, KernelEnd, LaneHealth, Launched, Origin};
use duet_history::HistoryStats;
use duet_model::ExpertMemoryStats;
use duet_model::forward::ExpertStats;
use duet_scheduler::{Line, Pages, SchedulerConfig, annotation};
use duet_speculate::Utilisation;
use duet_types::{Class, LaneId, LaneSet, Nanos, Tokens};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// Counts what happens.
#[derive(Debug)]
pub(crate) struct Metrics {
    families: Families,
    exact: ExactFamilies,
    experts: ExpertFamilies,
    expert_memory: ExpertMemoryFamilies,
    by_model: DraftModelFamilies,
    registry: Arc<Registry>,
    lanes: Vec<OfLane>,
    /// Rows that saturate all lanes together.
    saturating: u32,
}

/// What is counted elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elsewhere {
    pub(crate) drafting: DraftCost,
    pub(crate) by_model: Option<ModelWork>,
    pub(crate) history: Option<HistoryStats>,
    pub(crate) exact: ExactCounts,
    pub(crate) experts: ExpertStats,
    /// None where all experts are in memory.
    pub(crate) expert_memory: Option<ExpertMemoryStats>,
    /// Of each lane's threads.
    pub(crate) absences: Vec<Absences>,
}

/// All figures, to be written when the lock is free again.
#[derive(Clone, Debug)]
pub(crate) struct Exposition(Arc<Registry>);

impl Metrics {
    /// Nothing has happened yet on the lanes of `config`.
    pub(crate) fn new(config: &SchedulerConfig) -> Self {
        let families = Families::new();
        let names = config.machine.lanes.iter().map(|lane| lane.name.clone());
        let mut registry = families.register(names.clone());
        let exact = ExactFamilies::default();
        exact.register(&mut registry);
        let experts = ExpertFamilies::default();
        experts.register(&mut registry);
        let expert_memory = ExpertMemoryFamilies::default();
        expert_memory.register(&mut registry);
        let by_model = DraftModelFamilies::default();
        by_model.register(&mut registry);
        let registry = Arc::new(registry);
        let lanes = names.map(|lane| OfLane { lane }).collect();
        let machine = &config.machine;
        let all = machine.dynamic();
        let all = if machine.is_team(all) { all } else { LaneSet::from_iter([machine.decode_lane()]) };
        let all = machine.anchors(all);
        let saturating = annotation::saturating_rows(&config.heg, all);
        Self { families, exact, experts, expert_memory, by_model, registry, lanes, saturating }
    }

    /// The figures as they are now, with the queues, KV memory and graphs, which are what they are and not counted.
    pub(crate) fn expose(
        &self,
        waiting: impl Fn(Line, Class) -> usize,
        pages: &Pages,
        elsewhere: Elsewhere,
    ) -> Exposition {
        let Elsewhere { drafting, by_model, history, exact, experts, expert_memory, absences } = elsewhere;
        let DraftCost { drafts, time, recycled } = drafting;
        self.by_model.set(&by_model.unwrap_or_default());
        self.exact.set(&exact);
        self.experts.set(&experts);
        self.expert_memory.set(&expert_memory.unwrap_or_default());
        self.families.drafts.inc_by(drafts.saturating_sub(self.families.drafts.get()));
        self.families.draft_time.inc_by((time.as_secs_f64() - self.families.draft_time.get()).max(0.0));
        self.families.recycled_bytes.set(recycled.0 as i64);
        let HistoryStats { tasks, index, dropped } = history.unwrap_or_default();
        self.families.history_tasks.set(tasks as i64);
        self.families.history_bytes.set(index.0 as i64);
        self.families.history_dropped.inc_by(dropped.saturating_sub(self.families.history_dropped.get()));
        for (lane, Absences { away, begun }) in self.lanes.iter().zip(absences) {
            self.families.lane_threads_away.get_or_create(lane).set(away.into());
            raise(&self.families.lane_absences.get_or_create(lane), begun);
        }
        for class in OfClass::ALL {
            for line in [Line::Queued, Line::Prefill, Line::Decode] {
                let Some(labels) = OfStage::of_line(class, line) else { continue };
                self.families.queue_depth.get_or_create(&labels).set(waiting(line, class) as i64);
            }
        }
        self.families.kv_pages_capacity.set(pages.capacity as i64);
        self.families.kv_pages_used.set(pages.used as i64);
        self.families.kv_pages_kept.set(pages.kept as i64);
        self.families.kv_pages_spilled.set(pages.on_disk as i64);
        Exposition(Arc::clone(&self.registry))
    }

    /// Counts a scheduler that failed.
    pub(crate) fn scheduler_failed(&self) {
        self.families.scheduler_failures.inc();
    }

    /// Counts what has happened.
    pub(crate) fn count(&self, fact: &Fact) {
        let families = &self.families;
        match *fact {
            Fact::Arrived { subject, .. } => {
                families.submitted.get_or_create(&subject.class.into()).inc();
            }
            Fact::Restored { subject, cached, from } => {
                families.kv_restores.get_or_create(&from.into()).inc();
                if from != Origin::Own {
                    families.prompt_tokens_cached.get_or_create(&subject.class.into()).inc_by(cached.0.into());
                }
            }
            Fact::Began { subject, waited, found, .. } => {
                families.waiting.get_or_create(&subject.class.into()).observe(waited.as_secs_f64());
                if subject.class == Class::Reactive && found == Found::Background {
                    families.preemption_latency.observe(waited.as_secs_f64());
                }
            }
            Fact::PassBegan { class, stage, rows, members, riders } => {
                families.pass_rows.get_or_create(&(class, stage).into()).observe(rows.0.into());
                families.pass_members.get_or_create(&(class, stage).into()).observe(members as f64);
                if class == Class::Reactive {
                    families.pass_riders.observe(riders as f64);
                }
            }
            Fact::Preempted { .. } => {
                families.preemptions.inc();
            }
            Fact::KernelEnded { ref launched, took, end } => self.count_kernel(launched, took, end),
            Fact::Read { subject, rows } => {
                families.prompt_tokens_computed.get_or_create(&subject.class.into()).inc_by(rows.0.into());
            }
            Fact::Tokens { subject, tokens, rows, gap } => {
                families.tokens_generated.get_or_create(&subject.class.into()).inc_by(tokens.0.into());
                if let Some(rows) = rows {
                    self.count_verified(subject.class, tokens, rows);
                }
                if let Some(gap) = gap {
                    families.token_gap.get_or_create(&subject.class.into()).observe(gap.as_secs_f64());
                }
            }
            Fact::Lane { lane, health } => self.count_health(lane, health),
            Fact::SpillBegan { .. } => {}
            Fact::Spilled { .. } => {
                families.kv_spills.get_or_create(&OfSpill::DONE).inc();
            }
            Fact::SpillFailed { .. } => {
                families.kv_spills.get_or_create(&OfSpill::FAILED).inc();
            }
            Fact::Discarded { subject, computed } => {
                families.kv_discarded.get_or_create(&subject.class.into()).inc_by(computed.0.into());
            }
            Fact::GraphLoaded { load, took, end } => {
                families.graph_loads.get_or_create(&(load.role, end).into()).inc();
                families.graph_load_time.inc_by(took.as_secs_f64());
            }
            Fact::Ended { subject, end, .. } => {
                families.ended.get_or_create(&(subject.class, end).into()).inc();
            }
        }
    }

    fn count_health(&self, lane: LaneId, health: LaneHealth) {
        let Some(lane) = self.lanes.get(usize::from(lane.0)) else { return };
        self.families.lane_usable.get_or_create(lane).set(i64::from(health == LaneHealth::Well));
        if health == LaneHealth::Lost {
            self.families.lane_losses.get_or_create(lane).inc();
        }
    }

    /// Counts what came of the rows that could yield a token; without a draft it is one of one.
    fn count_verified(&self, class: Class, tokens: Tokens, rows: Tokens) {
        let families = &self.families;
        let used = Utilisation::of(tokens.0.into(), rows.0.into(), self.saturating.into());
        let uses = [(OfUse::VALID, used.valid), (OfUse::WASTED, used.wasted)];
        for (label, rows) in uses.into_iter().chain([(OfUse::UNDERUTILISED, used.underutilised)]) {
            families.verify_rows.get_or_create(&label).inc_by(rows);
        }
        if rows > Tokens(1) {
            families.draft_length.get_or_create(&class.into()).observe(f64::from(rows.0 - 1));
            families.accept_length.get_or_create(&class.into()).observe(f64::from(tokens.0));
            families.drafts_accepted.get_or_create(&class.into()).inc_by(u64::from(tokens.0 - 1));
            families.drafts_rejected.get_or_create(&class.into()).inc_by(u64::from(rows.0 - tokens.0));
        }
    }

    fn count_kernel(&self, launched: &Launched, took: Nanos, end: KernelEnd) {
        let families = &self.families;
        for lane in launched.lanes.iter().filter_map(|lane| self.lanes.get(usize::from(lane.0))) {
            families.lane_busy.get_or_create(lane).inc_by(took.as_secs_f64());
        }
        match end {
            // It did less than was predicted.
            KernelEnd::Waits => {}
            // What was predicted to take no time has no ratio.
            KernelEnd::Done if launched.kernel.predicted == Nanos::ZERO => {}
            KernelEnd::Done => {
                let ratio = took.as_secs_f64() / launched.kernel.predicted.as_secs_f64();
                families.kernel_time_ratio.get_or_create(&launched.kernel.stage().into()).observe(ratio);
            }
            KernelEnd::Failed => {
                families.kernels_failed.inc();
            }
        }
    }
}

impl Exposition {
    /// In OpenMetrics' text format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to memory fails only if a metric cannot be written at all, and the tests write every one.
        if let Err(error) = encode(&mut text, &self.0) {
            tracing::error!("the metrics could not be written: {error}");
        }
        text
    }
}

#[cfg(test)]
mod tests;
