//! Runs the real program and looks at what a person or a script would see.

#![allow(dead_code, reason = "each test binary uses a part")]

#[cfg(unix)]
pub(crate) mod server;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit status; a signal counts as -1.
    pub(crate) status: i32,
    /// All of stdout.
    pub(crate) stdout: String,
    /// All of stderr.
    pub(crate) stderr: String,
}

/// The program with an environment of its own: nothing of the machine's settings leaks in.
pub(crate) fn duet(cache: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duet"));
    command.args(arguments).env("DUET_CACHE", cache).env("XDG_STATE_HOME", cache.join("state")).stdin(Stdio::null());
    for name in ["HF_ENDPOINT", "HF_TOKEN", "DUET_API_KEY", "DUET_LOG", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}

/// Runs to the end.
pub(crate) fn run(command: &mut Command) -> Run {
    Run::from(command.output().expect("duet starts"))
}

/// Runs to the end with `input` on stdin.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Run {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("duet starts");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // The program may end before it has read everything; that is for the test to judge.
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().expect("duet ends");
    writer.join().expect("the writer does not panic");
    Run::from(output)
}

/// Sends a signal to a process that was not waited for yet.
#[cfg(unix)]
pub(crate) fn signal(child: &std::process::Child, number: libc::c_int) {
    let pid = libc::pid_t::try_from(child.id()).expect("a process id");
    // SAFETY: the child was not waited for yet, so its process id is still its own.
    assert_eq!(unsafe { libc::kill(pid, number) }, 0);
}

impl Run {
    /// Fails unless the program refused what it was given with one line that contains `words`.
    #[track_caller]
    pub(crate) fn assert_refused(&self, words: &[&str]) {
        self.assert_error(2, words);
    }

    /// Fails unless the program failed while running, with a message that contains `words`.
    #[track_caller]
    pub(crate) fn assert_failed(&self, words: &[&str]) {
        self.assert_error(1, words);
    }

    #[track_caller]
    fn assert_error(&self, status: i32, words: &[&str]) {
        assert_eq!(self.status, status, "{self:#?}");
        assert_eq!(self.stdout, "", "{self:#?}");
        assert!(self.stderr.lines().any(|line| line.starts_with("error: ")), "{self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing: {self:#?}");
        }
        for bug in ["panicked", "internal error", "RUST_BACKTRACE"] {
            assert!(!self.stderr.contains(bug), "{self:#?}");
        }
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        }
    }
}

/// A GGUF file of one tensor `t` with 256 elements of type number `kind`, and one key.
pub(crate) fn tiny_gguf(kind: u32, tensor_bytes: usize) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    let string = |file: &mut Vec<u8>, text: &str| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    };
    file.extend(3u32.to_le_bytes());
    file.extend(1u64.to_le_bytes());
    file.extend(1u64.to_le_bytes());
    string(&mut file, "general.architecture");
    file.extend(8u32.to_le_bytes());
    string(&mut file, "llama");
    string(&mut file, "t");
    file.extend(1u32.to_le_bytes());
    file.extend(256u64.to_le_bytes());
    file.extend(kind.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.resize(file.len().next_multiple_of(32) + tensor_bytes, 0);
    file
}
