//! The ways to compute experts that are compared with the exact one: the crew's own, with nothing left out.

use super::likelihood::CHUNK;
use super::{AccuracyError, Target};
use duet_model::Model;
use duet_model::forward::{ExpertWise, TokenWise};
use duet_moe::{Calibration, Dispatched, Overflow, Provision};
use duet_offload::{ExpertScheme, ExpertSettings, PlacedExperts, Saliency, VirtualExperts, VirtualSettings};
use duet_types::Tokens;
use std::fmt;
use std::sync::Arc;

/// A way to compute experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// On a device, in groups of padded capacities; what has no room is computed by the crew. It differs from the exact
    /// model by how the device rounds.
    Padded,
    /// By the crew's own kernels, but for rows that capacities leave out.
    Pruned {
        /// Capacities.
        provision: Provision,
        /// Which rows are left out first.
        saliency: Saliency,
    },
}

impl Mode {
    /// All that are compared: capacities from the paper's base to half as much again as was calibrated, and the one with
    /// the router's saliency instead of the paper's.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let pruned = |provision| Self::Pruned { provision, saliency: Saliency::AttentionNorm };
        let mut modes = vec![Self::Padded, pruned(Provision::Uniform), pruned(Provision::TopQuartile)];
        modes.extend(HEADROOMS.map(|headroom| pruned(calibrated(headroom))));
        modes.push(Self::Pruned { provision: calibrated(1.0), saliency: Saliency::RouterWeight });
        modes
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Pruned { provision, saliency } = self else { return f.write_str("padded") };
        match provision {
            Provision::Uniform => write!(f, "pruned, base")?,
            Provision::TopQuartile => write!(f, "pruned, top quartile")?,
            Provision::Calibrated { headroom, .. } => write!(f, "pruned, calibrated x {headroom}")?,
        }
        match saliency {
            Saliency::AttentionNorm => Ok(()),
            Saliency::RouterWeight => write!(f, ", by the router's weight"),
        }
    }
}

/// A model whose experts are computed in some way.
pub(super) struct Subject {
    pub(super) setting: String,
    experts: Experts,
}

enum Experts {
    Crew,
    Virtual(Box<VirtualExperts>),
    Placed(Box<PlacedExperts>),
}

impl Subject {
    /// The exact model.
    pub(super) fn exact() -> Self {
        Self { setting: "exact".to_owned(), experts: Experts::Crew }
    }

    /// A mode, planned from counts. Nothing if it needs a device and there is none.
    pub(super) fn of(
        model: &Arc<Model>,
        mode: Mode,
        counts: &Calibration,
        (target, threads): (Option<&Target>, usize),
    ) -> Result<Option<Self>, AccuracyError> {
        let experts = match mode {
            Mode::Padded => {
                let Some(Target { device, cache }) = target else { return Ok(None) };
                let settings = ExpertSettings { scheme: ExpertScheme::Groups, threads, ..ExpertSettings::default() };
                let on = (device.clone(), cache.clone());
                Experts::Placed(Box::new(PlacedExperts::ready_on(model, on, Some(counts), settings, &mut |_| {})?))
            }
            Mode::Pruned { provision, saliency } => {
                let (chunk, group_max) = (Tokens(CHUNK as u32), ExpertSettings::default().group_max);
                let settings = VirtualSettings { provision, overflow: Overflow::Prune, saliency, chunk, group_max };
                Experts::Virtual(Box::new(VirtualExperts::new(model, Some(counts), settings)?))
            }
        };
        Ok(Some(Self { setting: mode.to_string(), experts }))
    }

    /// What runs projections and the head.
    pub(super) fn device(&self) -> Option<&dyn TokenWise> {
        match &self.experts {
            Experts::Crew | Experts::Virtual(_) => None,
            Experts::Placed(experts) => Some(&**experts),
        }
    }

    /// What dispatches its experts.
    pub(super) fn experts(&self) -> Option<&dyn ExpertWise> {
        match &self.experts {
            Experts::Crew => None,
            Experts::Virtual(experts) => Some(&**experts),
            Experts::Placed(experts) => Some(&**experts),
        }
    }

    /// What became of routes so far, where any were dispatched.
    pub(super) fn dispatched(&self) -> Dispatched {
        match &self.experts {
            Experts::Crew => Dispatched::default(),
            Experts::Virtual(experts) => experts.dispatched(),
            Experts::Placed(experts) => experts.dispatched(),
        }
    }
}

fn calibrated(headroom: f64) -> Provision {
    Provision::Calibrated { tiers_max: ExpertSettings::default().tiers_max, headroom }
}

/// An expert has room for its calibrated load times one of these; the paper's is 1.
const HEADROOMS: [f64; 4] = [0.75, 1.0, 1.25, 1.5];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_names_of_their_own() {
        let names: std::collections::BTreeSet<String> = Mode::all().iter().map(Mode::to_string).collect();
        assert_eq!(names.len(), Mode::all().len());
        assert!(names.contains("pruned, calibrated x 0.75") && names.contains("padded"), "{names:?}");
    }
}
