//! Experts that a device runs in launches, a node each. (NPUMoE §4.2)
//!
//! The crew routes, computes what the device does not take, and stands in for launches that did not run. What was where
//! is counted when the first launch of a layer runs, since who computes what is known by then.
//!
//! Invariant: on the device and by the crew, every place's work is counted once; what was dropped is counted nowhere.

use super::executor::{Ended, Executor};
use super::{Executors, Site};
use crate::request::EngineError;
use duet_model::Model;
use duet_model::forward::{ExpertStats, ExpertWise, Fate, Node, NotRun, Pass, ProjectedBy};
use duet_scheduler::Heg;
use duet_scheduler::heg::{ExpertLaunches, TokenWise};
use duet_types::LaneSet;
use std::sync::PoisonError;

impl Executors {
    /// Launches of a layer's experts; none if no device has them.
    pub(crate) fn launches(&self) -> usize {
        self.experts().map_or(0, ExpertWise::launches)
    }

    /// The same, if the device that has them is among these lanes.
    pub(crate) fn launches_on(&self, lanes: LaneSet) -> usize {
        let devices = lanes.iter().filter_map(|lane| self.device(lane));
        devices.filter_map(|device| device.experts.as_ref()).map(|experts| experts.launches()).next().unwrap_or(0)
    }

    /// What the device did with them.
    pub(crate) fn expert_stats(&self) -> ExpertStats {
        let before = self.experts_before.lock().unwrap_or_else(PoisonError::into_inner);
        self.all_expert_stats().since(&before)
    }

    pub(super) fn all_expert_stats(&self) -> ExpertStats {
        self.experts().map(ExpertWise::stats).unwrap_or_default()
    }

    /// What these are to the scheduler: parts of the feed-forward, one like the other.
    pub(crate) fn expert_launches(&self, heg: &Heg) -> Option<ExpertLaunches> {
        let (launches, work) = (self.launches(), self.work.experts?);
        if launches == 0 {
            return None;
        }
        let (macs, bytes) = (work.route as f64, work.route_bytes.0 as f64);
        let route = TokenWise { macs_per_row: macs, weight_bytes: bytes, row_bytes: heg.ffn.row_bytes, routed: None };
        let part = |of: f64| of / launches as f64;
        let launch = TokenWise {
            macs_per_row: part(heg.ffn.macs_per_row - macs),
            weight_bytes: part(heg.ffn.weight_bytes - bytes),
            row_bytes: part(heg.ffn.row_bytes),
            routed: heg.ffn.routed.map(|mut routed| {
                routed.bytes = part(routed.bytes);
                routed
            }),
        };
        Some(ExpertLaunches { launches, route, launch })
    }

    /// Runs a node of experts on all rows of a pass.
    pub(super) fn run_experts(
        &self,
        model: &Model,
        pass: &mut Pass,
        node: Node,
        site: Site<'_>,
    ) -> Result<(), EngineError> {
        let device = self.usable(site).find_map(|device| Some((device, &**device.device.experts.as_ref()?)));
        match (node, device) {
            (Node::Route { layer }, Some((lane, device))) => {
                let run = model.route_on(device, pass, layer, site.crew);
                let macs = self.route_macs(pass);
                if run == Ok(ProjectedBy::Crew) {
                    self.did_by_crew(macs);
                } else if lane.ended(macs, run.map(|_| ()))? == Ended::NotDone {
                    self.route_by_crew(model, pass, node, site);
                }
            }
            (Node::Route { .. }, None) => self.route_by_crew(model, pass, node, site),
            (Node::Experts { layer, launch }, Some((lane, device))) => {
                self.count_crew(pass, device, launch);
                let macs = launch_macs(pass, device, launch);
                if macs == 0 && launch > 0 {
                    return Ok(());
                }
                match model.launch_on(device, pass, (layer, launch), site.crew) {
                    // Its graph made room for another one since it was dispatched: that is no failure of the device.
                    Err(NotRun::Unsupported(_)) => self.did_by_crew(macs),
                    run => {
                        if lane.ended(macs, run)? == Ended::NotDone {
                            self.did_by_crew(macs);
                        }
                    }
                }
            }
            _ => {
                if let (Node::Experts { launch, .. }, Some(device)) = (node, self.experts()) {
                    self.count_crew(pass, device, launch);
                    self.did_by_crew(launch_macs(pass, device, launch));
                }
                model.run_node(pass, node, 0..pass.rows(), site.crew);
            }
        }
        Ok(())
    }

    fn experts(&self) -> Option<&dyn ExpertWise> {
        self.devices().find_map(|device| device.experts.as_deref())
    }

    fn route_by_crew(&self, model: &Model, pass: &mut Pass, node: Node, site: Site<'_>) {
        model.run_node(pass, node, 0..pass.rows(), site.crew);
        self.did_by_crew(self.route_macs(pass));
    }

    fn route_macs(&self, pass: &Pass) -> u64 {
        pass.rows() as u64 * self.work.experts.map_or(0, |work| work.route)
    }

    /// Counts what the crew computes with a layer's first launch: all that no launch does, and that is not dropped.
    fn count_crew(&self, pass: &Pass, device: &dyn ExpertWise, launch: usize) {
        let Some(work) = self.work.experts.filter(|_| launch == 0) else { return };
        let all = pass.rows() as u64 * (self.work.ffn.macs - work.route);
        let launched: u64 = (0..device.launches()).map(|launch| launch_macs(pass, device, launch)).sum();
        let dropped = pass.places_with(Fate::Dropped) as u64 * work.expert;
        self.did_by_crew(all.saturating_sub(launched + dropped));
    }
}

fn launch_macs(pass: &Pass, device: &dyn ExpertWise, launch: usize) -> u64 {
    pass.places_with(Fate::Launch(launch as u32)) as u64 * device.place_macs(launch)
}
