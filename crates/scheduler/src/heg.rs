//! The heterogeneous execution graph: the work in each node that a pass goes through.
//!
//! Which nodes these are, and in what order, is [`NodeOrder`]'s. `Qkv` and `Ffn` are token-wise: they take any rows of any
//! requests, so they may be chunked and batched. `Attention` is sequence-wise: each row has its own context. Prefill goes
//! through the graph once for each chunk, decode once for each token. (Agent.xpu §4.2)
//!
//! Launches of experts take all rows of a pass at once: which go where is known to all rows together. (NPUMoE §4.2)

use crate::kernel::{Member, Yields};
use duet_types::{Net, NodeOrder, Tokens};
use std::ops::Range;

/// The graph of one model: what its nodes compute and read. Layers that differ are taken as their mean.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Heg {
    /// Layers.
    pub layers: usize,
    /// Norm, projection to queries, keys and values, rope, and the cache written.
    pub qkv: TokenWise,
    /// Output projection, norm and feed-forward.
    pub ffn: TokenWise,
    /// Attention of a layer.
    pub attention: SequenceWise,
    /// The last norm and the vocabulary, for rows that yield a token.
    pub head: TokenWise,
    /// The feed-forward in parts, where experts are launched in groups; it is one node otherwise.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub experts: Option<ExpertLaunches>,
    /// The last nodes, where they compute the rows alone that go through the head, since nothing else reads what they make.
    /// Absent: all nodes compute all rows.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub for_head: Option<ForHead>,
}

/// The last nodes of a pass, which compute rows for the head alone. A prompt's rows go through the others only, so each of the
/// two parts has a mean of its own: where the last layers read the keys and values of earlier ones, they are wider (Gemma 4).
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ForHead {
    /// The first of them.
    pub from: usize,
    /// The nodes before it.
    pub before: LayerNodes,
    /// The nodes from it on.
    pub behind: LayerNodes,
}

/// The nodes of a layer: of some, their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LayerNodes {
    /// As [`Heg::qkv`].
    pub qkv: TokenWise,
    /// As [`Heg::ffn`].
    pub ffn: TokenWise,
    /// As [`Heg::attention`].
    pub attention: SequenceWise,
}

/// The parts of a feed-forward whose experts are launched in groups.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExpertLaunches {
    /// Launches of a layer at most.
    pub launches: usize,
    /// Output projection, norm, and each row's experts chosen.
    pub route: TokenWise,
    /// A launch, one like the other.
    pub launch: TokenWise,
}

/// A node whose rows do not know of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TokenWise {
    /// Multiply-accumulates of a row.
    pub macs_per_row: f64,
    /// Weights, read once for all rows.
    pub weight_bytes: f64,
    /// Activations of a row, read and written.
    pub row_bytes: f64,
    /// Weights of which each row reads some, once for all rows that read the same: experts.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub routed: Option<RoutedWeights>,
}

/// Weights of experts: a row reads those of the experts it goes to.
///
/// Which these are is known only when the rows are computed, so a prediction takes every expert as equally likely and rows
/// as independent: `n` rows read `1 - (1 - share)^n` of the weights. Rows of one text go to the same experts more often
/// than that, so that few rows read somewhat less.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RoutedWeights {
    /// Weights of all experts.
    pub bytes: f64,
    /// The share of the experts that one row goes to.
    pub share: f64,
    /// What of them has to be read from a disk first; none where all are in memory.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub disk: Option<OnDisk>,
}

/// Weights that are on disk, with a part of them in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OnDisk {
    /// The share of what is asked for that is not in memory.
    pub missing: f64,
    /// How fast the disk is.
    pub bytes_per_s: f64,
}

impl RoutedWeights {
    /// Bytes of them that `rows` rows read.
    fn read(&self, rows: f64) -> f64 {
        self.bytes * (1.0 - (1.0 - self.share.clamp(0.0, 1.0)).powf(rows))
    }
}

impl TokenWise {
    /// Bytes of weights that `rows` rows read.
    #[must_use]
    pub fn weights_read(&self, rows: f64) -> f64 {
        self.weight_bytes + self.routed.map_or(0.0, |routed| routed.read(rows))
    }

    /// Seconds that `rows` rows wait for a disk.
    #[must_use]
    pub fn disk_time(&self, rows: f64) -> f64 {
        let Some((routed, disk)) = self.routed.and_then(|routed| Some((routed, routed.disk?))) else { return 0.0 };
        disk.missing.clamp(0.0, 1.0) * routed.read(rows) / disk.bytes_per_s.max(1.0)
    }

    /// Bytes of weights in all.
    #[must_use]
    pub fn all_weights(&self) -> f64 {
        self.weight_bytes + self.routed.map_or(0.0, |routed| routed.bytes)
    }
}

/// A node whose rows see their own context.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SequenceWise {
    /// Multiply-accumulates for a row and a position that it sees.
    pub macs_per_pair: f64,
    /// Keys and values of a position.
    pub bytes_per_position: f64,
    /// Queries and results of a row.
    pub row_bytes: f64,
    /// What of it is in layers that see a window of positions only.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub windowed: Option<Windowed>,
}

/// Layers whose rows see a window of positions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Windowed {
    /// How many positions a row sees of those before it, itself included.
    pub window: f64,
    /// The share of all layers' multiply-accumulates that is in these.
    pub share: f64,
    /// The share of all layers' keys and values.
    pub share_of_bytes: f64,
}

impl SequenceWise {
    /// Pairs of a row and a position that it sees, on average over layers. How they are spread over requests is not known:
    /// as if all rows had contexts of the same length.
    #[must_use]
    pub fn pairs(&self, load: &Load) -> f64 {
        self.windowed.map_or(load.pairs, |windowed| seen(load.pairs, load.rows * windowed.window, windowed.share))
    }

    /// Positions whose keys and values are read, on average over layers, reckoned in the same way.
    #[must_use]
    pub fn positions(&self, load: &Load) -> f64 {
        self.windowed.map_or(load.positions, |windowed| {
            let most = load.rows + f64::from(load.requests) * windowed.window;
            seen(load.positions, most, windowed.share_of_bytes)
        })
    }
}

/// What layers see of `all`, where a share of them sees `most` at most.
fn seen(all: f64, most: f64, share: f64) -> f64 {
    (1.0 - share) * all + share * all.min(most)
}

/// How much is in a pass: all that a prediction needs to know of its members.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Rows.
    pub rows: f64,
    /// Pairs of a row and a position that it sees.
    pub pairs: f64,
    /// Positions whose keys and values are read.
    pub positions: f64,
    /// Positions before the rows of which a device with memory of its own has no copy. ([`mirrors`](crate::mirrors))
    pub lacking: f64,
    /// Rows that yield a token.
    pub tokens: f64,
    /// Requests that the rows are of.
    pub requests: u32,
    /// Which model the rows go through.
    pub net: Net,
}

impl Heg {
    /// Its nodes in order.
    #[must_use]
    pub fn order(&self) -> NodeOrder {
        NodeOrder::with_launches(self.layers, self.experts.map_or(0, |experts| experts.launches))
    }

    /// The same, with what experts that are in no memory are read from.
    #[must_use]
    pub fn on_disk(mut self, disk: Option<OnDisk>) -> Self {
        let parts = self.for_head.iter_mut().flat_map(|part| [&mut part.before.ffn, &mut part.behind.ffn]);
        let routed = parts.chain([&mut self.ffn]).filter_map(|ffn| ffn.routed.as_mut());
        routed.for_each(|routed| routed.disk = disk);
        self
    }

    /// The nodes of a layer, as they are on average.
    #[must_use]
    pub fn mean(&self) -> LayerNodes {
        LayerNodes { qkv: self.qkv, ffn: self.ffn, attention: self.attention }
    }

    /// How many nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.order().count()
    }

    /// Those of some nodes that compute all rows, and those that compute rows for the head alone, each with what they are on
    /// average.
    #[must_use]
    pub fn by_rows(&self, nodes: &Range<usize>) -> [(Range<usize>, LayerNodes); 2] {
        let from = self.for_head.map_or(nodes.end, |part| part.from.clamp(nodes.start, nodes.end));
        let [before, behind] = self.for_head.map_or([self.mean(); 2], |part| [part.before, part.behind]);
        [(nodes.start..from, before), (from..nodes.end, behind)]
    }
}

impl Load {
    /// The load of some members together.
    pub fn of<'a>(members: impl IntoIterator<Item = &'a Member>) -> Self {
        members.into_iter().fold(Self::default(), |load, member| load.with(member))
    }

    /// This load and one member more.
    #[must_use]
    pub fn with(self, member: &Member) -> Self {
        let head_rows = f64::from(member.head_rows().0);
        let rows = self.with_rows(member.rows.clone(), Yields::Context);
        Self { tokens: self.tokens + head_rows, net: member.net, ..rows }
    }

    /// This load and one row of a draft more, at the position `at` of a sequence that is in it.
    #[must_use]
    pub fn with_draft_row(self, at: Tokens) -> Self {
        let seen = f64::from(at.0) + 1.0;
        let (rows, pairs, tokens) = (self.rows + 1.0, self.pairs + seen, self.tokens + 1.0);
        Self { rows, pairs, positions: self.positions + 1.0, tokens, ..self }
    }

    /// This load and some positions of one request more.
    #[must_use]
    pub fn with_rows(self, rows: Range<Tokens>, yields: Yields) -> Self {
        let (start, end) = (f64::from(rows.start.0), f64::from(rows.end.0));
        let count = end - start;
        Self {
            rows: self.rows + count,
            // Row `p` sees `p + 1` positions.
            pairs: self.pairs + count * (start + end + 1.0) / 2.0,
            positions: self.positions + end,
            tokens: self.tokens + if yields == Yields::Token { 1.0 } else { 0.0 },
            requests: self.requests + 1,
            ..self
        }
    }

    /// The positions behind its rows, if they are a part of one prompt.
    #[must_use]
    pub fn chunk_end(&self) -> Option<Tokens> {
        (self.requests == 1 && self.tokens <= 1.0).then_some(Tokens(self.positions as u32))
    }

    /// What is left of this load in nodes that compute rows for the head alone. Which positions these rows see is not known: as
    /// many as others, on average.
    #[must_use]
    pub fn for_head(self) -> Self {
        let rows = self.tokens.min(self.rows);
        if rows <= 0.0 {
            Self { net: self.net, ..Self::default() }
        } else {
            Self { rows, ..self.part(rows / self.rows) }
        }
    }

    /// The part of this load that `share` of its rows make up.
    #[must_use]
    pub fn part(self, share: f64) -> Self {
        Self { rows: self.rows * share, pairs: self.pairs * share, lacking: self.lacking * share, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_with_windows_see_no_more_than_these() {
        let windowed = Some(Windowed { window: 100.0, share: 0.75, share_of_bytes: 0.5 });
        let attention = SequenceWise { macs_per_pair: 1.0, bytes_per_position: 1.0, row_bytes: 0.0, windowed };
        let short = Load::default().with_rows(Tokens(40)..Tokens(50), Yields::Token);
        assert_eq!([attention.pairs(&short), attention.positions(&short)], [short.pairs, short.positions]);
        let long = Load::default().with_rows(Tokens(999)..Tokens(1000), Yields::Token);
        assert_eq!(attention.pairs(&long), 0.25 * 1000.0 + 0.75 * 100.0);
        assert_eq!(attention.positions(&long), 0.5 * 1000.0 + 0.5 * 101.0);
    }

    #[test]
    fn a_row_sees_all_positions_up_to_its_own() {
        let load = Load::default().with_rows(Tokens(2)..Tokens(5), Yields::Token);
        assert_eq!(
            load,
            Load { rows: 3.0, pairs: 3.0 + 4.0 + 5.0, positions: 5.0, tokens: 1.0, requests: 1, ..Load::default() }
        );
    }
}
