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
    /// Run the baselines with each of these pairs of --chunk and --batch, as in `64x8`, so that they are compared at their best
    /// [default: with --chunk and --batch alone]
    #[arg(long, value_name = "CHUNKxBATCH,..", value_delimiter = ',', value_parser = setting)]
    pub(crate) sweep: Vec<Setting>,
    /// The load.
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// How a policy batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Prompt tokens that are read in one pass.
    pub(crate) chunk: u32,
    /// Requests that decode together at most.
    pub(crate) batch: u16,
}

impl ComposeArgs {
    /// What the load's flags say, and nothing else.
    pub(crate) fn setting(&self) -> Setting {
        Setting { chunk: self.load.scheduling.chunk, batch: self.load.scheduling.batch }
    }
}

fn setting(text: &str) -> Result<Setting, String> {
    let pair = text.split_once('x').and_then(|(chunk, batch)| Some((chunk.parse().ok()?, batch.parse().ok()?)));
    let valid = pair.filter(|(chunk, batch)| (1..=4096).contains(chunk) && (1..=512).contains(batch));
    let pair = valid.map(|(chunk, batch)| Setting { chunk, batch });
    pair.ok_or_else(|| "tokens of a chunk and requests of a batch are wanted, as in `64x8`".to_owned())
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
    fn settings_are_a_chunk_and_a_batch() {
        assert_eq!(setting("64x8"), Ok(Setting { chunk: 64, batch: 8 }));
        for wrong in ["", "64", "64x", "x8", "0x8", "64x0", "5000x8", "64x8x8", "64X8"] {
            assert!(setting(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn watts_are_of_a_lane_and_above_zero() {
        assert_eq!(watts("openvino:NPU=5.5"), Ok(("openvino:NPU".to_owned(), 5.5)));
        for wrong in ["", "npu", "=3", "npu=", "npu=0", "npu=-1", "npu=inf", "npu=much"] {
            assert!(watts(wrong).is_err(), "{wrong}");
        }
    }
}
