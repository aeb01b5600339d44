//! The HTP, or an excuse.

use duet_qnn::{Device, Runtime};
use duet_runtimes::Error;

/// The generations that everything is compiled for.
pub(crate) const GENERATIONS: [&str; 2] = ["HTP.v73", "HTP.v79"];

/// The device called `name`. Without a runtime the test is skipped; where `DUET_RT` names one, it has to work.
pub(crate) fn device(name: &str) -> Option<Device> {
    let runtime = match Runtime::load() {
        Err(error) if !matches!(error, Error::Missing(_)) => {
            panic!("a runtime is installed and does not work: {error}")
        }
        runtime => duet_testing::loaded(runtime)?,
    };
    Some(runtime.device(name).unwrap())
}
