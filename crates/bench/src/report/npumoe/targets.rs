//! The paper's models, by their published shapes. (NPUMoE §5.1)
//!
//! Their weights lie in memory as large as the paper says: half precision, and 8 bits for Qwen3-30B-A3B, whose 28.64 GB are
//! no more than that. The ANE computes in half precision and dequantises what is smaller.

use super::routing::Routers;
use duet_types::Bytes;

/// A model of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Phi-3.5-MoE-instruct.
    PhiMoe,
    /// Phi-tiny-MoE-instruct.
    PhiTiny,
    /// Qwen3-30B-A3B.
    Qwen3,
}

/// What is computed in it; all layers are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizes {
    pub(super) layers: usize,
    pub(super) hidden: f64,
    /// Of all query heads.
    pub(super) queries: f64,
    /// Of all key heads; values are as wide.
    pub(super) keys: f64,
    /// Width of an expert, which has three matrices.
    pub(super) expert_ffn: f64,
    pub(super) vocabulary: f64,
    /// Of a weight in memory.
    pub(super) weight_bytes: f64,
}

impl Target {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::PhiMoe, Self::PhiTiny, Self::Qwen3];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PhiMoe => "Phi-3.5-MoE",
            Self::PhiTiny => "Phi-tiny-MoE",
            Self::Qwen3 => "Qwen3-30B-A3B",
        }
    }

    /// How many experts it has, and how many a row goes to.
    pub(super) fn routers(self) -> Routers {
        match self {
            Self::PhiMoe | Self::PhiTiny => Routers::Few,
            Self::Qwen3 => Routers::Many,
        }
    }

    /// Its shape, as its makers publish it.
    pub(super) fn sizes(self) -> Sizes {
        let (layers, [hidden, queries, keys, expert_ffn, vocabulary], weight_bytes) = match self {
            Self::PhiMoe => (32, [4096.0, 4096.0, 1024.0, 6400.0, 32_064.0], 2.0),
            Self::PhiTiny => (32, [4096.0, 2048.0, 512.0, 448.0, 32_064.0], 2.0),
            Self::Qwen3 => (48, [2048.0, 4096.0, 512.0, 768.0, 151_936.0], 1.0),
        };
        Sizes { layers, hidden, queries, keys, expert_ffn, vocabulary, weight_bytes }
    }

    /// All weights.
    pub(super) fn bytes(self) -> Bytes {
        let sizes = self.sizes();
        let experts = f64::from(self.routers().experts());
        let layer = sizes.projection_macs() + experts * (sizes.expert_macs() + sizes.hidden);
        let parameters = sizes.layers as f64 * layer + 2.0 * sizes.vocabulary * sizes.hidden;
        Bytes((parameters * sizes.weight_bytes) as u64)
    }
}

impl Sizes {
    /// Multiply-accumulates of a row in the projections around attention.
    pub(super) fn projection_macs(&self) -> f64 {
        self.hidden * (self.queries + 2.0 * self.keys) + self.queries * self.hidden
    }

    /// Multiply-accumulates of a row and a position that it sees: queries times keys, and weights times values.
    pub(super) fn pair_macs(&self) -> f64 {
        2.0 * self.queries
    }

    /// Multiply-accumulates of a row in an expert, and its weights.
    pub(super) fn expert_macs(&self) -> f64 {
        3.0 * self.hidden * self.expert_ffn
    }

    /// An expert in memory.
    pub(super) fn expert_bytes(&self) -> Bytes {
        Bytes((self.expert_macs() * self.weight_bytes) as u64)
    }

    /// A row of activations.
    pub(super) fn row_bytes(&self) -> f64 {
        self.hidden * HALF
    }

    /// Keys and values of a position in a layer.
    pub(super) fn position_bytes(&self) -> f64 {
        2.0 * self.keys * HALF
    }
}

/// Bytes of an activation.
pub(super) const HALF: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's gigabytes; it has 7.51 and 83.75 GB for what is published as 3.8 and 41.9 billion parameters.
    #[test]
    fn models_are_as_large_as_the_paper_says() {
        for (target, gigabytes) in [(Target::PhiMoe, 83.75), (Target::PhiTiny, 7.51), (Target::Qwen3, 30.5)] {
            let bytes = target.bytes().0 as f64 / 1e9;
            assert!((bytes / gigabytes - 1.0).abs() < 2e-3, "{}: {bytes}", target.name());
        }
        // 150 MB, by the paper.
        assert_eq!(Target::PhiMoe.sizes().expert_bytes(), Bytes(157_286_400));
    }

    #[test]
    fn rows_take_what_the_published_shapes_imply() {
        for (target, projections, expert) in
            [(Target::PhiMoe, 41.94, 78.64), (Target::PhiTiny, 20.97, 5.51), (Target::Qwen3, 18.87, 4.72)]
        {
            let sizes = target.sizes();
            assert!((sizes.projection_macs() / 1e6 - projections).abs() < 0.01, "{}", target.name());
            assert!((sizes.expert_macs() / 1e6 - expert).abs() < 0.01, "{}", target.name());
        }
    }
}
