//! Packed weights as a person meets them: made once, found again, made anew when they are no good, missed when the disk is full,
//! listed and removed; and what experts on disk and unread tensors say.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use support::{Run, duet, run};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../model/tests/fixtures/golden_{name}.gguf"))
}

/// Five tokens behind a text; that is, what was computed.
fn continued(cache: &Path, model: &str, more: &[&str]) -> Run {
    let arguments = [&["run", model, "The capital of France is", "--raw", "--max-tokens", "5"], more].concat();
    let run = run(&mut duet(cache, &arguments));
    assert_eq!(run.status, 0, "{run:#?}");
    run
}

/// The files of packed weights.
fn packed(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.join("weights")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "packed")).collect()
}

#[test]
fn weights_are_kept_listed_made_anew_and_pruned() {
    let Some(model) = duet_testing::path(duet_testing::Need::Model) else { return };
    let (model, cache) = (model.to_str().unwrap(), tempfile::tempdir().unwrap());
    let cache = cache.path();
    let first = continued(cache, model, &[]);
    assert!(first.stdout.contains("Paris") && first.stderr.contains("packing"), "{first:#?}");
    let [file] = packed(cache).try_into().unwrap();
    let second = continued(cache, model, &[]);
    assert!(second.stdout == first.stdout && !second.stderr.contains("packing"), "{second:#?}");

    let listed = run(&mut duet(cache, &["cache", "list"]));
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(listed.status == 0 && listed.stdout.contains(name), "{listed:#?}");
    let line = |run: &Run| -> serde_json::Value {
        assert_eq!(run.stdout.lines().count(), 1, "{run:#?}");
        serde_json::from_str(&run.stdout).unwrap()
    };
    let listed = line(&run(&mut duet(cache, &["cache", "list", "--json"])));
    let bytes = fs::metadata(&file).unwrap().len();
    assert!(listed["format"] == "weights" && listed["bytes"] == bytes, "{listed}");
    assert!(listed["last_used"].as_u64().unwrap() > 1_700_000_000, "{listed}");
    let (model_name, digits) = file.file_stem().unwrap().to_str().unwrap().rsplit_once('-').unwrap();
    assert!(listed["model"] == model_name && digits.len() == 16, "{listed}");

    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let again = continued(cache, model, &[]);
    assert_eq!(again.stdout, first.stdout);
    assert_eq!(again.stderr.matches("weights are packed again").count(), 1, "{again:#?}");
    assert_eq!(fs::metadata(&file).unwrap().len(), whole.len() as u64);

    let kept = run(&mut duet(cache, &["cache", "prune", "--unused", "1"]));
    assert!(kept.stdout.starts_with("0 files") && file.exists(), "{kept:#?}");
    let removed = line(&run(&mut duet(cache, &["cache", "prune", "--json"])));
    assert!(removed["path"] == file.to_str().unwrap() && !file.exists(), "{removed}");
}

/// A limit to how long files may become is an error of each write, as a full disk is.
#[cfg(unix)]
#[test]
fn a_disk_that_fills_costs_the_speed_of_the_next_start() {
    let Some(model) = duet_testing::path(duet_testing::Need::Model) else { return };
    let (model, cache) = (model.to_str().unwrap(), tempfile::tempdir().unwrap());
    let cache = cache.path();
    let arguments = ["run", model, "The capital of France is", "--raw", "--max-tokens", "5"];
    let limited = duet(cache, &arguments);
    let mut shell = std::process::Command::new("sh");
    // In blocks of 512 bytes; a write beyond is an error where the signal is not heeded.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 20000; exec \"$@\"", "sh"]).arg(limited.get_program());
    shell.args(limited.get_args());
    for (name, value) in limited.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let run = run(&mut shell);
    assert!(run.status == 0 && run.stdout.contains("Paris"), "{run:#?}");
    assert!(run.stderr.contains("packed weights are not kept"), "{run:#?}");
    let left: Vec<_> = fs::read_dir(cache.join("weights")).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "nothing is left of what was begun");
}

/// No answer can be given any more, but the reason can.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_becomes_shorter_while_it_is_in_use_is_told() {
    use std::io::{Read, Write};
    use support::server::Server;
    let Some(model) = duet_testing::path(duet_testing::Need::Model) else { return };
    let cache = tempfile::tempdir().unwrap();
    let mut server = Server::start_with(cache.path(), model.to_str().unwrap(), &["--history", "off"]);
    let [file] = packed(cache.path()).try_into().unwrap();
    fs::OpenOptions::new().write(true).open(file).unwrap().set_len(4096).unwrap();
    let address = ("127.0.0.1", server.port);
    let body = r#"{"prompt": "The capital of France is", "max_tokens": 5}"#;
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", server.port);
    let request = format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    // Open until the end: nobody computes for a client that has gone.
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    // Until it is closed; how is not of interest.
    let _ = client.read_to_end(&mut Vec::new());
    let (status, said) = server.ended();
    assert!(status == Some(1) && said.contains("became shorter while they were in use"), "{status:?}: {said}");
}

#[test]
fn experts_on_disk_answer_as_those_in_memory() {
    let (cache, model) = (tempfile::tempdir().unwrap(), fixture("mixtral"));
    let (cache, model) = (cache.path(), model.to_str().unwrap());
    let in_memory = continued(cache, model, &[]);
    let on_disk = continued(cache, model, &["--expert-memory", "100K"]);
    assert_eq!(on_disk.stdout, in_memory.stdout);
    assert_eq!(packed(cache).len(), 1, "experts are read from it");

    let refused = |model: &str, memory: &str, more: &[&str], words: &[&str]| {
        let arguments = [&["run", model, "Hi", "--expert-memory", memory], more].concat();
        run(&mut duet(cache, &arguments)).assert_refused(words);
    };
    refused(model, "1", &[], &["--expert-memory", "at least"]);
    refused(model, "100K", &["--weight-cache", "0"], &["--expert-memory", "--weight-cache"]);
    refused(fixture("llama").to_str().unwrap(), "100K", &[], &["--expert-memory", "no experts"]);
}

/// GLM's files have a layer behind the last that predicts further tokens.
#[test]
fn tensors_that_nothing_reads_are_named_at_every_start() {
    let (cache, model) = (tempfile::tempdir().unwrap(), fixture("glm4moe"));
    for _ in 0..2 {
        // The second one maps the experts that the first has packed.
        let run = continued(cache.path(), model.to_str().unwrap(), &["--expert-memory", "1M"]);
        let note = "note: golden_glm4moe.gguf has tensors that its architecture does not read: blk.";
        let told = run.stderr.lines().filter(|line| line.starts_with(note) && line.ends_with(" more")).count();
        assert_eq!(told, 1, "{run:#?}");
    }
}

#[test]
fn short_names_are_listed_with_what_they_need() {
    let cache = tempfile::tempdir().unwrap();
    let listed = run(&mut duet(cache.path(), &["pull", "--list"]));
    assert_eq!(listed.status, 0, "{listed:#?}");
    for words in
        ["qwen2.5-coder-1.5b", "gemma3-270m", "gpt-oss-20b", "qwen3-30b-a3b", "1.0 GiB to download", "of memory"]
    {
        assert!(listed.stdout.contains(words), "{words}: {}", listed.stdout);
    }
    let listed = run(&mut duet(cache.path(), &["pull", "--list", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let models = report["models"].as_array().unwrap();
    assert!(models.iter().all(|model| model["memory_bytes"].as_u64() >= model["bytes"].as_u64()), "{report}");
    assert!(models.iter().all(|model| model["path"].is_null()), "nothing was downloaded: {report}");
}
