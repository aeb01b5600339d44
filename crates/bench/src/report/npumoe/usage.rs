//! What a stretch of work took of each unit, and what was computed in it.

use super::timeline::{Timeline, Work};
use duet_types::Nanos;
use std::ops::{Add, AddAssign, Mul};

/// Sums over layers and chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// From its beginning to its end.
    pub(super) span: Nanos,
    /// Of the NPU lane: launching.
    pub(super) launch: Nanos,
    /// Of the NPU: graphs.
    pub(super) graph: Nanos,
    /// Of all CPU cores: products.
    pub(super) products: Nanos,
    /// Of one core.
    pub(super) rows: Nanos,
    pub(super) gather: Nanos,
    pub(super) scatter: Nanos,
    /// Of the GPU.
    pub(super) gpu: Nanos,
    /// That the memory moved.
    pub(super) bytes: f64,
    pub(super) macs: Macs,
}

/// Multiply-accumulates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Macs {
    /// That the model asks for, on the NPU.
    pub(super) npu: f64,
    /// On the CPU or the GPU.
    pub(super) elsewhere: f64,
    /// Of padding, wherever: on the NPU, if anything is there.
    pub(super) padding: f64,
    /// That the model asks for, of rows that were dropped.
    pub(super) dropped: f64,
}

impl Usage {
    /// Of what a timeline holds.
    pub(super) fn of(timeline: &Timeline, bytes: f64, macs: Macs) -> Self {
        let mut usage = Self { span: timeline.end(), bytes, macs, ..Self::default() };
        for span in timeline.spans() {
            *usage.of_work(span.work) += span.took();
        }
        usage
    }

    fn of_work(&mut self, work: Work) -> &mut Nanos {
        match work {
            Work::Launch => &mut self.launch,
            Work::Graph => &mut self.graph,
            Work::Products => &mut self.products,
            Work::Rows => &mut self.rows,
            Work::Gather => &mut self.gather,
            Work::Scatter => &mut self.scatter,
        }
    }

    /// Of one core, launches not counted.
    pub(super) fn one_core(&self) -> Nanos {
        self.rows + self.gather + self.scatter
    }

    /// In which experts' products are on their way: the longer of the lanes.
    pub(super) fn experts(&self) -> Nanos {
        (self.launch + self.graph).max(self.products).max(self.gpu)
    }
}

impl Add for Macs {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            npu: self.npu + other.npu,
            elsewhere: self.elsewhere + other.elsewhere,
            padding: self.padding + other.padding,
            dropped: self.dropped + other.dropped,
        }
    }
}

impl Macs {
    /// The share of what the NPU computes that the model asks for, in per cent; nothing if it computes nothing.
    pub(super) fn useful_on_npu(self) -> Option<f64> {
        (self.npu > 0.0).then(|| self.npu / (self.npu + self.padding) * 100.0)
    }

    fn times(self, count: f64) -> Self {
        Self {
            npu: self.npu * count,
            elsewhere: self.elsewhere * count,
            padding: self.padding * count,
            dropped: self.dropped * count,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.span += other.span;
        self.launch += other.launch;
        self.graph += other.graph;
        self.products += other.products;
        self.rows += other.rows;
        self.gather += other.gather;
        self.scatter += other.scatter;
        self.gpu += other.gpu;
        self.bytes += other.bytes;
        self.macs = self.macs + other.macs;
    }
}

/// So many times.
impl Mul<u64> for Usage {
    type Output = Self;

    fn mul(self, count: u64) -> Self {
        let times = |Nanos(nanos): Nanos| Nanos(nanos * count);
        Self {
            span: times(self.span),
            launch: times(self.launch),
            graph: times(self.graph),
            products: times(self.products),
            rows: times(self.rows),
            gather: times(self.gather),
            scatter: times(self.scatter),
            gpu: times(self.gpu),
            bytes: self.bytes * count as f64,
            macs: self.macs.times(count as f64),
        }
    }
}
