//! Contention deferral: memory-bound kernels of different classes do not run side by side.
//!
//! Lanes share the memory bus. A memory-bound prefill kernel (attention of a short prompt) beside memory-bound decode
//! slows both; a compute-bound one hardly does. If both sides are of the same class they run together; otherwise the
//! lower class waits until the higher one is done, whichever side it is on. (Agent.xpu §4.3 ⑤)

use crate::annotation::Bound;
use crate::mechanism::Mechanism;
use crate::view::View;
use duet_types::Class;

/// Whether a kernel of this class, bound by that, has to wait for what runs.
pub(crate) fn must_wait(view: &View<'_>, class: Class, bound: Bound) -> bool {
    view.has(Mechanism::ContentionDeferral)
        && bound == Bound::Memory
        && class == Class::Proactive
        && view.running().any(|running| running.class == Class::Reactive && running.bound == Bound::Memory)
}
