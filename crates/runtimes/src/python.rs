//! Where `python3` finds its packages. It is asked once in the life of the process and has a time limit: a broken or
//! slow Python must not hold up anything.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The folders, those of the whole installation first; none if there is no Python or it does not answer.
pub(crate) fn package_folders() -> Vec<PathBuf> {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| ask(Command::new(PROGRAM).args(["-c", QUESTION])).unwrap_or_default()).clone()
}

const PROGRAM: &str = if cfg!(windows) { "python" } else { "python3" };

/// Imports nothing that Python has not imported itself by then: a file in the current folder could pose as a module.
const QUESTION: &str = "import site; print(*site.getsitepackages(), site.getusersitepackages(), sep='\\n')";

/// A Python starts in a tenth of this, from a cold disk as well.
const PATIENCE: Duration = Duration::from_secs(3);

/// The lines that `command` prints, as folders.
fn ask(command: &mut Command) -> Option<Vec<PathBuf>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    if !ends_within(&mut child, PATIENCE) {
        // What cannot be killed any more has ended; then there is nothing left to wait for either.
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    let mut text = String::new();
    // A handful of lines: the pipe holds them, so that a child that has ended has written them all.
    child.stdout.take()?.take(64 * 1024).read_to_string(&mut text).ok()?;
    Some(text.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect())
}

fn ends_within(child: &mut Child, patience: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < patience {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => return false,
        }
    }
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folders() {
        let folders = ask(Command::new("sh").args(["-c", "echo /a; echo; echo '/b c'"])).unwrap();
        assert_eq!(folders, [PathBuf::from("/a"), PathBuf::from("/b c")]);
    }

    #[test]
    fn a_program_that_fails_or_is_not_there_has_no_folders() {
        assert_eq!(ask(Command::new("sh").args(["-c", "echo /a; exit 3"])), None);
        assert_eq!(ask(&mut Command::new("no-such-program-of-duet")), None);
    }

    #[test]
    fn a_program_that_does_not_end_is_not_waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(!ends_within(&mut child, Duration::from_millis(20)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
