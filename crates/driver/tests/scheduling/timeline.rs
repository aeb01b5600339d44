//! What the scheduler does, as text: a scenario in, a timeline out.

use super::fake_world::{Client, Entry, FakeWorld};
use duet_driver::run;
use duet_scheduler::policy::Fcfs;
use duet_scheduler::{End, Scheduler, SchedulerConfig};
use duet_types::{Class, FinishReason, Instant, LaneSet, Stage};
use expect_test::{Expect, expect};
use std::fmt::Write as _;

/// The background request came first, and the person waits for all of it: what every other policy is to improve.
#[test]
fn requests_are_served_in_the_order_of_arrival() {
    check(
        "lanes 2  nodes 4
         at 0ms  A  proactive  prompt 600  output 2
         at 3ms  B  reactive   prompt 64   output 3",
        expect![[r"
            0.000ms       arrive   A proactive
            0.000ms  0+1  prefill  A[0..256] nodes 0..4    first come
            2.560ms  0+1  prefill  A[256..512] nodes 0..4  runs to completion
            3.000ms       arrive   B reactive
            5.120ms  0+1  prefill  A[512..600] nodes 0..4  runs to completion
            6.000ms  0+1  decode   A[600..601] nodes 0..4  runs to completion
            7.000ms       end      A stop
            7.000ms  0+1  prefill  B[0..64] nodes 0..4     first come
            7.640ms  0+1  decode   B[64..65] nodes 0..4    runs to completion
            8.640ms  0+1  decode   B[65..66] nodes 0..4    runs to completion
            9.640ms       end      B stop
        "]],
    );
}

/// A pass may be cut anywhere; the rows are the same and the total time too.
#[test]
fn a_pass_is_cut_in_spans_of_nodes() {
    check(
        "lanes 1  nodes 7  span 3
         at 0ms  A  reactive  prompt 7  output 2",
        expect![[r"
            0.000ms       arrive   A reactive
            0.000ms  0    prefill  A[0..7] nodes 0..3      first come
            0.030ms  0    prefill  A[0..7] nodes 3..6      runs to completion
            0.060ms  0    prefill  A[0..7] nodes 6..7      runs to completion
            0.070ms  0    decode   A[7..8] nodes 0..3      runs to completion
            0.499ms  0    decode   A[7..8] nodes 3..6      runs to completion
            0.927ms  0    decode   A[7..8] nodes 6..7      runs to completion
            1.070ms       end      A stop
        "]],
    );
}

/// A kernel under way is finished, nothing more is launched, and the next request follows at once.
#[test]
fn a_cancelled_request_stops_at_the_end_of_its_kernel() {
    check(
        "lanes 2  nodes 4
         at 0ms  A  reactive  prompt 600  output 9  cancelled 1ms
         at 0ms  B  reactive  prompt 10   output 1",
        expect![[r"
            0.000ms       arrive   A reactive
            0.000ms       arrive   B reactive
            0.000ms  0+1  prefill  A[0..256] nodes 0..4    first come
            1.000ms       cancel   A
            2.560ms       end      A cancelled
            2.560ms  0+1  prefill  B[0..10] nodes 0..4     first come
            2.660ms       end      B stop
        "]],
    );
}

#[test]
fn a_queued_request_is_cancelled_at_once_and_an_ended_one_not_at_all() {
    check(
        "lanes 1  nodes 1
         at 0ms  A  reactive  prompt 100  output 1  cancelled 3ms
         at 0ms  B  reactive  prompt 100  output 1  cancelled 0.5ms",
        expect![[r"
            0.000ms       arrive   A reactive
            0.000ms       arrive   B reactive
            0.000ms  0    prefill  A[0..100] nodes 0..1    first come
            0.500ms       cancel   B
            0.500ms       end      B cancelled
            1.000ms       end      A stop
            3.000ms       cancel   A
        "]],
    );
}

/// A second turn computes only what its flow's KV does not hold.
#[test]
fn cached_tokens_are_not_computed() {
    check(
        "lanes 1  nodes 1
         at 0ms  A  reactive  prompt 300  cached 280  output 1",
        expect![[r"
            0.000ms       arrive   A reactive
            0.000ms  0    prefill  A[280..300] nodes 0..1  first come
            0.200ms       end      A stop
        "]],
    );
}

#[test]
fn a_failed_kernel_ends_its_request_only() {
    check(
        "lanes 1  nodes 2  span 1
         at 0ms  A  reactive  prompt 10  output 5  fails 1
         at 0ms  B  reactive  prompt 10  output 1",
        expect![[r"
            0.000ms       arrive   A reactive
            0.000ms       arrive   B reactive
            0.000ms  0    prefill  A[0..10] nodes 0..1     first come
            0.050ms  0    prefill  A[0..10] nodes 1..2     runs to completion
            0.100ms       end      A failed
            0.100ms  0    prefill  B[0..10] nodes 0..1     first come
            0.150ms  0    prefill  B[0..10] nodes 1..2     runs to completion
            0.200ms       end      B stop
        "]],
    );
}

/// Runs a scenario and compares its timeline. The first line is the machine, every other one a request.
fn check(scenario: &str, timeline: Expect) {
    let mut lines = scenario.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let machine = lines.next().expect("a scenario begins with its machine");
    let number = |words: &[&str], name: &str| {
        let at = words.iter().position(|&word| word == name)?;
        Some(words[at + 1].parse::<u32>().unwrap_or_else(|_| panic!("{name} {}", words[at + 1])))
    };
    let clients = lines.map(|words| Client {
        name: words[2].to_owned(),
        arrives: time(words[1]),
        class: if words.contains(&"reactive") { Class::Reactive } else { Class::Proactive },
        prompt: number(&words, "prompt").expect("a prompt"),
        cached: number(&words, "cached").unwrap_or(0),
        output: number(&words, "output").expect("an output"),
        cancelled: words.iter().position(|&word| word == "cancelled").map(|at| time(words[at + 1])),
        fails: number(&words, "fails"),
    });
    let nodes = number(&machine, "nodes").expect("nodes") as usize;
    let lanes = LaneSet::first(number(&machine, "lanes").expect("lanes") as u8);
    let span_nodes = number(&machine, "span").map(|span| span as usize);
    let config = SchedulerConfig { span_nodes, ..SchedulerConfig::new(lanes, nodes) };
    let mut world = FakeWorld::new(clients.collect(), nodes);
    run(&mut Scheduler::new(config, Box::new(Fcfs)), &mut world);
    timeline.assert_eq(&render(&world));
}

fn time(word: &str) -> Instant {
    let millis: f64 = word.trim_end_matches("ms").parse().unwrap_or_else(|_| panic!("time {word}"));
    Instant((millis * 1e6) as u64)
}

fn render(world: &FakeWorld) -> String {
    let mut text = String::new();
    for (now, entry) in &world.timeline {
        let client = |request: duet_types::RequestId| &world.clients[request.0 as usize];
        let (lanes, action, subject, reason) = match entry {
            Entry::Arrived(id) => {
                let class = match client(*id).class {
                    Class::Reactive => "reactive",
                    Class::Proactive => "proactive",
                };
                (String::new(), "arrive", format!("{} {class}", client(*id).name), String::new())
            }
            Entry::Cancelled(id) => (String::new(), "cancel", client(*id).name.clone(), String::new()),
            Entry::Launched { lanes, kernel, reason } => {
                let action = match kernel.stage {
                    Stage::Prefill => "prefill",
                    Stage::Decode => "decode",
                    Stage::Verify => "verify",
                };
                let name = &client(kernel.request).name;
                let (rows, nodes) = (&kernel.rows, &kernel.nodes);
                let subject = format!("{name}[{}..{}] nodes {}..{}", rows.start, rows.end, nodes.start, nodes.end);
                (lanes.to_string(), action, subject, reason.to_string())
            }
            Entry::Released { request, end } => {
                let end = match end {
                    End::Finished(FinishReason::Stop) => "stop",
                    End::Finished(FinishReason::Length) => "length",
                    End::Finished(FinishReason::Cancelled) => "cancelled",
                    End::Failed => "failed",
                };
                (String::new(), "end", format!("{} {end}", client(*request).name), String::new())
            }
        };
        let millis = now.0 as f64 / 1e6;
        let line = format!("{millis:.3}ms  {lanes:3}  {action:7}  {subject:22}  {reason}");
        writeln!(text, "{}", line.trim_end()).expect("a string takes everything");
    }
    text
}
