//! Placing a model's attention on a device, where that is asked for.

use super::{DeviceName, Wanted, told};
use crate::bad_input::BadInput;
use crate::progress::eprintln_quiet;
use duet_engine::Fallback;
use duet_model::Model;
use duet_model::forward::AttentionWise;
use duet_offload::PlacedAttention;
use duet_runtimes::GraphDevice;
use std::sync::Arc;

/// Who attends while prompts are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AttentionPlace {
    /// The cores.
    #[default]
    Cores,
    /// Devices, for the chunks and contexts where that is measured to be sooner done.
    DeviceWhereItPays,
}

/// Refuses attention on a device for a model of which it would do none.
pub(super) fn check(model: &Model, wanted: &Wanted) -> Result<(), BadInput> {
    if wanted.attention == AttentionPlace::Cores {
        return Ok(());
    }
    PlacedAttention::suits(model).map_err(|error| BadInput(format!("--device-attention: {error}; leave the flag out")))
}

/// Graphs of attention for the device, if they are wanted. A device that takes none leaves it to the cores, and the person
/// is told, unless nothing may stand in for it.
pub(super) fn placed(
    model: &Model,
    name: &DeviceName,
    device: &dyn GraphDevice,
    wanted: &Wanted,
) -> anyhow::Result<Option<Arc<dyn AttentionWise>>> {
    if wanted.attention == AttentionPlace::Cores {
        return Ok(None);
    }
    match told(name, || PlacedAttention::ready_on(model, device, wanted.chunk)) {
        Ok(attention) => Ok(Some(Arc::new(attention))),
        Err(error) if wanted.fallback == Fallback::Never => Err(error),
        Err(error) => {
            eprintln_quiet(&format!("warning: the CPU attends: {error:#}"));
            Ok(None)
        }
    }
}

/// A device that exchanges its graphs has no memory for those of attention.
pub(super) fn refuse_exchanging(wanted: &Wanted) -> Result<(), BadInput> {
    if wanted.attention == AttentionPlace::Cores {
        return Ok(());
    }
    let text =
        "--device-attention wants graphs beside those that are exchanged within --graph-memory: leave one of them out";
    Err(BadInput(text.to_owned()))
}
