//! Under what is kept what was found out about a model.

use duet_model::Model;
use duet_runtimes::Digest;

/// A digest of the model's identity.
pub(crate) fn identity(model: &Model) -> Digest {
    let mut shown = Vec::new();
    model.identity(&mut |bytes| shown.extend(Digest::of(bytes).0));
    Digest::of(&shown)
}
