//! Traces of a small random model, which repeats itself soon: what is noted adds up to what was answered.

use super::*;
use duet_model::LoadOptions;
use std::path::Path;

fn model() -> Model {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap()
}

fn task(lines: usize) -> Task {
    let line = |index: usize| {
        format!(
            "{{\"kind\":\"reactive\",\"messages\":[{{\"role\":\"user\",\"content\":\"ab{} {index}\"}}]}}\n",
            "xy".repeat(index % 3)
        )
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("coord_summary.jsonl");
    std::fs::write(&file, (0..lines).map(line).collect::<String>()).unwrap();
    Task::read(&[file]).unwrap().remove(0)
}

fn traced(model: &Model, threads: usize) -> TaskTrace {
    Tracer { model, kv_format: KvFormat::F16, threads, output: Tokens(40) }.trace(task(5), 4).unwrap()
}

#[test]
fn steps_add_up_to_the_answer_under_every_method() {
    let trace = traced(&model(), 2);
    assert_eq!((trace.task.name.as_str(), trace.requests.len()), ("coord_summary", 4));
    for request in &trace.requests {
        for method in METHODS {
            let steps = &request.by(method).steps;
            let tokens: Tokens = steps.iter().map(DraftStep::tokens).sum();
            assert_eq!(tokens + Tokens(1), request.output, "{method}");
            for step in steps {
                assert!(step.rows() <= Tokens(32) && step.chances.is_sorted_by(|a, b| a >= b), "{method}");
                assert!(step.right.is_sorted() && step.right.iter().all(|&row| row < step.chances.len()), "{method}");
            }
        }
        assert_eq!(request.by(Method::None).steps.len(), request.output.as_usize() - 1);
    }
    let passes = |method| trace.requests.iter().map(|request| request.by(method).steps.len()).sum::<usize>();
    assert!(passes(Method::Duet) < passes(Method::None), "nothing was accepted");
    assert!(trace.history_bytes > Bytes(0) && trace.requests[0].by(Method::Sam).bytes > Bytes(0));
}

#[test]
fn threads_change_nothing() {
    let model = model();
    let steps = |threads| {
        let trace = traced(&model, threads);
        trace.requests.iter().map(|request| METHODS.map(|method| request.by(method).steps.clone())).collect::<Vec<_>>()
    };
    assert_eq!(steps(1), steps(3));
}
