//! Qwen 3.5, dense and with experts: Qwen3-Next's layers, the heads of a delta net in another order. Rope turns by a text's
//! positions alone: what files say of pictures' is not read, and neither are the last layers of a file that predict further
//! tokens.

use super::qwen3next::{delta_net, with_shared_expert};
use super::{Blueprint, Facts};
use crate::load::LoadError;
use duet_kernels::fused::Sharing;

pub(super) fn dense(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    let predicting = facts.opt_count("nextn_predict_layers")?.unwrap_or(0);
    delta_net(facts, Sharing::Turns, predicting)
}

pub(super) fn with_experts(facts: &Facts<'_>) -> Result<Blueprint, LoadError> {
    Ok(Blueprint { experts: Some(with_shared_expert(facts)?), ..dense(facts)? })
}
