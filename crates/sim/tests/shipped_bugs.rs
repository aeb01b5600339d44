//! Bugs that other schedulers shipped, and that this one is not to have. Where it is known for certain who had one, the
//! test says so.

use duet_driver::Observer;
use duet_scheduler::policy::PolicyName;
use duet_scheduler::{Command, End, Event, Kernel};
use duet_sim::{Metrics, Scenario, fuzz};
use duet_types::{Class, FinishReason, Instant, Nanos, RequestId, Tokens};

/// All launches, spills and ends, in order.
#[derive(Default)]
struct Record {
    metrics: Metrics,
    kernels: Vec<(Instant, Kernel)>,
    /// Of live requests.
    spills: Vec<RequestId>,
    discards: Vec<RequestId>,
    ends: Vec<(Instant, RequestId, End)>,
    cached: Vec<(RequestId, Tokens)>,
}

impl Observer for Record {
    fn event(&mut self, now: Instant, event: &Event) {
        self.metrics.event(now, event);
        if let Event::Restored { request, cached, .. } = event {
            self.cached.push((*request, *cached));
        }
    }

    fn command(&mut self, now: Instant, command: &Command) {
        self.metrics.command(now, command);
        match command {
            Command::Launch { kernel, .. } => self.kernels.push((now, kernel.clone())),
            Command::Spill(request) if !self.ends.iter().any(|(_, ended, _)| ended == request) => {
                self.spills.push(*request);
            }
            Command::Discard(request) => self.discards.push(*request),
            Command::Release { request, end } => self.ends.push((now, *request, *end)),
            _ => {}
        }
    }
}

fn run(scenario: &str) -> Record {
    let scenario: Scenario = scenario.parse().unwrap_or_else(|error| panic!("{error}"));
    scenario.run(Record::default()).observer
}

impl Record {
    /// Kernels that a request has rows in.
    fn kernels_of(&self, request: u64) -> impl Iterator<Item = &(Instant, Kernel)> {
        let of = move |kernel: &Kernel| kernel.members.iter().any(|member| member.request == RequestId(request));
        self.kernels.iter().filter(move |(_, kernel)| of(kernel))
    }

    fn end_of(&self, request: u64) -> (Instant, End) {
        let end = self.ends.iter().find(|(_, ended, _)| *ended == RequestId(request)).expect("it ended");
        (end.0, end.2)
    }

    /// Longest gap between two kernels of a request.
    fn gap_max(&self, request: u64) -> Nanos {
        let times: Vec<Instant> = self.kernels_of(request).map(|(now, _)| *now).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

/// Two requests of a class that do not fit together push each other out in turns, and neither comes to its end.
#[test]
fn equal_priority_ping_pong() {
    let record = run("single policy duet pages 26 disk 100
         at 0ms  A  proactive  prompt 120  output 20
         at 0ms  B  proactive  prompt 110  output 20");
    assert!(record.spills.len() <= 1, "{:?} were spilled", record.spills);
    // The older one never is.
    assert!(!record.spills.contains(&RequestId(0)));
    // Reactive requests do not preempt each other: the first one's chunks come one after another.
    let record = run("cpu
         at 0ms  A  reactive  prompt 500  output 1
         at 1ms  B  reactive  prompt 500  output 1");
    let order: Vec<u64> = record.kernels.iter().map(|(_, kernel)| kernel.members[0].request.0).collect();
    assert!(order.is_sorted(), "{order:?}");
}

/// All background requests are pushed out though one would have been enough.
#[test]
fn preempting_more_than_needed() {
    let record = run("single  pages 40  disk 100
         at 0ms   A  proactive  prompt 100  output 20
         at 0ms   B  proactive  prompt 100  output 20
         at 0ms   C  proactive  prompt 100  output 20
         at 20ms  D  reactive   prompt 120  output 2");
    // One of them has enough pages, and it is the youngest.
    assert_eq!(record.spills, [RequestId(2)]);
}

/// What was preempted goes to the end of the queue.
#[test]
fn a_preempted_request_loses_its_place() {
    for policy in [PolicyName::Duet, PolicyName::AgentXpu, PolicyName::Restart, PolicyName::PriorityOnly] {
        let record = run(&format!(
            "cpu  policy {policy}
             at 0ms  A  proactive  prompt 300  output 1
             at 1ms  B  proactive  prompt 300  output 1
             at 2ms  C  reactive   prompt 100  output 1"
        ));
        assert!(record.end_of(0).0 < record.end_of(1).0, "{policy}: B overtook A");
    }
}

/// All places are taken by background requests, and a person waits for one to end.
#[test]
fn priority_inversion_when_slots_are_full() {
    for policy in [PolicyName::Duet, PolicyName::AgentXpu] {
        let record = run(&format!(
            "cpu  policy {policy}  batch 2  pages 40  disk 100
             at 0ms   A  proactive  prompt 150  output 40
             at 0ms   B  proactive  prompt 150  output 40
             at 30ms  C  reactive   prompt 200  output 2"
        ));
        assert!(record.end_of(2).0 < record.end_of(0).0, "{policy}: A ended first");
        // Pages are written while it waits; it does not wait for an answer to end.
        assert!(record.metrics.wait(RequestId(2)).unwrap() < Nanos(10_000_000), "{policy}");
    }
}

/// Prompts keep coming, and an answer under way stops for as long as they do.
#[test]
fn prefill_starves_decode() {
    for machine in ["cpu", "npu-igpu  without warm-up"] {
        let prompts: String = (1..40).map(|at| format!("\nat {at}ms  p{at}  reactive  prompt 60  output 1")).collect();
        let record = run(&format!("{machine}  stall 20ms\nat 0ms  A  reactive  prompt 20  output 10{prompts}"));
        assert!(record.gap_max(0) <= Nanos(20_000_000), "{machine}: {:?}", record.gap_max(0));
    }
}

/// Answers under way keep the machine busy, and a prompt waits for one to end.
#[test]
fn decode_starves_prefill() {
    for machine in ["cpu", "npu-igpu  without warm-up"] {
        let record = run(&format!(
            "{machine}
             at 0ms   A  reactive  prompt 20  output 200
             at 0ms   B  reactive  prompt 20  output 200
             at 20ms  C  reactive  prompt 60  output 1"
        ));
        assert!(record.metrics.latency(RequestId(2)).unwrap() < Nanos(20_000_000), "{machine}");
    }
}

/// Cancels the first request at a time, alone and beside others, under every policy: nothing of it begins afterwards.
fn cancelled(at: &str) {
    for policy in PolicyName::ALL {
        for machine in ["cpu", "npu-igpu", "single"] {
            let record = run(&format!(
                "{machine}  policy {policy}  pages 60
                 at 0ms  B  proactive  prompt 10   output 1
                 at 1ms  A  reactive   prompt 300  output 50  cancelled {at}
                 at 2ms  C  reactive   prompt 500  output 2"
            ));
            let (ended, end) = record.end_of(1);
            assert_eq!(end, End::Finished(FinishReason::Cancelled), "{machine} {policy}");
            let millis: f64 = at.trim_end_matches("ms").parse().unwrap();
            let cancelled = Instant((millis * 1e6) as u64);
            let mut after = record.kernels_of(1).filter(|(now, _)| *now > cancelled);
            // The rest of a pass with others goes on for their sake.
            let alone = after.find(|(_, kernel)| kernel.members.len() == 1);
            assert!(alone.is_none(), "{machine} {policy}: {alone:?}");
            // The longest kernel here is a prompt of 300 rows in one piece on the iGPU.
            assert!(ended - cancelled <= Nanos(25_000_000), "{machine} {policy}: {:?}", ended - cancelled);
            // Its pages came back: C needs nearly all.
            assert_eq!(record.end_of(2).1, End::Finished(FinishReason::Stop), "{machine} {policy}");
        }
    }
}

/// It stands in the queue for ever, or is run when its turn comes.
#[test]
fn cancelling_while_queued() {
    cancelled("1.01ms");
}

/// Its prompt is read to its end before anybody looks.
#[test]
fn cancelling_while_prefilling() {
    cancelled("7ms");
}

/// Its answer is written to its end. (Whether it is streamed is the server's: here it is the same.)
#[test]
fn cancelling_while_decoding() {
    let scenario = "single  pages 60
         at 0ms  A  reactive  prompt 20  output 500  cancelled 30ms";
    let record = run(scenario);
    let (ended, end) = record.end_of(0);
    assert_eq!(end, End::Finished(FinishReason::Cancelled));
    assert!(ended - Instant(30_000_000) < Nanos(3_000_000), "one kernel is about 2 ms");
    cancelled("40ms");
}

/// Nobody waits for it any more, and it takes the machine from those who do.
#[test]
fn a_dead_clients_queued_request_still_runs() {
    for policy in PolicyName::ALL {
        let record = run(&format!(
            "cpu  policy {policy}
             at 0ms  A  proactive  prompt 400  output 9
             at 1ms  B  proactive  prompt 300  output 9  cancelled 1.5ms
             at 1ms  C  proactive  prompt 50   output 1"
        ));
        let after = record.kernels_of(1).filter(|(now, _)| *now > Instant(1_500_000));
        assert_eq!(after.filter(|(_, kernel)| kernel.members.len() == 1).count(), 0, "{policy}");
        assert_eq!(record.end_of(1).1, End::Finished(FinishReason::Cancelled), "{policy}");
    }
}

/// Two flows come back from disk, and one has the other's KV. The world hands out what a request's own tokens begin with
/// and checks where its rows begin; here each has exactly what its flow left.
#[test]
fn resuming_into_the_wrong_conversations_cache() {
    let record = run("single  pages 30  disk 100
         at 0ms    A  reactive  prompt 100  output 2
         at 20ms   B  reactive  prompt 150  output 2
         at 40ms   X  reactive  prompt 280  output 1
         at 100ms  C  reactive  prompt 190  output 1  continues B
         at 150ms  D  reactive  prompt 140  output 1  continues A");
    let cached =
        |request: u64| record.cached.iter().find(|(id, _)| *id == RequestId(request)).map(|(_, cached)| cached.0);
    assert_eq!((cached(3), cached(4)), (Some(151), Some(101)));
    assert!(record.kernels.iter().all(|(_, kernel)| kernel.class() == Class::Reactive));
}

/// What random faults found in this scheduler: no rule is broken any more.
fn breaks_no_rule(scenario: &str) {
    let scenario: Scenario = scenario.parse().unwrap_or_else(|error| panic!("{error}"));
    if let Err(broken) = fuzz::check(&scenario, scenario.policy.policy()) {
        panic!("{broken}");
    }
}

/// Two members of a suspended pass made room for a reactive request; one was cancelled and went with the pass, and was
/// looked for again.
#[test]
fn making_room_twice_with_a_pass_whose_member_was_cancelled() {
    breaks_no_rule(
        "cpu  chunk 79  age 115ms  pages 58
         at 2.268ms   C  proactive  prompt 126  output 12
         at 21.513ms  G  reactive   prompt 203  output 9
         at 7.068ms   K  proactive  prompt 197  output 11  cancelled 23.562ms
         at 45.663ms  O  reactive   prompt 378  output 4",
    );
}

/// Nobody wanted a pass any more, then one of its two lanes was lost, and the other's end was taken for the pass's.
#[test]
fn losing_a_lane_of_a_pass_that_was_given_up() {
    breaks_no_rule(
        "npu-igpu  policy agent-xpu  chunk 60
         at 0.839ms  B  reactive  prompt 114  output 10  cancelled 4.575ms
         at 5.148ms  lane 0 is lost",
    );
}

/// A background iteration was put off for a reactive prefill's sake, and the reactive request that was to join the next
/// iteration waited for both.
#[test]
fn a_deferred_iteration_keeps_a_reactive_request_waiting() {
    breaks_no_rule(
        "npu-igpu  policy agent-xpu  chunk 124  batch 4  cap 1  stall 41ms  contention 2.2
         at 25.317ms  A  proactive  prompt 98   output 11
         at 34.465ms  B  reactive   prompt 127  output 4
         at 41.239ms  E  reactive   prompt 302  output 2",
    );
}

/// Overdue decode had its share as a rider only, and found no place in a full batch, for as long as reactive streams came.
#[test]
fn overdue_decode_starves_beside_a_full_batch() {
    breaks_no_rule(
        "cpu  without teams  chunk 101  batch 1  preempt 6ms  age 63ms  share 0.2
         at 2.401ms   L  proactive  prompt 56   output 12
         at 17.689ms  A  reactive   prompt 33   output 11
         at 25.823ms  I  reactive   prompt 215  output 8
         at 38.842ms  F  reactive   prompt 352  output 13",
    );
}

/// Overdue work that waited for memory was owed all that time, and had it at once, before a person's request.
#[test]
fn a_debt_to_work_without_memory_is_paid_at_once() {
    breaks_no_rule(
        "single  share 0.2  age 20ms  pages 45  disk 100
         at 0ms    A  proactive  prompt 300  output 20
         at 1ms    B  reactive   prompt 400  output 30
         at 112ms  C  reactive   prompt 50   output 2",
    );
}

/// A background kernel that hung was charged in full, and other overdue work paid for it for a long time.
#[test]
fn overdue_work_pays_for_a_kernel_that_hung() {
    breaks_no_rule(
        "cpu  chunk 31  batch 6  stall 35ms  age 38ms  share 0.2  pages 86  disk 157  preempt 10ms  hang-timeout 26
         at 112.809ms  L  proactive  prompt 23   output 10  hangs-once 7
         at 138.641ms  M  reactive   prompt 143  output 7
         at 154.543ms  I  proactive  prompt 65   output 11
         at 188.817ms  C  reactive   prompt 382  output 8
         at 271.533ms  K  reactive   prompt 250  output 9
         at 325.144ms  A  reactive   prompt 292  output 5",
    );
}

/// A reactive request that came while a background kernel ran, and had no memory, was put aside and never asked again
/// when the background pass stood between two kernels: it waited for the whole pass.
#[test]
fn a_person_without_memory_waits_for_a_whole_background_pass() {
    breaks_no_rule(
        "npu-igpu  policy agent-xpu  chunk 65  batch 2  stall 5ms  age 123ms  share 0.2  graphs 3  pages 48  disk 129
         at 0.209ms  M  proactive  prompt 334  output 4
         at 1.123ms  K  reactive   prompt 153  output 4",
    );
}

/// An overdue prompt of which two rows rode in a reactive pass now and then paid for the whole of each such pass, and so
/// was never owed a kernel of its own while reactive requests came.
#[test]
fn an_overdue_prompt_pays_for_the_passes_it_rides_in() {
    let reactive = (0..300).map(|at| format!("at {at}ms  R{at}  reactive  prompt 53  output 2\n"));
    let background = "npu-igpu  policy duet  age 20ms\nat 0ms  X  proactive  prompt 38  output 1\n";
    let scenario: Scenario = (background.to_owned() + &reactive.collect::<String>()).parse().unwrap();
    let latency = scenario.run(Metrics::default()).observer.latency(RequestId(0)).unwrap();
    // Its age, and its own work over the share of overdue work: a fraction of the reactive load.
    assert!(latency < Nanos(200_000_000), "{latency:?}");
}

/// The cores hung while the iGPU was slow. The NPU alone reads no prompt, so everybody waits for the iGPU: the checker
/// expected a kernel.
#[test]
fn nothing_runs_while_the_last_lane_that_takes_any_shape_is_slow() {
    breaks_no_rule(
        "npu-igpu-cpu  policy agent-xpu  chunk 89  batch 7  cap 2  preempt 6ms  stall 11ms  age 58ms  graphs 0  pages 50  hang-timeout 7
         at 42.525ms  E  proactive  prompt 88  output 7  hangs-once 5  scored  drafts 1000
         at 41.034ms  lane 1 is slow until 65.109ms",
    );
}

/// The NPU was the only lane that was neither lost nor slow, was taken for a machine of one lane, and was given a whole
/// prompt for which it had no graph.
#[test]
fn a_static_lane_is_no_machine_of_its_own() {
    breaks_no_rule(
        "npu-igpu-cpu  policy duet  chunk 95  batch 2  cap 2  preempt 10ms  stall 69ms  age 104ms  jitter 0.48  hang-timeout 7
         at 1.52ms    A  reactive  prompt 336  output 4  hangs-once 8  scored  graph-fails
         at 1.113ms   E  reactive  prompt 159  output 11
         at 1.639ms   G  reactive  prompt 197  output 2
         at 1.472ms   J  reactive  prompt 112  output 4  scored
         at 43.607ms  lane 1 is slow until 68.985ms",
    );
}

/// Policies of the papers gave texts for the encoder to the lanes that they have for everything else: an NPU, a GPU, or a team
/// with one, of which none has the encoder's weights.
#[test]
fn texts_for_an_encoder_go_to_cores_alone() {
    for machine in ["npu-igpu-cpu", "half-on-igpu", "discrete-gpu", "cpu", "single"] {
        for policy in PolicyName::ALL {
            breaks_no_rule(&format!(
                "{machine}  policy {policy}  chunk 72
                 at 0.1ms  A  proactive  prompt 227  output 1  encodes
                 at 0.2ms  B  reactive   prompt 82   output 5
                 at 0.3ms  C  reactive   prompt 40   output 1  encodes
                 at 0.4ms  D  proactive  prompt 300  output 5
                 at 0.5ms  E  proactive  prompt 90   output 1  encodes"
            ));
        }
    }
}

/// While an answer was generated on the cores, `duet` gave a text for the encoder to the GPU beside them.
#[test]
fn a_text_for_the_encoder_waits_for_the_cores_beside_a_gpu() {
    breaks_no_rule(
        "discrete-gpu  policy duet  chunk 116  batch 6  preempt 11ms  stall 58ms  age 0ms  expiry 56ms  contention 1.4
         at 15ms  A  proactive  prompt 339  output 1  encodes
         at 1ms   B  reactive   prompt 60   output 12",
    );
}

/// While an answer was generated on one set of cores, a text for the encoder waited for both.
#[test]
fn a_text_for_the_encoder_is_read_beside_an_answer() {
    breaks_no_rule(
        "cpu  policy agent-xpu  chunk 29  batch 5  cap 1  preempt 12ms  stall 71ms  age 175ms  share 0.02  pages 37  disk 47
         at 1.204ms  B  reactive  prompt 227  output 1  encodes
         at 0.987ms  D  reactive  prompt 43   output 3  drafts 300
         at 0.659ms  F  reactive  prompt 187  output 5  drafts 300",
    );
}

/// While no lane of a team could be used, requests began as on an NPU and an iGPU, the shortest prompt first.
#[test]
fn who_came_first_begins_first_while_no_lane_can_be_used() {
    breaks_no_rule(
        "discrete-gpu  policy duet  chunk 120  batch 5  stall 75ms  age 165ms  overtaking 130ms  expiry 11ms  graphs 3
         at 0.33ms    A  reactive   prompt 51   output 5  hangs-from 3
         at 4.907ms   E  proactive  prompt 195  output 9  cancelled 42.215ms  hangs-from 11  drafts 1000
         at 11.612ms  L  proactive  prompt 9    output 13
         at 40.114ms  M  proactive  prompt 28   output 9
         at 39.978ms  N  proactive  prompt 62   output 8  drafts 800
         at 44.905ms  lane 0 is slow until 55.623ms",
    );
}

/// A person's answer waited for an iteration of the background's to end, which waited for another person's prompt on the NPU:
/// both want the memory bus.
#[test]
fn the_backgrounds_iteration_ends_for_the_stream_that_waits_for_it() {
    breaks_no_rule(
        "npu-igpu  policy duet  chunk 39  batch 4  cap 1  stall 31ms  age 168ms  overtaking 122ms  share 0.02  expiry 6ms  graphs 3  contention 2.1  page-io 0.017ms  hang-timeout 15
         at 39.729ms  B  reactive   prompt 179  output 10  drafts 800
         at 15.678ms  C  proactive  prompt 33   output 3
         at 21.336ms  E  reactive   prompt 402  output 1   graph-slow 7
         at 22.343ms  F  reactive   prompt 135  output 13
         at 21.951ms  K  proactive  prompt 344  output 10  scored",
    );
}
