//! llama.cpp's own benchmark, on the same file and as many threads.

use duet_types::Tokens;
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The program, and the file that it is given.
#[derive(Clone, Debug)]
pub struct LlamaBench {
    /// `llama-bench`.
    pub program: PathBuf,
    /// The model's file.
    pub model: PathBuf,
}

/// Tokens a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    pub(super) prefill: f64,
    pub(super) decode: f64,
}

/// Why the program gave no rates.
#[derive(Debug, thiserror::Error)]
pub enum LlamaBenchError {
    /// It did not start.
    #[error("{}: {error}", program.display())]
    Start {
        /// The program that was named.
        program: PathBuf,
        /// What the system said when it was started.
        error: io::Error,
    },
    /// It failed.
    #[error("{} failed: {said}", program.display())]
    Failed {
        /// The program that was run.
        program: PathBuf,
        /// The last that it said.
        said: String,
    },
    /// What it printed is not what llama-bench prints with `-o json`.
    #[error("llama-bench printed no tests: {0}")]
    Printed(#[from] serde_json::Error),
    /// A test is not among those that were printed.
    #[error("llama-bench printed no rate of {0}")]
    Missing(&'static str),
}

/// A test as it is printed.
#[derive(Debug, Deserialize)]
struct Test {
    n_prompt: u32,
    n_gen: u32,
    avg_ts: f64,
}

impl LlamaBench {
    /// Reads `prompt` tokens and decodes `generated`, once each, after a warm-up of its own.
    pub(super) fn rates(&self, prompt: Tokens, generated: usize, threads: u16) -> Result<Rates, LlamaBenchError> {
        let program = || self.program.clone();
        let mut command = Command::new(&self.program);
        command.arg("-m").arg(&self.model).args(["-o", "json", "-r", "1", "-ngl", "0"]);
        command.args(["-p", &prompt.0.to_string(), "-n", &generated.to_string(), "-t", &threads.to_string()]);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| LlamaBenchError::Start { program: program(), error })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim_end().lines().last().unwrap_or("it said nothing").to_owned();
            return Err(LlamaBenchError::Failed { program: program(), said });
        }
        rates(&output.stdout)
    }
}

fn rates(printed: &[u8]) -> Result<Rates, LlamaBenchError> {
    let tests: Vec<Test> = serde_json::from_slice(printed)?;
    let rate = |is: fn(&Test) -> bool| tests.iter().find(|test| is(test)).map(|test| test.avg_ts);
    Ok(Rates {
        prefill: rate(|test| test.n_gen == 0).ok_or(LlamaBenchError::Missing("a prompt"))?,
        decode: rate(|test| test.n_prompt == 0).ok_or(LlamaBenchError::Missing("decoding"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tests_are_found_whatever_else_is_printed() {
        let printed = br#"[
            {"build_commit": "x", "n_prompt": 512, "n_gen": 0, "avg_ts": 345.5, "samples_ts": [345.5]},
            {"build_commit": "x", "n_prompt": 0, "n_gen": 32, "avg_ts": 61.25}
        ]"#;
        assert_eq!(rates(printed).unwrap(), Rates { prefill: 345.5, decode: 61.25 });
    }

    #[test]
    fn what_is_missing_is_named() {
        let refused = |printed: &str| rates(printed.as_bytes()).unwrap_err().to_string();
        assert!(refused("usage: ...").contains("printed no tests"));
        assert!(refused("[]").contains("a prompt"));
        assert!(refused(r#"[{"n_prompt": 4, "n_gen": 0, "avg_ts": 1.0}]"#).contains("decoding"));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("llama-bench");
        let bench = LlamaBench { model: folder.path().join("model.gguf"), program: program.clone() };
        let error = bench.rates(Tokens(4), 4, 1).unwrap_err().to_string();
        assert!(error.contains(&program.display().to_string()), "{error}");
    }
}
