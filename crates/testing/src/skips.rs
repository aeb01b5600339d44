//! Skips are written down, or are failures.

use crate::need::Need;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// What a run of tests wants of skips.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    /// `DUET_REQUIRE`.
    pub(crate) required: String,
    /// `DUET_SKIPS`.
    pub(crate) file: Option<PathBuf>,
}

impl Skips {
    pub(crate) fn of_this_process() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        Self {
            required: variable("DUET_REQUIRE").map(|list| list.to_string_lossy().into_owned()).unwrap_or_default(),
            file: variable("DUET_SKIPS").map(PathBuf::from),
        }
    }

    /// Skips a test, or says why it must not be.
    pub(crate) fn skip(&self, need: Need, test: &str, reason: &str) -> Result<(), String> {
        let required = Need::parse_list(&self.required).map_err(|name| {
            format!("DUET_REQUIRE: there is no {name}; there are model, workloads, runtimes, real-models")
        })?;
        // The file has a line for each skip, whatever a reason looks like.
        let reason = reason.lines().next().unwrap_or_default().replace('\t', " ");
        if required.contains(&need) {
            return Err(format!("DUET_REQUIRE has {}, but: {reason}", need.name()));
        }
        // Past the test harness, which would hide it.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
        self.note(&format!("{test}\t{}\t{reason}\n", need.name()))
    }

    /// Adds a line to the file in one write: other processes add theirs meanwhile.
    fn note(&self, line: &str) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let written =
            OpenOptions::new().append(true).create(true).open(file).and_then(|mut to| to.write_all(line.as_bytes()));
        written.map_err(|error| format!("DUET_SKIPS: {}: {error}", file.display()))
    }
}

/// `binary::test`: the harness names threads after the tests that they run.
pub(crate) fn running_test() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let binary = path.file_stem().unwrap_or_default().to_string_lossy();
    // Cargo adds a dash and a hash.
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
    let thread = std::thread::current();
    // A test that runs alone may run on the main thread; cargo-nextest then says which one it is.
    let named = thread.name().filter(|name| *name != "main").map(str::to_owned);
    let test = named.or_else(|| std::env::var("NEXTEST_TEST_NAME").ok()).unwrap_or_else(|| "?".to_owned());
    format!("{binary}::{test}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_a_line_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        let skips = Skips { required: "runtimes".to_owned(), file: Some(file.clone()) };
        skips.skip(Need::Model, "a::b", "no\tmodel\nat all").unwrap();
        skips.skip(Need::Workloads, "a::c", "no texts").unwrap();
        let written = std::fs::read_to_string(file).unwrap();
        assert_eq!(written, "a::b\tmodel\tno model\na::c\tworkloads\tno texts\n");
    }

    #[test]
    fn what_is_required_is_not_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        let skips = Skips { required: "model, real-models".to_owned(), file: Some(file.clone()) };
        for need in [Need::Model, Need::RealModels] {
            let error = skips.skip(need, "a::b", "it is not there").unwrap_err();
            assert_eq!(error, format!("DUET_REQUIRE has {}, but: it is not there", need.name()));
        }
        assert!(!file.exists());
        skips.skip(Need::Runtimes, "a::b", "not wanted").unwrap();
    }

    #[test]
    fn a_need_that_does_not_exist_is_refused() {
        let skips = Skips { required: "model,runtime".to_owned(), file: None };
        let error = skips.skip(Need::Workloads, "a::b", "it is not there").unwrap_err();
        assert!(error.starts_with("DUET_REQUIRE: there is no runtime; there are model,"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_no_silent_skip() {
        let folder = tempfile::tempdir().unwrap();
        let skips = Skips { required: String::new(), file: Some(folder.path().join("none/skips")) };
        assert!(skips.skip(Need::Model, "a::b", "it is not there").unwrap_err().contains("none/skips"));
    }

    #[test]
    fn a_test_knows_its_name() {
        assert_eq!(running_test(), "duet_testing::skips::tests::a_test_knows_its_name");
    }
}
