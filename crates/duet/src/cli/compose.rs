//! `duet bench compose`: its flags.

use super::LoadArgs;
use clap::Args;
use std::path::PathBuf;

/// `duet bench compose`
#[derive(Debug, Args)]
pub(crate) struct ComposeArgs {
    /// Write the events of the devices' mixed slices into this directory, a file for each policy; each is replayed, then
    /// simulated, and both are compared with what happened
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// Watts of a lane while it works, or of each lane of `cpu`: energy is predicted where all lanes have them. May be given
    /// again
    #[arg(long, value_name = "LANE=WATTS", value_parser = watts)]
    pub(crate) watts: Vec<(String, f64)>,
    /// The load.
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

fn watts(text: &str) -> Result<(String, f64), String> {
    let parsed = text.split_once('=').and_then(|(lane, watts)| Some((lane.to_owned(), watts.parse::<f64>().ok()?)));
    let valid = parsed.filter(|(lane, watts)| !lane.is_empty() && watts.is_finite() && *watts > 0.0);
    valid.ok_or_else(|| "a lane and its watts are wanted, as in `openvino:NPU=5.5`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watts_are_of_a_lane_and_above_zero() {
        assert_eq!(watts("openvino:NPU=5.5"), Ok(("openvino:NPU".to_owned(), 5.5)));
        for wrong in ["", "npu", "=3", "npu=", "npu=0", "npu=-1", "npu=inf", "npu=much"] {
            assert!(watts(wrong).is_err(), "{wrong}");
        }
    }
}
