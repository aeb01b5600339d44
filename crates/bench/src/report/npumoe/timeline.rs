//! Two lanes and what runs on them: the NPU, and the CPU beside it.
//!
//! **Invariants:** a lane does one thing at a time, in the order it was asked; what is asked for `after` a time begins no
//! earlier; the end is that of the last thing on either lane.

use duet_types::Nanos;

/// A serial queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Npu,
    Cpu,
}

/// What occupies a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The host's part of a graph: from asking until it runs, and until that it has ended is known. One core.
    Launch,
    /// A graph runs.
    Graph,
    /// Products on all cores.
    Products,
    /// Norms, masks, choosing experts. One core.
    Rows,
    /// Rows into slots. One core.
    Gather,
    /// Results to their rows. One core.
    Scatter,
}

/// Something that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) lane: Lane,
    pub(super) work: Work,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

/// What ran on both lanes, from zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    free: [Nanos; 2],
    spans: Vec<Span>,
}

impl Timeline {
    /// Runs something as soon as its lane is free, but not before `after`; says when it has ended.
    pub(super) fn run(&mut self, lane: Lane, work: Work, after: Nanos, takes: Nanos) -> Nanos {
        let free = &mut self.free[lane as usize];
        let from = after.max(*free);
        *free = from + takes;
        self.spans.push(Span { lane, work, from, to: *free });
        *free
    }

    /// When both lanes have ended.
    pub(super) fn end(&self) -> Nanos {
        self.free[0].max(self.free[1])
    }

    /// All that ran, in the order it was asked.
    pub(super) fn spans(&self) -> &[Span] {
        &self.spans
    }
}

impl Span {
    pub(super) fn took(&self) -> Nanos {
        self.to - self.from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lane_does_one_thing_at_a_time(asked in prop::collection::vec((any::<bool>(), 0_u64..50, 0_u64..20), 0..40)) {
            let mut timeline = Timeline::default();
            for &(npu, after, takes) in &asked {
                let lane = if npu { Lane::Npu } else { Lane::Cpu };
                let end = timeline.run(lane, Work::Graph, Nanos(after), Nanos(takes));
                prop_assert!(end >= Nanos(after + takes));
            }
            for lane in [Lane::Npu, Lane::Cpu] {
                let of_lane: Vec<&Span> = timeline.spans().iter().filter(|span| span.lane == lane).collect();
                prop_assert!(of_lane.windows(2).all(|pair| pair[0].to <= pair[1].from));
                let busy: Nanos = of_lane.iter().map(|span| span.took()).sum();
                prop_assert!(timeline.end() >= busy);
            }
        }
    }
}
