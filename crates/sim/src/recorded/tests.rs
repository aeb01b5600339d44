use super::*;
use crate::scenario::Scenario;
use crate::speed::{Speed, SpeedTimeline};
use crate::timeline::Timeline;
use duet_driver::{EventLog, Probe, Rates};
use duet_types::{Class, Net};

/// Simulates a scenario. Returns its timeline and its log.
fn run(scenario: &Scenario) -> (String, Vec<u8>) {
    let mut log = Vec::new();
    let header = Header { policy: scenario.policy, config: scenario.config.clone(), profiled: None };
    let observers = (EventLog::begin(&mut log, &header).unwrap(), Timeline::new(scenario));
    let timeline = scenario.run(observers).observer.1.text().to_owned();
    (timeline, log)
}

/// The same run, from its log. Names are not in a log, so they are numbers.
fn again(scenario: &str) -> (String, String) {
    let mut scenario: Scenario = scenario.parse().unwrap();
    for (index, client) in scenario.clients.iter_mut().enumerate() {
        client.name = index.to_string();
    }
    let (timeline, log) = run(&scenario);
    let recorded = Recorded::read(&log[..]).unwrap();
    (timeline, run(&recorded.scenario()).0)
}

#[test]
fn a_recorded_simulation_is_simulated_again_line_by_line() {
    for scenario in [
        "cpu policy duet
         at 0ms A proactive prompt 600 output 40
         at 3ms B reactive  prompt 64  output 30
         at 9ms C reactive  prompt 300 output 5
         at 9ms D proactive prompt 200 output 9 cancelled 20ms",
        "npu-igpu policy agent-xpu
         at 0ms A proactive prompt 600 output 4
         at 1ms B reactive  prompt 700 output 3
         at 400ms C reactive prompt 900 output 3 continues B
         at 500ms D proactive prompt 650 output 3 shares 400 of A",
        "cpu policy cpu-batching pages 20 disk 40
         at 0ms A proactive prompt 80 output 40
         at 1ms B proactive prompt 70 output 40
         at 2ms C reactive  prompt 60 output 20
         at 90ms D reactive prompt 90 output 9 cancelled 95ms",
        "cpu policy duet
         at 0ms A proactive prompt 600 output 9
         at 1ms B proactive prompt 300 output 1 encodes
         at 3ms C reactive  prompt 64  output 9
         at 4ms D reactive  prompt 20  output 1 encodes
         at 9ms E proactive prompt 90  output 1 encodes cancelled 10ms",
    ] {
        let (first, second) = again(scenario);
        assert_eq!(first, second, "{scenario}");
    }
}

/// A log as text, to be spoilt.
fn log() -> String {
    let scenario: Scenario = "cpu policy duet
         at 0ms A proactive prompt 60 output 3
         at 1ms B reactive  prompt 64 output 2 cancelled 2ms
         at 9ms C reactive  prompt 70 output 2 shares 50 of A"
        .parse()
        .unwrap();
    String::from_utf8(run(&scenario).1).unwrap()
}

fn refused(log: &str, message: &str) {
    let error = Recorded::read(log.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("line ") && error.contains(message), "{error}");
}

#[test]
fn texts_for_an_encoder_need_one_and_continue_nothing() {
    let scenario = "cpu policy duet
         at 0ms A proactive prompt 60 output 3
         at 99ms B proactive prompt 70 output 1 encodes";
    let log = String::from_utf8(run(&scenario.parse().unwrap()).1).unwrap();
    assert!(log.contains("\"net\":\"Encoder\""), "{log}");
    let recorded = Recorded::read(log.as_bytes()).unwrap();
    assert_eq!((recorded.clients[1].net, recorded.clients[1].output), (Net::Encoder, Tokens(1)));
    let restored = log.find("\"Restored\":{\"request\":1").unwrap();
    let (before, after) = log.split_at(restored);
    refused(
        &format!("{before}{}", after.replacen("\"source\":null", "\"source\":{\"Forked\":0}", 1)),
        "continues request 0",
    );
    // Whatever a file says of its tokens, and of the other's.
    let claimed = |tokens: u32| log.replace("\"tokens\":1", &format!("\"tokens\":{tokens}"));
    refused(&claimed(u32::MAX), "has too many tokens");
    for tokens in [0, 5] {
        let claimed = claimed(tokens);
        assert_ne!(claimed, log);
        let recorded = Recorded::read(claimed.as_bytes()).unwrap();
        run(&recorded.scenario());
        assert_eq!((recorded.clients[1].output, recorded.clients[1].drafts), (Tokens(1), None));
    }
    let mut lines = log.lines();
    let header: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let mut without = header.clone();
    without.pointer_mut("/config").unwrap().as_object_mut().unwrap().remove("encoder");
    let rest: Vec<&str> = lines.collect();
    refused(&format!("{without}\n{}\n", rest.join("\n")), "is for an encoder, and config has none");
    let mut broken = header;
    *broken.pointer_mut("/config/encoder/layers").unwrap() = 0.into();
    refused(&format!("{broken}\n{}\n", rest.join("\n")), "config.encoder is no graph");
}

#[test]
fn clients_are_what_the_log_says_of_them() {
    let recorded = Recorded::read(log().as_bytes()).unwrap();
    let [a, b, c] = &recorded.clients[..] else { panic!("{:?}", recorded.clients) };
    assert_eq!((a.class, a.prompt, a.output, a.cancelled), (Class::Proactive, Tokens(60), Tokens(3), None));
    assert_eq!((b.arrives, b.cancelled), (Instant(1_000_000), Some(Instant(2_000_000))));
    assert_eq!(c.continues, Some(Continues { client: 0, shared: Tokens(50) }));
    assert_eq!(recorded.counters.reuse.tokens(), Tokens(50));
    assert!(!recorded.counters.kernels.done().is_empty());
}

/// Servers give up what has ended; a replay that takes longer is not to be cut short by that.
#[test]
fn what_is_given_up_after_its_end_is_not_cancelled() {
    let mut scenario: Scenario = "cpu policy duet
         at 0ms 0 reactive prompt 60 output 3 cancelled 900ms"
        .parse()
        .unwrap();
    scenario.clients[0].name = "0".to_owned();
    let (timeline, log) = run(&scenario);
    assert!(timeline.contains("cancel"), "{timeline}");
    assert_eq!(Recorded::read(&log[..]).unwrap().clients[0].cancelled, None);
}

/// A request of a full background does not pile up behind a machine that is slower than the recorded one.
#[test]
fn a_background_that_was_kept_in_flight_waits_for_its_own_ends() {
    let scenario: Scenario = "cpu policy duet
         at 0ms   0 proactive prompt 300 output 20
         at 0ms   1 proactive prompt 300 output 20
         at 150ms 2 proactive prompt 300 output 20
         at 150ms 3 proactive prompt 300 output 20
         at 900ms 4 reactive  prompt 60 output 5"
        .parse()
        .unwrap();
    let (timeline, log) = run(&scenario);
    let read = || Recorded::read(&log[..]).unwrap();
    let follows = |recorded: &Recorded| -> Vec<_> {
        recorded.clients.iter().map(|client| client.follows.map(|follows| follows.client)).collect()
    };
    assert_eq!(follows(&read()), [None; 5]);
    let closed = read().kept_in_flight(Class::Proactive);
    assert_eq!(follows(&closed)[..2], [None; 2]);
    let mut followed: Vec<_> = follows(&closed)[2..4].iter().flatten().copied().collect();
    followed.sort_unstable();
    assert_eq!((followed, follows(&closed)[4]), (vec![0, 1], None));
    // On the machine that was recorded it is the same run.
    assert_eq!(run(&closed.scenario()).0, timeline);
    let slow = |recorded: Recorded| {
        let mut scenario = recorded.scenario();
        let speed = Speed { arithmetic: 0.1, memory: 0.1, ..Speed::PROFILED };
        scenario.truth.speed = SpeedTimeline::new(vec![(Instant(0), speed)]);
        let metrics = scenario.run(Counters::default()).observer.metrics;
        metrics.latency(RequestId(3)).unwrap()
    };
    assert!(slow(closed).0 * 3 < slow(read()).0 * 2);
}

#[test]
fn drafts_are_right_as_often_as_they_were() {
    let scenario: Scenario = "cpu policy duet
         at 0ms 0 reactive prompt 60 output 2000 drafts 700
         at 0ms 1 proactive prompt 60 output 40"
        .parse()
        .unwrap();
    let log = run(&scenario).1;
    let recorded = Recorded::read(&log[..]).unwrap();
    let took = |counters: &Counters| counters.metrics.latency(RequestId(0)).unwrap().as_secs_f64();
    let again = recorded.scenario().run(Counters::default()).observer;
    assert!(
        (took(&again) / took(&recorded.counters) - 1.0).abs() < 0.15,
        "{:?}, {} s and {} s",
        recorded.clients[0].drafts,
        took(&recorded.counters),
        took(&again)
    );
    assert_eq!(recorded.clients[1].drafts, None);
}

#[test]
fn a_log_that_was_cut_is_read_as_far_as_it_goes() {
    let log = log();
    for cut in (log.find('\n').unwrap() + 1..log.len()).step_by(97) {
        let recorded = Recorded::read(&log.as_bytes()[..cut]).unwrap();
        run(&recorded.scenario());
    }
}

#[test]
fn what_is_wrong_is_named_by_its_line() {
    let log = log();
    refused("", "line 1: this is no event log");
    refused("{}\n", "line 1: missing field");
    refused(&log.replace("\"page\":10", "\"page\":0"), "line 1: config.memory has pages or states of no positions");
    refused(&log.replacen("{\"Event\":[0,", "{\"Event\":[-1,", 1), "line 2");
    refused(&log.replacen("\"Submitted\":{\"id\":0", "\"Submitted\":{\"id\":7", 1), "request 7 is submitted");
    refused(&log.replacen("\"prompt\":60", "\"prompt\":0", 1), "a prompt of 0 tokens");
    refused(&log.replacen("\"KernelDone\":{\"kernel\":0", "\"KernelDone\":{\"kernel\":99", 1), "kernel 99 ends");
    refused(&log.replacen("\"nodes\":{\"start\":0,", "\"nodes\":{\"start\":900,", 1), "has no nodes");
    refused(&log.replacen("\"Forked\":0", "\"Forked\":2", 1), "request 2, which has not ended");
    refused(&format!("{log}{{\"Event\":[0,\"Timer\"]}}\n"), "time goes backwards");
    let probe =
        |macs: &str| format!("{{\"Probe\":[99000000000,{{\"rates\":{{\"macs_per_s\":{macs},\"bytes_per_s\":1}}}}]}}\n");
    refused(&format!("{log}{}", probe("0")), "rates that are not above 0");
    assert_eq!(Recorded::read(format!("{log}{}", probe("5")).as_bytes()).unwrap().probes.len(), 1);
}

#[test]
fn a_machine_at_half_its_speed_is_simulated_as_slow_as_its_probes_say() {
    let mut scenario: Scenario = "cpu policy duet
         at 0ms 0 reactive prompt 500 output 40"
        .parse()
        .unwrap();
    // Truth: half as fast as the scheduler's machine, all the time. The probes say so, of their own rates.
    let speed = Speed { arithmetic: 0.5, memory: 0.5, ..Speed::PROFILED };
    scenario.truth.speed = SpeedTimeline::new(vec![(Instant(0), speed)]);
    let (slow, log) = run(&scenario);
    let mut recorded = Recorded::read(&log[..]).unwrap();
    recorded.header.profiled = Some(Rates { macs_per_s: 2e9, bytes_per_s: 4e9 });
    let probe = Probe { rates: Rates { macs_per_s: 1e9, bytes_per_s: 2e9 }, lanes: Vec::new() };
    recorded.probes = vec![Probed { at: Instant(0), probe, beside: Beside::Decode }];
    let fidelity = crate::fidelity::judge(&recorded);
    for (figure, compared) in &fidelity.classes[0].figures {
        assert!(compared.corrected_pct().unwrap().abs() < 1e-6, "{figure:?} {compared:?}");
        assert!(compared.raw_pct().unwrap() < -40.0, "{figure:?} {compared:?}");
    }
    let stage = &fidelity.stages[0];
    assert!(stage.corrected.mean_abs_pct < 0.1 && stage.profiled.mean_abs_pct > 30.0, "{stage:?}");
    // As profiled it is another timeline.
    assert_ne!(run(&recorded.scenario()).0, slow);
}
