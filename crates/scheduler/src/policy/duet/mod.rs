//! duet's own policy: the paper's aims, with predicted cost in the place of fixed roles.
//!
//! Lanes that form a team (sets of cores) serve [together]; an NPU and an iGPU stay [apart]. While none of a team's lanes can be
//! used, requests begin in the order that they keep with them.

mod apart;
mod together;

use super::{Admission, Decision, Policy};
use crate::mechanism::Mechanism;
use crate::view::View;
use apart::Apart;

/// Our best.
#[derive(Debug, Default)]
pub struct Duet {
    apart: Apart,
}

/// Whether all lanes of the machine form a team, those that cannot be used now among them.
fn is_team(view: &View<'_>) -> bool {
    let machine = &view.config().machine;
    view.has(Mechanism::Teams) && machine.is_team(machine.all())
}

impl Policy for Duet {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let team = view.team().filter(|_| view.has(Mechanism::Teams));
        match team.or(view.only_lane()) {
            Some(all) => together::decide(view, all),
            None if view.left().is_empty() && is_team(view) => together::begin_next(view),
            None => self.apart.decide(view),
        }
    }

    fn admission(&self) -> Admission {
        Admission::ByClass
    }
}
