//! The timeline is valid, whole or cut off, and tells what ran where, and why.

use crate::by_hand::{ByHand, member};
use crate::world::{Client, Faults, config, run};
use duet_driver::Trace;
use duet_scheduler::policy::PolicyName;
use duet_types::Class::{Proactive, Reactive};
use duet_types::Stage::{Decode, Prefill};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::rc::Rc;

/// A file that outlives its writer.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).expect("a trace is text")
    }
}

fn events(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == kind).collect()
}

fn mixed_run(out: Shared) {
    let clients: Vec<Client> = (0..20)
        .map(|index| Client {
            at_us: index * 900,
            class: if index % 4 == 0 { Reactive } else { Proactive },
            prompt: 20 + (index as u32 * 31) % 100,
            answer: 2 + index as u32 % 9,
            cancels_at_us: None,
        })
        .collect();
    let faults = Faults { kernels: Some(23), spills: None };
    let config = config(1000);
    let trace = Trace::begin(out, &config);
    run(PolicyName::Duet, config, &clients, faults, trace, |_, _| {});
}

#[test]
fn a_run_is_valid_json_and_slices_of_a_lane_never_overlap() {
    let out = Shared::default();
    mixed_run(out.clone());
    let events = events(&out.text());
    let mut lanes: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for slice in of_kind(&events, "X") {
        let number = |value: &Value| value.as_f64().expect("a number");
        let (start, length) = (number(&slice["ts"]), number(&slice["dur"]));
        lanes.entry(slice["tid"].as_u64().expect("a track")).or_default().push((start, start + length));
        for name in ["flow", "class", "stage", "rows", "nodes", "predicted_us", "actual_us", "reason"] {
            assert!(slice["args"].get(name).is_some(), "{name} is missing: {slice}");
        }
    }
    assert_eq!(lanes.len(), 2);
    for slices in lanes.values_mut() {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-3), "{slices:?}");
    }
    let count = |name: &str| of_kind(&events, "i").iter().filter(|event| event["name"] == name).count();
    assert_eq!(count("arrives"), 20);
    assert_eq!(count("ends") + count("failed"), 20);
    assert!(!of_kind(&events, "C").is_empty());
}

/// The format lets the closing bracket be missing, and nothing else is.
#[test]
fn a_run_that_is_killed_leaves_whole_lines() {
    let out = Shared::default();
    let mut run = ByHand { observer: Trace::begin(out.clone(), &config(100)) };
    run.arrive(5, 1, Reactive, 8);
    run.launch(5, 0, &[0], vec![member(1, Reactive, Prefill, 0..8)]);
    run.done(80, 0, &[1]);
    std::mem::forget(run.observer);
    let text = out.text();
    assert!(!text.contains("\n]"));
    let events = events(&format!("{text}]"));
    assert_eq!(of_kind(&events, "X").len(), 1);
    assert!(text.lines().skip(1).all(|line| line.starts_with('{')), "an event a line");
}

#[test]
fn a_timeline_tells_what_ran_where_and_why() {
    let out = Shared::default();
    let mut run = ByHand { observer: Trace::begin(out.clone(), &config(100)) };
    run.arrive(1, 1, Proactive, 8);
    run.launch(1, 0, &[0, 1], vec![member(1, Proactive, Prefill, 0..8)]);
    run.arrive(40, 2, Reactive, 4);
    run.done(101, 0, &[1]);
    run.launch(101, 1, &[1], vec![member(2, Reactive, Prefill, 0..4)]);
    run.done(181, 1, &[2]);
    run.launch(181, 2, &[1], vec![member(2, Reactive, Decode, 4..5), member(1, Proactive, Decode, 8..9)]);
    run.done(231, 2, &[2, 1]);
    run.stop(231, 2);
    drop(run);
    let events = events(&out.text());

    let names: Vec<_> = of_kind(&events, "M").iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    assert_eq!(names, ["duet", "requests", "cpu0", "cpu1"]);
    let shown = |slice: &&Value| {
        let parts = ["name", "tid", "ts", "dur"].map(|part| slice[part].to_string());
        format!("{} {}", parts.join(" "), slice["args"]["rows"])
    };
    let slices: Vec<String> = of_kind(&events, "X").iter().map(shown).collect();
    let expected = [
        r#""prefill 1" 2 1.0 100.0 ["1[0..8]"]"#,
        r#""prefill 1" 3 1.0 100.0 ["1[0..8]"]"#,
        r#""prefill 2" 3 101.0 80.0 ["2[0..4]"]"#,
        r#""decode 2,1" 3 181.0 50.0 ["2[4..5]","1[8..9]"]"#,
    ];
    assert_eq!(slices, expected);
    let last = of_kind(&events, "X")[3];
    let args = json!({
        "flow": [102, 101], "class": "reactive", "stage": "decode", "rows": ["2[4..5]", "1[8..9]"], "nodes": "0..7",
        "kernel": 2, "pass": 2, "predicted_us": 100.0, "actual_us": 50.0, "reason": "first come",
        "lanes": last["args"]["lanes"],
    });
    assert_eq!(last["args"], args);

    let instants = of_kind(&events, "i");
    let told: Vec<_> =
        instants.iter().map(|event| (event["name"].as_str().unwrap_or(""), event["ts"].as_f64())).collect();
    let expected = [("arrives", 1.0), ("arrives", 40.0), ("preempted", 101.0), ("ends", 231.0)];
    assert_eq!(told, expected.map(|(name, at)| (name, Some(at))));
    assert_eq!(instants[2]["args"], json!({"request": 1, "flow": 101, "class": "proactive", "by": [2]}));
}

#[test]
fn counters_tell_how_many_wait() {
    let out = Shared::default();
    let mut run = ByHand { observer: Trace::begin(out.clone(), &config(100)) };
    run.arrive(1, 1, Reactive, 8);
    run.arrive(1, 2, Reactive, 8);
    run.launch(3, 0, &[0], vec![member(1, Reactive, Prefill, 0..8)]);
    run.done(90, 0, &[1]);
    drop(run);
    let events = events(&out.text());
    let counters: Vec<_> =
        of_kind(&events, "C").iter().map(|event| (event["ts"].clone(), event["args"].clone())).collect();
    let expected = [
        (json!(1.0), json!({"queued": 0, "prefill": 2, "decode": 0})),
        (json!(3.0), json!({"queued": 0, "prefill": 1, "decode": 0})),
        (json!(90.0), json!({"queued": 0, "prefill": 1, "decode": 1})),
    ];
    assert_eq!(counters, expected);
}

/// A disk that is full.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_write_error_ends_the_trace_and_is_told_once() {
    let mut run = ByHand { observer: Trace::begin(Full(1000), &config(100)) };
    assert!(run.observer.take_error().is_none());
    for request in 0..20 {
        run.arrive(request, request, Reactive, 8);
    }
    let error = run.observer.take_error().expect("the disk is full");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    run.arrive(30, 30, Reactive, 8);
    assert!(run.observer.take_error().is_none());
}
