//! What a router says: which rows go to which experts.

/// An expert of a layer, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExpertId(pub u32);

impl ExpertId {
    /// As a place in a list of experts.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A row that goes to an expert. A row that goes to several is as many routes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Route {
    /// Of the chunk, from 0.
    pub row: u32,
    /// Where it goes.
    pub expert: ExpertId,
    /// What the expert's result counts.
    pub weight: f32,
    /// How much it would be missed: the router's weight, or the norm of the row's attention output. The smallest are
    /// pruned first; see [`crate::overflow`].
    pub saliency: f32,
}
