//! Programs that are stopped while they write: what stands under a file's name is whole, or the file that was there before.

#![cfg(unix)]

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::server::Server;
use support::{duet, run, signal};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");

fn moefy(cache: &Path, out: &Path) -> Command {
    let out = out.to_str().unwrap();
    duet(cache, &["moefy", MODEL, "--experts", "2", "--top-k", "1", "--tokens", "256", "-o", out])
}

/// Killed by the system in the middle of the file, at the size that it is allowed: always at the same place.
#[test]
fn a_model_that_is_half_written_does_not_have_its_name() {
    let cache = tempfile::tempdir().unwrap();
    let out = cache.path().join("moe.gguf");
    let half = |out: &Path| {
        let command = moefy(cache.path(), out);
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -c 0; ulimit -f 16; exec \"$0\" \"$@\""]).arg(command.get_program());
        limited.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        let ended = limited.stdin(Stdio::null()).output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGXFSZ), "{ended:?}");
    };
    half(&out);
    assert!(!out.exists());
    let partial = cache.path().join("moe.gguf.partial");
    assert!(partial.metadata().unwrap().len() <= 16 * 1024, "it was killed in the middle");

    // What was there stays, and what a killed program left is no obstacle.
    fs::write(&out, "what was there").unwrap();
    half(&out);
    assert_eq!(fs::read_to_string(&out).unwrap(), "what was there");
    let written = run(&mut moefy(cache.path(), &out));
    assert_eq!(written.status, 0, "{written:#?}");
    assert!(!partial.exists());
    assert_eq!(run(&mut duet(cache.path(), &["inspect", out.to_str().unwrap()])).status, 0);
}

/// Ctrl-C as soon as anything is written, some moments later in each round.
#[test]
fn ctrl_c_leaves_a_whole_model_or_none() {
    for round in 0..3 {
        let cache = tempfile::tempdir().unwrap();
        let out = cache.path().join("moe.gguf");
        let mut child = moefy(cache.path(), &out).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until(&mut child, || fs::read_dir(cache.path()).unwrap().count() > 0);
        std::thread::sleep(Duration::from_micros(round * 300));
        signal(&child, libc::SIGINT);
        child.wait().unwrap();
        if out.exists() {
            let whole =
                run(&mut duet(cache.path(), &["run", out.to_str().unwrap(), "a", "--raw", "--max-tokens", "1"]));
            assert_eq!(whole.status, 0, "round {round}: {whole:#?}");
        }
    }
}

#[test]
fn a_report_that_is_stopped_leaves_no_files() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let cache = tempfile::tempdir().unwrap();
        let out = cache.path().join("report");
        let mut command = duet(cache.path(), &["report", "agent-xpu", "--out", out.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until(&mut child, || out.exists());
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(child.try_wait().unwrap(), None, "it is far from its end");
        signal(&child, number);
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    }
}

/// A server's logs are streams: stopped, they end in order; killed, they are read as far as they go.
#[test]
fn logs_of_a_server_are_read_however_it_ended() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        let cache = tempfile::tempdir().unwrap();
        let (log, trace) = (cache.path().join("events.log"), cache.path().join("trace.json"));
        let files = [&log, &trace].map(|path| path.to_str().unwrap());
        let arguments = ["--history", "off", "--event-log", files[0], "--trace", files[1]];
        let mut server = Server::start_with(cache.path(), MODEL, &arguments);
        let answer = server.post("/v1/completions", r#"{"prompt": "once", "max_tokens": 8}"#);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let ended = server.end_with(number);
        assert_eq!(ended, (number != libc::SIGKILL).then_some(0));

        let replayed = run(&mut duet(cache.path(), &["replay", files[0]]));
        assert_eq!(replayed.status, 0, "signal {number}: {replayed:#?}");
        let mut text = fs::read_to_string(&trace).unwrap();
        if number == libc::SIGKILL {
            // What the format allows to be missing.
            text = format!("{}]", text.trim_end().trim_end_matches(','));
            text = if text == "]" { "[]".to_owned() } else { text };
        } else {
            assert!(replayed.stdout.contains("events"), "{replayed:#?}");
        }
        let read: Result<Vec<serde_json::Value>, _> = serde_json::from_str(&text);
        assert!(read.is_ok(), "signal {number}: {text}");
    }
}

#[track_caller]
fn wait_until(child: &mut Child, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(120), "it takes too long");
        assert_eq!(child.try_wait().unwrap(), None, "it ended early");
        std::thread::sleep(Duration::from_micros(100));
    }
}
