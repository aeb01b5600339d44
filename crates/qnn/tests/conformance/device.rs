//! The HTP, or an excuse.

use duet_qnn::{Device, Runtime};
use duet_runtimes::Error;
use std::io::Write;

/// The generations that everything is compiled for.
pub(crate) const GENERATIONS: [&str; 2] = ["HTP.v73", "HTP.v79"];

/// The device called `name`. Without a runtime the test is skipped; where `DUET_RT` names one, it has to work.
pub(crate) fn device(name: &str) -> Option<Device> {
    match Runtime::load() {
        Ok(runtime) => Some(runtime.device(name).unwrap()),
        Err(Error::Missing(missing)) if std::env::var_os("DUET_RT").is_none() => {
            // Past the test harness, which would hide it.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {}", missing.to_string().lines().next().unwrap_or_default());
            None
        }
        Err(error) => panic!("DUET_RT is to hold the runtime: {error}"),
    }
}
