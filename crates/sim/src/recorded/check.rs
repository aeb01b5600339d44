//! What a log must be for its run to be simulated. A file may hold anything.

use super::TOKENS_MAX;
use duet_scheduler::machine::Anchors;
use duet_scheduler::{Heg, Kernel, Request, SchedulerConfig};
use duet_types::{LaneSet, Net, Tokens};

/// Whether a scheduler and a virtual world can be made of this.
pub(super) fn check_config(config: &SchedulerConfig) -> Result<(), String> {
    let (machine, limits) = (&config.machine, &config.limits);
    let lanes = machine.lanes.len();
    if lanes == 0 || lanes > usize::from(LaneSet::LANES_MAX) {
        return Err(format!("config.machine has {lanes} lanes"));
    }
    let all = machine.lanes.iter().map(|lane| &lane.anchors).chain(machine.teams.iter().map(|team| &team.anchors));
    if !all.into_iter().all(are_sane) {
        return Err("config.machine has anchors that are no rates".to_owned());
    }
    if !is_sane(&config.heg) {
        return Err("config.heg is no graph: layers and work must be above zero and finite".to_owned());
    }
    if config.encoder.as_ref().is_some_and(|encoder| !is_sane(encoder)) {
        return Err("config.encoder is no graph: layers and work must be above zero and finite".to_owned());
    }
    if !machine.is_sane() {
        return Err("config.machine has capabilities, shares, teams or contention that no machine has".to_owned());
    }
    let held = machine.lanes.iter().filter_map(|lane| lane.capabilities.layers);
    if held.into_iter().any(|layers| layers.range().end > config.heg.layers) {
        return Err("config.machine has a lane that holds layers that the model does not have".to_owned());
    }
    if limits.chunk.0 == 0 || limits.prefill_rows < limits.chunk || limits.batch == 0 {
        return Err("config.limits has no room for a chunk or a batch".to_owned());
    }
    if config.memory.page.0 == 0 || config.memory.states.every.0 == 0 {
        return Err("config.memory has pages or states of no positions".to_owned());
    }
    Ok(())
}

/// Whether a request is one that this model, or the encoder beside it, can be asked.
pub(super) fn check_request(config: &SchedulerConfig, request: &Request) -> Result<(), String> {
    if request.prompt == Tokens::ZERO || request.prompt > TOKENS_MAX {
        return Err(format!("request {} has a prompt of {} tokens", request.id, request.prompt));
    }
    if request.net == Net::Encoder && config.encoder.is_none() {
        return Err(format!("request {} is for an encoder, and config has none", request.id));
    }
    Ok(())
}

/// Whether a kernel is one of this machine and this model.
pub(super) fn check_kernel(config: &SchedulerConfig, lanes: LaneSet, kernel: &Kernel) -> Result<(), String> {
    let machine = &config.machine;
    if lanes.is_empty() || !machine.all().contains_all(lanes) || !machine.is_team(lanes) {
        return Err(format!("kernel {} runs on lanes {lanes}, which form no team", kernel.id));
    }
    if kernel.members.is_empty() || kernel.members.iter().any(|member| member.is_empty()) {
        return Err(format!("kernel {} has a member without rows", kernel.id));
    }
    let rows: u64 = kernel.members.iter().map(|member| u64::from(member.len().0)).sum();
    if kernel.rows.is_empty() || u64::from(kernel.rows.end) > rows {
        return Err(format!("kernel {} has no rows {:?}", kernel.id, kernel.rows));
    }
    if kernel.members.iter().any(|member| member.net != kernel.net()) {
        return Err(format!("kernel {} has members of two models", kernel.id));
    }
    if kernel.nodes.is_empty() || kernel.nodes.end > config.graph(kernel.net()).nodes() {
        return Err(format!("kernel {} has no nodes {:?}", kernel.id, kernel.nodes));
    }
    Ok(())
}

fn are_sane(anchors: &Anchors) -> bool {
    let rows = [anchors.per_row.qkv, anchors.per_row.attention];
    let rates = [anchors.macs_per_s, anchors.attention_macs_per_s, anchors.bytes_per_s];
    rates.iter().all(|rate| (1e6..=1e18).contains(rate))
        && (0.0..=1.0).contains(&anchors.exposed)
        && rows.iter().all(|seconds| (0.0..1.0).contains(seconds))
}

fn is_sane(heg: &Heg) -> bool {
    let parts = || heg.for_head.iter().flat_map(|part| [part.before, part.behind]).chain([heg.mean()]);
    let linear = || parts().flat_map(|part| [part.qkv, part.ffn]).chain([heg.head]);
    let work = linear().flat_map(|node| [node.macs_per_row, node.weight_bytes, node.row_bytes]);
    let routed = || linear().filter_map(|node| node.routed);
    let attention = || parts().map(|part| part.attention);
    let attended = attention().flat_map(|of| [of.macs_per_pair, of.bytes_per_position, of.row_bytes]);
    let windowed = || attention().filter_map(|of| of.windowed);
    let amounts = work.chain(attended).chain(routed().map(|routed| routed.bytes));
    let amounts = amounts.chain(windowed().map(|windowed| windowed.window));
    (1..=10_000).contains(&heg.layers)
        && amounts.into_iter().all(|amount| (0.0..=1e12).contains(&amount))
        && routed().all(|routed| (0.0..=1.0).contains(&routed.share))
        && windowed().flat_map(|of| [of.share, of.share_of_bytes]).all(|share| (0.0..=1.0).contains(&share))
}
