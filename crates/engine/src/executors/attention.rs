//! Attention of chunks on a device, where it was measured to be sooner done than the cores'. (NPUMoE §3.2, §5.3)
//!
//! A device is given none before that was measured, or read from the machine's profile ([`Attention`]). What it is not
//! given, or does not take, the crew of the kernel computes.

use super::executor::{Ended, Executor};
use super::{Executors, Site};
use crate::request::EngineError;
use duet_model::Model;
use duet_model::forward::{AttentionStats, NotRun, Pass};
use duet_scheduler::Machine;
use duet_scheduler::machine::Attention;
use duet_types::LaneId;
use std::sync::PoisonError;

impl Executors {
    /// Gives each device the attention that a profile says.
    pub(crate) fn give_attention_as(&self, machine: &Machine) {
        for (device, lane) in self.devices.iter().zip(&machine.lanes) {
            device.give_attention(lane.capabilities.attention);
        }
    }

    /// Gives the device of a lane attention.
    pub(crate) fn give_attention(&self, lane: LaneId, attention: Attention) {
        if let Some(device) = self.lane(lane) {
            device.give_attention(attention);
        }
    }

    /// What devices did.
    pub(crate) fn attention_stats(&self) -> AttentionStats {
        let before = self.attention_before.lock().unwrap_or_else(PoisonError::into_inner);
        self.all_attention_stats().since(&before)
    }

    pub(super) fn all_attention_stats(&self) -> AttentionStats {
        let attention = self.devices().filter_map(|device| device.attention.as_ref());
        attention.fold(AttentionStats::default(), |mut sum, attention| {
            sum += attention.stats();
            sum
        })
    }

    /// Runs attention on a device of the site, where it is given that and takes it. Whether it did.
    pub(super) fn attends(
        &self,
        model: &Model,
        pass: &mut Pass,
        layer: usize,
        site: Site<'_>,
    ) -> Result<bool, EngineError> {
        let Some(chunk) = pass.chunk() else { return Ok(false) };
        let able = self.usable(site).find_map(|device| Some((device, device.attends(&chunk)?)));
        let Some((device, attention)) = able else { return Ok(false) };
        match model.attend_on(attention, pass, layer) {
            // Much attention is not for a device: that is no failure of it.
            Err(NotRun::Unsupported(_)) => Ok(false),
            run => Ok(device.ended(0, run)? == Ended::Done),
        }
    }
}
