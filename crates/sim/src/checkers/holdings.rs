//! A device is given the layers that it holds, and no others.
//!
//! Asserted of every launch while a lane is left that holds all layers: each of its lanes holds the layers of all its nodes.
//! An engine computes what a device does not hold on the thread that waits for it, slowly; that is better than nothing where
//! nobody else is left.

use super::picture::Picture;
use super::{Checker, Rule};
use crate::scenario::Scenario;
use duet_scheduler::{Command, Machine};
use duet_types::{Instant, LaneId, Net, NodeOrder};

#[derive(Debug)]
pub(super) struct Holdings {
    machine: Machine,
    decoder: NodeOrder,
    encoder: NodeOrder,
}

impl Holdings {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let order = |net| scenario.config.graph(net).order();
        let machine = scenario.config.machine.clone();
        Self { machine, decoder: order(Net::Decoder), encoder: order(Net::Encoder) }
    }

    fn order(&self, net: Net) -> NodeOrder {
        match net {
            Net::Decoder => self.decoder,
            Net::Encoder => self.encoder,
        }
    }
}

impl Checker for Holdings {
    fn rule(&self) -> Rule {
        Rule::Holdings
    }

    fn command(&mut self, picture: &Picture, _: Instant, command: &Command) -> Result<(), String> {
        let holds_all = |lane: LaneId| self.machine.lane(lane).capabilities.layers.is_none();
        if !self.machine.all().iter().any(|lane| holds_all(lane) && !picture.unusable().contains(lane)) {
            return Ok(());
        }
        match command {
            Command::Launch { lanes, kernel, .. }
                if !self.machine.hold(*lanes, self.order(kernel.net()), &kernel.nodes) =>
            {
                Err(format!("kernel {} of nodes {:?} goes to lanes {lanes}", kernel.id, kernel.nodes))
            }
            _ => Ok(()),
        }
    }
}
