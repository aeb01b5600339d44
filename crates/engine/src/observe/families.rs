//! Every metric there is: its name, its help, its unit, its buckets.
//!
//! Series exist from the start, at zero, so that a rate over the first minutes is right.

use super::labels::{OfAnyStage, OfClass, OfEnd, OfLane, OfLoad, OfOrigin, OfSpill, OfStage, OfUse};
use duet_driver::Origin;
use duet_scheduler::Line;
use duet_types::Stage;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

pub(super) type Seconds = Counter<f64, AtomicU64>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Handles to all metrics; the registry has others to the same.
#[derive(Clone, Debug)]
pub(super) struct Families {
    pub(super) queue_depth: Family<OfStage, Gauge>,
    pub(super) submitted: Family<OfClass, Counter>,
    pub(super) ended: Family<OfEnd, Counter>,
    pub(super) waiting: Histograms<OfClass>,
    pub(super) preemption_latency: Histogram,
    pub(super) preemptions: Counter,
    pub(super) pass_rows: Histograms<OfStage>,
    pub(super) pass_members: Histograms<OfStage>,
    pub(super) pass_riders: Histogram,
    pub(super) token_gap: Histograms<OfClass>,
    pub(super) lane_busy: Family<OfLane, Seconds>,
    pub(super) lane_usable: Family<OfLane, Gauge>,
    pub(super) lane_losses: Family<OfLane, Counter>,
    pub(super) lane_threads_away: Family<OfLane, Gauge>,
    pub(super) lane_absences: Family<OfLane, Counter>,
    pub(super) kernel_time_ratio: Histograms<OfAnyStage>,
    pub(super) kernels_failed: Counter,
    pub(super) scheduler_failures: Counter,
    pub(super) tokens_generated: Family<OfClass, Counter>,
    pub(super) drafts: Counter,
    pub(super) draft_time: Seconds,
    pub(super) draft_length: Histograms<OfClass>,
    pub(super) accept_length: Histograms<OfClass>,
    pub(super) drafts_accepted: Family<OfClass, Counter>,
    pub(super) drafts_rejected: Family<OfClass, Counter>,
    pub(super) verify_rows: Family<OfUse, Counter>,
    pub(super) history_tasks: Gauge,
    pub(super) history_bytes: Gauge,
    pub(super) recycled_bytes: Gauge,
    pub(super) history_dropped: Counter,
    pub(super) prompt_tokens_computed: Family<OfClass, Counter>,
    pub(super) prompt_tokens_cached: Family<OfClass, Counter>,
    pub(super) kv_pages_capacity: Gauge,
    pub(super) kv_pages_used: Gauge,
    pub(super) kv_pages_kept: Gauge,
    pub(super) kv_pages_spilled: Gauge,
    pub(super) kv_spills: Family<OfSpill, Counter>,
    pub(super) kv_discarded: Family<OfClass, Counter>,
    pub(super) graph_loads: Family<OfLoad, Counter>,
    pub(super) graph_load_time: Seconds,
    pub(super) kv_restores: Family<OfOrigin, Counter>,
}

impl Families {
    pub(super) fn new() -> Self {
        Self {
            queue_depth: Family::default(),
            submitted: Family::default(),
            ended: Family::default(),
            waiting: Family::new_with_constructor(|| Histogram::new(WAITING_S)),
            preemption_latency: Histogram::new(PREEMPTION_S),
            preemptions: Counter::default(),
            pass_rows: Family::new_with_constructor(|| Histogram::new(ROWS)),
            pass_members: Family::new_with_constructor(|| Histogram::new(MEMBERS)),
            pass_riders: Histogram::new(RIDERS),
            token_gap: Family::new_with_constructor(|| Histogram::new(TOKEN_GAP_S)),
            lane_busy: Family::default(),
            lane_usable: Family::default(),
            lane_losses: Family::default(),
            lane_threads_away: Family::default(),
            lane_absences: Family::default(),
            kernel_time_ratio: Family::new_with_constructor(|| Histogram::new(RATIO)),
            kernels_failed: Counter::default(),
            scheduler_failures: Counter::default(),
            tokens_generated: Family::default(),
            drafts: Counter::default(),
            draft_time: Seconds::default(),
            draft_length: Family::new_with_constructor(|| Histogram::new(DRAFT)),
            accept_length: Family::new_with_constructor(|| Histogram::new(DRAFT)),
            drafts_accepted: Family::default(),
            drafts_rejected: Family::default(),
            verify_rows: Family::default(),
            history_tasks: Gauge::default(),
            history_bytes: Gauge::default(),
            recycled_bytes: Gauge::default(),
            history_dropped: Counter::default(),
            prompt_tokens_computed: Family::default(),
            prompt_tokens_cached: Family::default(),
            kv_pages_capacity: Gauge::default(),
            kv_pages_used: Gauge::default(),
            kv_pages_kept: Gauge::default(),
            kv_pages_spilled: Gauge::default(),
            kv_spills: Family::default(),
            kv_discarded: Family::default(),
            graph_loads: Family::default(),
            graph_load_time: Seconds::default(),
            kv_restores: Family::default(),
        }
    }

    /// Enters all of them, and begins their series.
    pub(super) fn register(&self, lanes: impl Iterator<Item = String>) -> Registry {
        let mut registry = Registry::with_prefix("duet");
        self.register_requests(&mut registry);
        self.register_passes(&mut registry);
        self.register_drafts(&mut registry);
        self.register_memory(&mut registry);
        self.begin_series(lanes);
        registry
    }

    fn register_requests(&self, registry: &mut Registry) {
        registry.register("queue_depth", "Requests that wait for a pass, or to begin", self.queue_depth.clone());
        registry.register("requests_submitted", "Requests that came", self.submitted.clone());
        registry.register("requests_ended", "Requests that are over", self.ended.clone());
        let help = "From submission to the first kernel";
        registry.register_with_unit("waiting", help, Unit::Seconds, self.waiting.clone());
        let help =
            "From submission of a reactive request to its first kernel, where a background kernel ran as it came";
        registry.register_with_unit("preemption_latency", help, Unit::Seconds, self.preemption_latency.clone());
        let help = "Reactive kernels that took a lane from background work that had not ended";
        registry.register("preemptions", help, self.preemptions.clone());
        let help = "Between two tokens of a stream";
        registry.register_with_unit("token_gap", help, Unit::Seconds, self.token_gap.clone());
        registry.register("tokens_generated", "Tokens that requests were given", self.tokens_generated.clone());
        let help = "Prompt tokens that were computed";
        registry.register("prompt_tokens_computed", help, self.prompt_tokens_computed.clone());
        let help = "Prompt tokens whose keys and values were there";
        registry.register("prompt_tokens_cached", help, self.prompt_tokens_cached.clone());
    }

    fn register_passes(&self, registry: &mut Registry) {
        registry.register("pass_rows", "Rows of a pass", self.pass_rows.clone());
        registry.register("pass_members", "Requests in a pass", self.pass_members.clone());
        let help = "Background requests in a pass that a person waits for";
        registry.register("pass_riders", help, self.pass_riders.clone());
        let help = "Time that a lane ran kernels";
        registry.register_with_unit("lane_busy", help, Unit::Seconds, self.lane_busy.clone());
        let help = "1 if kernels are launched on a lane, 0 while it is lost or takes much longer than predicted";
        registry.register("lane_usable", help, self.lane_usable.clone());
        registry.register("lane_losses", "Failures of a lane's executor, probes included", self.lane_losses.clone());
        let help = "Threads of a lane that take no part in teams now, because other programs have their cores";
        registry.register("lane_threads_away", help, self.lane_threads_away.clone());
        let help = "Times that a thread of a lane began to leave its core to another program";
        registry.register("lane_absences", help, self.lane_absences.clone());
        let help = "Measured time of a kernel over its predicted time";
        registry.register("kernel_time_ratio", help, self.kernel_time_ratio.clone());
        registry.register("kernels_failed", "Kernels that failed, or whose lane is gone", self.kernels_failed.clone());
        let help = "Schedulers that failed, with all requests that were open";
        registry.register("scheduler_failures", help, self.scheduler_failures.clone());
    }

    fn register_drafts(&self, registry: &mut Registry) {
        registry.register("drafts", "Drafts that were made", self.drafts.clone());
        let help = "Time that making drafts took";
        registry.register_with_unit("draft", help, Unit::Seconds, self.draft_time.clone());
        registry.register("draft_length", "Rows of a draft that were verified", self.draft_length.clone());
        registry.register("accept_length", "Tokens that a verified draft brought", self.accept_length.clone());
        registry.register("drafts_accepted", "Drafted tokens that were right", self.drafts_accepted.clone());
        registry.register("drafts_rejected", "Drafted tokens that were not", self.drafts_rejected.clone());
        let help = "Rows that could have yielded a token, as many as saturate the machine, by what came of them";
        registry.register("verify_rows", help, self.verify_rows.clone());
        let help = "Tasks whose past answers are in memory, to be drafted from";
        registry.register("history_tasks", help, self.history_tasks.clone());
        let help = "Memory that past answers take";
        registry.register_with_unit("history", help, Unit::Bytes, self.history_bytes.clone());
        let help = "Memory of what the model would have said in earlier answers, to draft from";
        registry.register_with_unit("recycled", help, Unit::Bytes, self.recycled_bytes.clone());
        let help = "Answers that were not kept because too many came at once";
        registry.register("history_dropped", help, self.history_dropped.clone());
    }

    fn register_memory(&self, registry: &mut Registry) {
        registry.register("kv_pages_capacity", "KV pages there are", self.kv_pages_capacity.clone());
        registry.register("kv_pages_used", "KV pages in use, kept ones included", self.kv_pages_used.clone());
        let help = "KV pages kept for flows whose requests have ended";
        registry.register("kv_pages_kept", help, self.kv_pages_kept.clone());
        registry.register("kv_pages_spilled", "KV pages on disk, or on the way there", self.kv_pages_spilled.clone());
        registry.register("kv_spills", "Times that KV was written to disk", self.kv_spills.clone());
        let help = "Positions given up by requests that begin again, for want of room in memory and on disk";
        registry.register("kv_discarded_tokens", help, self.kv_discarded.clone());
        let help = "Graphs of blocks that a device loaded in the place of others";
        registry.register("graph_loads", help, self.graph_loads.clone());
        let help = "Time that took, beside the computation or before it";
        registry.register_with_unit("graph_load", help, Unit::Seconds, self.graph_load_time.clone());
        let help = "Times that KV was put in place, by where it came from";
        registry.register("kv_restores", help, self.kv_restores.clone());
    }

    fn begin_series(&self, lanes: impl Iterator<Item = String>) {
        for class in OfClass::ALL {
            let of_class = OfClass::from(class);
            for counter in
                [&self.submitted, &self.tokens_generated, &self.prompt_tokens_computed, &self.prompt_tokens_cached]
            {
                drop(counter.get_or_create(&of_class));
            }
            drop(self.waiting.get_or_create(&of_class));
            drop(self.draft_length.get_or_create(&of_class));
            drop(self.accept_length.get_or_create(&of_class));
            drop(self.drafts_accepted.get_or_create(&of_class));
            drop(self.drafts_rejected.get_or_create(&of_class));
            drop(self.token_gap.get_or_create(&of_class));
            for line in [Line::Queued, Line::Prefill, Line::Decode] {
                if let Some(labels) = OfStage::of_line(class, line) {
                    drop(self.queue_depth.get_or_create(&labels));
                }
            }
            for stage in [Stage::Prefill, Stage::Decode, Stage::Verify] {
                let of_stage = OfStage::from((class, stage));
                drop(self.pass_rows.get_or_create(&of_stage));
                drop(self.pass_members.get_or_create(&of_stage));
                drop(self.kernel_time_ratio.get_or_create(&stage.into()));
            }
            for end in OfEnd::ALL {
                drop(self.ended.get_or_create(&(class, end).into()));
            }
            drop(self.kv_discarded.get_or_create(&class.into()));
        }
        for label in [OfUse::VALID, OfUse::WASTED, OfUse::UNDERUTILISED] {
            drop(self.verify_rows.get_or_create(&label));
        }
        for outcome in [OfSpill::DONE, OfSpill::FAILED] {
            drop(self.kv_spills.get_or_create(&outcome));
        }
        for load in OfLoad::ALL {
            drop(self.graph_loads.get_or_create(&load));
        }
        for origin in [Origin::Nowhere, Origin::Memory, Origin::Disk, Origin::Own] {
            drop(self.kv_restores.get_or_create(&origin.into()));
        }
        for lane in lanes {
            let lane = OfLane { lane };
            drop(self.lane_busy.get_or_create(&lane));
            drop(self.lane_losses.get_or_create(&lane));
            drop(self.lane_absences.get_or_create(&lane));
            drop(self.lane_threads_away.get_or_create(&lane));
            self.lane_usable.get_or_create(&lane).set(1);
        }
    }
}

/// From what nobody notices to what nobody waits for.
const WAITING_S: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0];
/// Dense around the preemption bound's default, 10 ms, and the paper's, 100 ms.
const PREEMPTION_S: [f64; 13] = [0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 1.0];
/// Around the stall budget's default, 200 ms.
const TOKEN_GAP_S: [f64; 13] = [0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 5.0, 30.0];
const ROWS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
const MEMBERS: [f64; 9] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0];
const RIDERS: [f64; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0];
const DRAFT: [f64; 9] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0];
/// 1 is a perfect prediction.
const RATIO: [f64; 14] = [0.25, 0.5, 0.67, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0];
