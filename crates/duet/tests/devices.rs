//! Flags of devices and `duet profile`, on a machine without a runtime: what is wrong is said before anything is
//! downloaded or loaded, and what is missing with what brings it.

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use support::{duet, run};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
const EXPERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_mixtral.gguf");

/// Devices and flags that no model makes sense of together.
#[test]
fn wrong_combinations_are_refused_before_anything_is_downloaded() {
    let device = ["--device", "openvino:CPU"];
    let npu = "openvino:NPU,shapes=fixed";
    let wrong: [(&[&str], &[&str]); 9] = [
        (&device, &["openvino:CPU is given twice", "name=second"]),
        (&["--device", "openvino:CPU.0"], &["are one device"]),
        (&["--device", "openvino:GPU", "--graph-memory", "1G"], &["--graph-memory", "graph-memory=BYTES"]),
        (&["--device", "openvino:NPU,shapes=fixed,graph-memory=1G"], &["graph-memory", "shapes=fixed"]),
        (&["--device", npu, "--expert-scheme", "naive"], &["--expert-scheme", "shapes=fixed"]),
        (&["--device", npu, "--expert-overflow", "prune"], &["--expert-overflow", "shapes=fixed"]),
        (&["--device", "openvino:NPU,shapes=both"], &["--device", "shapes=any or shapes=fixed"]),
        (&["--graph-memory", "much"], &["--graph-memory", "512M"]),
        (&["--graph-cache", "much"], &["--graph-cache", "512M"]),
    ];
    let commands: [&[&str]; 3] = [&["run", ABSENT, "hi"], &["chat", ABSENT], &["serve", ABSENT, "--port", "0"]];
    for command in commands {
        for (flags, words) in wrong {
            let cache = tempfile::tempdir().unwrap();
            let refused = run(&mut without_network(cache.path(), &[command, &device, flags].concat()));
            refused.assert_refused(words);
            assert!(!cache.path().join("models").exists(), "{refused:#?}");
        }
    }
}

/// Flags about a device without one.
#[test]
fn flags_of_devices_need_a_device() {
    let flags: [&[&str]; 6] = [
        &["--graph-memory", "1G"],
        &["--graph-cache", "1G"],
        &["--expert-overflow", "prune"],
        &["--expert-scheme", "naive"],
        &["--device-attention"],
        &["--no-fallback"],
    ];
    let cache = tempfile::tempdir().unwrap();
    for flags in flags {
        run(&mut without_network(cache.path(), &[&["run", ABSENT, "hi"], flags].concat()))
            .assert_refused(&["--device"]);
    }
    for flags in [["--graph-rows", "16"], ["--graph-memory", "1G"], ["--workload", "none.jsonl"]] {
        let refused = run(&mut without_network(cache.path(), &[&["profile", ABSENT], &flags[..]].concat()));
        refused.assert_refused(&["--device"]);
    }
    run(&mut without_network(cache.path(), &["run", ABSENT, "hi", "--device", "cuda:0"]))
        .assert_refused(&["no device `cuda:0`", "duet devices"]);
    assert!(!cache.path().join("models").exists());
}

/// Without a runtime the CPU stands in and says so; where it may not, the error says what is missing and what brings it.
#[cfg(target_os = "linux")]
#[test]
fn without_a_runtime_each_use_is_told() {
    let cache = tempfile::tempdir().unwrap();
    let without = |arguments: &[&str]| run(&mut without_runtime(cache.path(), arguments));
    let ask_on = |device, model, flags: &[&str]| {
        let question = ["run", model, "ab", "--raw", "--max-tokens", "2", "--threads", "1", "--device", device];
        without(&[&question[..], flags].concat())
    };
    let ask = |model, flags: &[&str]| ask_on("openvino:CPU", model, flags);
    let plain = without(&["run", MODEL, "ab", "--raw", "--max-tokens", "2", "--threads", "1"]);
    let uses: [(&str, &[&str]); 5] = [
        ("openvino:CPU", &[]),
        ("openvino:CPU,shapes=any", &[]),
        ("openvino:CPU,shapes=fixed", &[]),
        ("openvino:CPU", &["--graph-memory", "1G"]),
        ("openvino:CPU", &["--device-attention"]),
    ];
    for (device, flags) in uses {
        let stood_in = ask_on(device, MODEL, flags);
        assert_eq!((stood_in.status, &stood_in.stdout), (0, &plain.stdout), "{flags:?}: {stood_in:#?}");
        assert!(stood_in.stderr.contains("warning: the CPU does the work: openvino:CPU"), "{stood_in:#?}");
        let failed = ask_on(device, MODEL, &[flags, &["--no-fallback"]].concat());
        failed.assert_failed(&["openvino:CPU", "libopenvino_c", "loaded"]);
    }
    let of_experts: [&[&str]; 2] = [&["--expert-overflow", "prune"], &["--expert-scheme", "naive"]];
    for flags in of_experts {
        ask(EXPERTS, &[flags, &["--no-fallback"]].concat()).assert_failed(&["openvino:CPU", "libopenvino_c"]);
        // Whether a model has experts is in its file only.
        ask(MODEL, flags).assert_refused(&["--expert-scheme", "dense"]);
    }
    let profiled = without(&["profile", MODEL, "--device", "openvino:CPU", "--threads", "1"]);
    assert_eq!(profiled.status, 1, "{profiled:#?}");
    assert!(profiled.stderr.contains("libopenvino_c"), "{profiled:#?}");
}

/// Graphs that are exchanged while a model is served need room on disk: less is refused with what they need, before any is
/// compiled. Those that are loaded at the start need none, nor do groups of experts.
#[test]
fn a_cache_without_room_for_what_is_exchanged_is_refused() {
    if duet_testing::loaded(duet_openvino::Runtime::load()).is_none() {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let ask = |model, flags: &[&str]| {
        let question = ["run", model, "ab", "--raw", "--max-tokens", "2", "--threads", "1"];
        run(&mut duet(cache.path(), &[&question[..], &["--device", "openvino:CPU", "--graph-cache"], flags].concat()))
    };
    ask(MODEL, &["1K", "--graph-memory", "1G"]).assert_refused(&["--graph-cache", "1.0 KiB", "take about"]);
    assert!(!cache.path().join("graphs").exists(), "nothing was compiled");
    for (model, room) in [(EXPERTS, "1G"), (EXPERTS, "1K"), (MODEL, "1K")] {
        let answered = ask(model, &[room, "--no-fallback"]);
        assert_eq!(answered.status, 0, "{model}, {room}: {answered:#?}");
    }
}

/// The first answer on a machine comes before it is measured; a later start finds what was measured then.
#[test]
fn the_first_answer_does_not_wait_for_a_measurement() {
    let cache = tempfile::tempdir().unwrap();
    let arguments = ["run", MODEL, "hello", "--device", "cpu", "--threads", "1", "--max-tokens", "4"];
    let first = run(&mut duet(cache.path(), &arguments));
    duet_testing::settle(&cache.path().join("profiles"));
    let second = run(&mut duet(cache.path(), &arguments));
    assert_eq!((first.status, second.status), (0, 0), "{first:#?} {second:#?}");
    assert!(
        first.stderr.contains("measuring this machine") && !second.stderr.contains("measuring"),
        "{first:#?} {second:#?}"
    );
    assert_eq!(first.stdout, second.stdout);
}

/// What the scheduler predicts with: measured, printed, and kept for the next start. With a real model, predictions are
/// compared with measurements as well, which takes a while.
#[test]
fn a_machine_is_profiled_for_a_model() {
    let cache = tempfile::tempdir().unwrap();
    assert_profiled(&run(&mut duet(cache.path(), &["profile", MODEL, "--json"])), "null");
    // Of a real model what it predicts comes true to some extent; a thorough profile of one takes minutes without optimisation.
    if let Some(real) = std::env::var("DUET_TEST_MODEL").ok().filter(|path| !path.is_empty()) {
        let checked = ["profile", &real, "--json", "--effort", "quick", "--check"];
        assert_profiled(&run(&mut duet(cache.path(), &checked)), "a share");
    }
    assert!(fs::read_dir(cache.path().join("profiles")).unwrap().count() > 0);

    let wrong = |arguments: &[&str]| run(&mut duet(cache.path(), &[&["profile"], arguments].concat()));
    wrong(&["no-such-model"]).assert_refused(&["`no-such-model`"]);
    wrong(&[MODEL, "--threads", "0"]).assert_refused(&["--threads"]);
    wrong(&[MODEL, "--kv", "int2"]).assert_refused(&["--kv", "f16, int8, int4"]);
}

/// Every lane has its figures, and errors of predictions are there if they were asked for.
fn assert_profiled(profiled: &support::Run, errors: &str) {
    assert_eq!(profiled.status, 0, "{profiled:#?}");
    assert!(profiled.stderr.contains("profile: written to"), "{profiled:#?}");
    let report: serde_json::Value = serde_json::from_str(&profiled.stdout).unwrap();
    let lanes = report["lanes"].as_array().unwrap();
    assert!(!lanes.is_empty());
    for lane in lanes {
        for figure in ["int8_gmacs", "attention_gmacs", "read_gbs", "launch_us"] {
            assert!(lane[figure].as_f64().is_some_and(|figure| figure.is_finite() && figure > 0.0), "{figure}: {lane}");
        }
        assert!(["lane", "team"].contains(&lane["kind"].as_str().unwrap()), "{lane}");
    }
    for figure in ["mean_abs_pct", "p90_abs_pct"] {
        let error = report["prediction_error"][figure].as_f64();
        let found = if error.is_some_and(|error| error.is_finite() && error >= 0.0) { "a share" } else { "null" };
        assert_eq!(found, errors, "{report}");
    }
}

/// A model that would be downloaded if it came to that.
const ABSENT: &str = "hf:nobody/nothing/none.gguf";

fn without_network(cache: &Path, arguments: &[&str]) -> Command {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = duet(cache, arguments);
    command.env("HF_ENDPOINT", format!("http://{address}"));
    command
}

/// What is looked at first is a library that is none.
#[cfg(target_os = "linux")]
fn without_runtime(cache: &Path, arguments: &[&str]) -> Command {
    let libraries = cache.join("runtime/openvino/libs");
    fs::create_dir_all(&libraries).unwrap();
    fs::write(libraries.join("libopenvino_c.so.2641"), "no library").unwrap();
    let mut command = duet(cache, arguments);
    command.env("DUET_RT", cache.join("runtime"));
    command
}
