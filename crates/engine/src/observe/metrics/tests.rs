//! A short run by hand, and every figure that it comes to.

use super::*;
use duet_driver::Digest;
use duet_scheduler::heg::{Heg, SequenceWise, TokenWise};
use duet_scheduler::machine::{Anchors, Capabilities, FewRows, Lane, Machine, PerRow};
use duet_scheduler::progressive::{Exchange, Role};
use duet_scheduler::{
    Command, Completes, End, Event, Generated, GraphLoad, HeadRows, Kernel, Limits, Mechanisms, Member, MemoryLimits,
    OnMiss, Outcome, PassId, Reason, Request, Source, Yields,
};
use duet_types::Class::{Proactive, Reactive};
use duet_types::Stage::{Decode, Prefill};
use duet_types::{FinishReason, FlowId, Instant, KernelId, LaneId, LaneSet, Net, RequestId, Stage, Tokens};

/// Two lanes; what they can do does not matter here.
fn config() -> SchedulerConfig {
    let anchors = Anchors {
        macs_per_s: 1.0,
        attention_macs_per_s: 1.0,
        bytes_per_s: 1.0,
        launch: Nanos::ZERO,
        exposed: 0.0,
        per_row: PerRow::NONE,
        few_rows: FewRows::NONE,
    };
    let lane = |name: &str| Lane::new(name, Capabilities::CORES, anchors);
    let linear = TokenWise { macs_per_row: 1.0, weight_bytes: 1.0, row_bytes: 1.0, routed: None };
    let attention = SequenceWise { macs_per_pair: 1.0, bytes_per_position: 1.0, row_bytes: 1.0, windowed: None };
    SchedulerConfig {
        machine: Machine::of(vec![lane("cpu0"), lane("cpu1")]).with_team(anchors),
        heg: Heg { layers: 1, qkv: linear, ffn: linear, attention, head: linear, experts: None, for_head: None },
        encoder: None,
        limits: Limits::default(),
        memory: MemoryLimits::UNBOUNDED,
        mechanisms: Mechanisms::ALL,
        graphs: None,
    }
}

const PAGES: Pages = Pages { capacity: 100, used: 40, kept: 30, on_disk: 7 };

struct Run {
    digest: Digest,
    metrics: Metrics,
    kernels: u64,
}

impl Run {
    fn new() -> Self {
        Self { digest: Digest::default(), metrics: Metrics::new(&config()), kernels: 0 }
    }

    fn event(&mut self, at_ms: u64, event: Event) {
        self.digest.event(Instant(at_ms * 1_000_000), &event).iter().for_each(|fact| self.metrics.count(fact));
    }

    fn command(&mut self, at_ms: u64, command: Command) {
        self.digest.command(Instant(at_ms * 1_000_000), &command).iter().for_each(|fact| self.metrics.count(fact));
    }

    fn arrive(&mut self, at_ms: u64, request: u64, class: Class, prompt: u32) {
        let (id, flow) = (RequestId(request), FlowId(request));
        self.event(
            at_ms,
            Event::Submitted(Request {
                id,
                flow,
                class,
                prompt: Tokens(prompt),
                prefix: None,
                head: HeadRows::Last,
                net: Net::Decoder,
            }),
        );
    }

    fn restore(&mut self, at_ms: u64, request: u64, cached: u32, source: Option<Source>) {
        self.command(at_ms, Command::Restore(RequestId(request)));
        let event = Event::Restored { request: RequestId(request), cached: Tokens(cached), source };
        self.event(at_ms, event);
    }

    /// A pass in one kernel, predicted to take 20 ms, from its launch to its end. Each member has a token.
    fn pass(&mut self, from_ms: u64, to_ms: u64, lanes: &[u8], members: Vec<Member>) {
        let kernel = self.launch(from_ms, lanes, members.clone());
        let token = |member: &Member| Generated::one(member.request, None);
        let outcome = Outcome::Tokens(members.iter().map(token).collect());
        self.event(to_ms, Event::KernelDone { kernel, outcome });
    }

    fn launch(&mut self, at_ms: u64, lanes: &[u8], members: Vec<Member>) -> KernelId {
        let id = KernelId(self.kernels);
        self.kernels += 1;
        let rows = members.iter().map(|member| member.len().0).sum();
        let kernel = Kernel {
            id,
            pass: PassId(id.0),
            members,
            nodes: 0..4,
            rows: 0..rows,
            completes: Completes::Pass,
            on_miss: OnMiss::Waits,
            shares: Vec::new(),
            predicted: Nanos(20_000_000),
        };
        let lanes = LaneSet::from_iter(lanes.iter().map(|&lane| LaneId(lane)));
        self.command(at_ms, Command::Launch { lanes, kernel, reason: Reason::FirstCome });
        id
    }

    fn release(&mut self, at_ms: u64, request: u64, end: End) {
        self.command(at_ms, Command::Release { request: RequestId(request), end });
    }

    /// Fails unless each of these is a line of the text.
    #[track_caller]
    fn assert_lines(&self, lines: &[&str]) {
        let text = self.text();
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "no line {line:?} in\n{text}");
        }
    }

    fn text(&self) -> String {
        let waiting = |line, class| self.digest.waiting(line, class);
        self.metrics.expose(waiting, &PAGES, Elsewhere::default()).text()
    }
}

fn member(request: u64, class: Class, stage: Stage, rows: std::ops::Range<u32>) -> Member {
    let rows = Tokens(rows.start)..Tokens(rows.end);
    Member {
        request: RequestId(request),
        class,
        stage,
        rows,
        yields: Yields::Token,
        head: HeadRows::Last,
        net: Net::Decoder,
    }
}

/// A background request is reading as a reactive one comes, which takes the lanes from it and then lets it ride along.
fn mixed() -> Run {
    let mut run = Run::new();
    run.arrive(0, 1, Proactive, 100);
    run.restore(0, 1, 40, Some(Source::TakenOver(RequestId(99))));
    run.arrive(0, 3, Proactive, 9);
    let kernel = run.launch(4, &[0, 1], vec![member(1, Proactive, Prefill, 40..100)]);
    run.arrive(10, 2, Reactive, 5);
    run.restore(10, 2, 0, None);
    let token = Generated::one(RequestId(1), None);
    run.event(14, Event::KernelDone { kernel, outcome: Outcome::Tokens(vec![token]) });
    run.pass(14, 44, &[0], vec![member(2, Reactive, Prefill, 0..5)]);
    run.pass(44, 54, &[0], vec![member(2, Reactive, Decode, 5..6), member(1, Proactive, Decode, 100..101)]);
    run.release(54, 2, End::Finished(FinishReason::Stop));
    run
}

#[test]
fn requests_are_counted_from_arrival_to_end() {
    let mut run = mixed();
    run.assert_lines(&[
        r#"duet_requests_submitted_total{class="reactive"} 1"#,
        r#"duet_requests_submitted_total{class="proactive"} 2"#,
        r#"duet_requests_ended_total{class="reactive",outcome="stop"} 1"#,
        r#"duet_requests_ended_total{class="proactive",outcome="failed"} 0"#,
        r#"duet_queue_depth{class="proactive",stage="queued"} 1"#,
        r#"duet_queue_depth{class="proactive",stage="decode"} 1"#,
        r#"duet_queue_depth{class="reactive",stage="decode"} 0"#,
        r#"duet_prompt_tokens_cached_total{class="proactive"} 40"#,
        r#"duet_prompt_tokens_computed_total{class="proactive"} 60"#,
        r#"duet_prompt_tokens_computed_total{class="reactive"} 5"#,
        r#"duet_tokens_generated_total{class="proactive"} 2"#,
        r#"duet_tokens_generated_total{class="reactive"} 2"#,
    ]);
    run.release(60, 1, End::Finished(FinishReason::Length));
    run.release(60, 3, End::Finished(FinishReason::Cancelled));
    run.assert_lines(&[
        r#"duet_requests_ended_total{class="proactive",outcome="length"} 1"#,
        r#"duet_requests_ended_total{class="proactive",outcome="cancelled"} 1"#,
        r#"duet_queue_depth{class="proactive",stage="decode"} 0"#,
    ]);
}

#[test]
fn times_are_in_seconds() {
    mixed().assert_lines(&[
        r#"duet_waiting_seconds_sum{class="proactive"} 0.004"#,
        r#"duet_waiting_seconds_count{class="reactive"} 1"#,
        r#"duet_waiting_seconds_bucket{le="0.0025",class="reactive"} 0"#,
        r#"duet_waiting_seconds_bucket{le="0.005",class="reactive"} 1"#,
        r#"duet_preemption_latency_seconds_sum 0.004"#,
        r#"duet_preemption_latency_seconds_count 1"#,
        r#"duet_preemptions_total 1"#,
        r#"duet_token_gap_seconds_sum{class="reactive"} 0.01"#,
        r#"duet_token_gap_seconds_sum{class="proactive"} 0.04"#,
        r#"duet_lane_busy_seconds_total{lane="cpu0"} 0.05"#,
        r#"duet_lane_busy_seconds_total{lane="cpu1"} 0.01"#,
    ]);
}

#[test]
fn passes_show_who_is_in_them_and_how_well_they_were_predicted() {
    mixed().assert_lines(&[
        r#"duet_pass_rows_sum{class="proactive",stage="prefill"} 60.0"#,
        r#"duet_pass_rows_sum{class="reactive",stage="decode"} 2.0"#,
        r#"duet_pass_members_count{class="reactive",stage="decode"} 1"#,
        r#"duet_pass_members_sum{class="reactive",stage="decode"} 2.0"#,
        r#"duet_pass_riders_count 2"#,
        r#"duet_pass_riders_sum 1.0"#,
        // 10 ms and 30 ms of 20 ms predicted.
        r#"duet_kernel_time_ratio_sum{stage="prefill"} 2.0"#,
        r#"duet_kernel_time_ratio_bucket{le="0.5",stage="prefill"} 1"#,
        r#"duet_kernel_time_ratio_bucket{le="1.5",stage="prefill"} 2"#,
        r#"duet_kernel_time_ratio_count{stage="decode"} 1"#,
    ]);
}

#[test]
fn memory_and_faults_are_counted() {
    let mut run = mixed();
    run.command(60, Command::Spill(RequestId(1)));
    run.event(61, Event::Spilled { request: RequestId(1) });
    run.restore(62, 1, 101, None);
    run.command(63, Command::Spill(RequestId(2)));
    run.event(64, Event::SpillFailed { request: RequestId(2) });
    let kernel = run.launch(65, &[1], vec![member(1, Proactive, Decode, 101..102)]);
    run.event(75, Event::KernelFailed { kernel });
    run.command(75, Command::Discard(RequestId(1)));
    run.release(75, 1, End::Failed);
    run.assert_lines(&[
        "duet_kv_pages_capacity 100",
        "duet_kv_pages_used 40",
        "duet_kv_pages_kept 30",
        "duet_kv_pages_spilled 7",
        r#"duet_kv_discarded_tokens_total{class="proactive"} 101"#,
        r#"duet_kv_spills_total{outcome="done"} 1"#,
        r#"duet_kv_spills_total{outcome="failed"} 1"#,
        r#"duet_kv_restores_total{from="memory"} 1"#,
        r#"duet_kv_restores_total{from="nowhere"} 1"#,
        r#"duet_kv_restores_total{from="own"} 1"#,
        // Its own is not a prompt's beginning that somebody had left.
        r#"duet_prompt_tokens_cached_total{class="proactive"} 40"#,
        "duet_kernels_failed_total 1",
        r#"duet_kernel_time_ratio_count{stage="decode"} 1"#,
        r#"duet_lane_busy_seconds_total{lane="cpu1"} 0.02"#,
        r#"duet_requests_ended_total{class="proactive",outcome="failed"} 1"#,
    ]);
}

#[test]
fn all_series_are_there_from_the_start_and_the_text_is_whole() {
    let run = Run::new();
    let text = run.text();
    assert!(text.ends_with("# EOF\n"));
    let described: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert_eq!(described.len(), 60, "{described:?}");
    for metric in described {
        let (name, _) = metric.split_once(' ').expect("a name and a type");
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} has no series");
    }
}

#[test]
fn graphs_that_are_exchanged_are_counted_with_their_time() {
    let mut run = Run::new();
    let load = |role| GraphLoad { block: 3, role, exchange: Exchange::InPlace };
    run.command(10, Command::LoadGraph(load(Role::Decode)));
    run.event(30, Event::GraphLoaded { block: 3 });
    run.command(40, Command::LoadGraph(load(Role::Prefill)));
    run.event(45, Event::GraphLoadFailed { block: 3 });
    run.assert_lines(&[
        r#"duet_graph_loads_total{graph="decode",outcome="done"} 1"#,
        r#"duet_graph_loads_total{graph="prefill",outcome="failed"} 1"#,
        r#"duet_graph_loads_total{graph="prefill",outcome="done"} 0"#,
        "duet_graph_load_seconds_total 0.025",
    ]);
}

#[test]
fn threads_that_leave_their_cores_to_others_are_counted_by_lane() {
    let run = Run::new();
    let absences = vec![Absences { away: 1, begun: 3 }, Absences { away: 0, begun: 2 }];
    let expose = |absences| run.metrics.expose(|_, _| 0, &PAGES, Elsewhere { absences, ..Elsewhere::default() });
    drop(expose(vec![Absences { away: 2, begun: 2 }]));
    drop(expose(absences));
    run.assert_lines(&[
        r#"duet_lane_threads_away{lane="cpu0"} 1"#,
        r#"duet_lane_absences_total{lane="cpu0"} 3"#,
        r#"duet_lane_threads_away{lane="cpu1"} 0"#,
        r#"duet_lane_absences_total{lane="cpu1"} 2"#,
    ]);
}
