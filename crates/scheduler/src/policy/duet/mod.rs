//! duet's own policy: the paper's aims, with predicted cost in the place of fixed roles.
//!
//! Lanes that form a team (sets of cores) serve [together]; an NPU and an iGPU stay [apart].

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

impl Policy for Duet {
    fn decide(&mut self, view: &View<'_>) -> Option<Decision> {
        let team = view.team().filter(|_| view.has(Mechanism::Teams));
        match team.or(view.only_lane()) {
            Some(all) => together::decide(view, all),
            None => self.apart.decide(view),
        }
    }

    fn admission(&self) -> Admission {
        Admission::ByClass
    }
}
