//! What is kept of a sequence, by a model's blueprint: known before any weight is read.

use super::{Blueprint, Heads, Recurrent};
use crate::kv::{KvFormat, PAGE_TOKENS, StateLayout};
use duet_kernels::attention::{KvLayout, Lasting, WideLayers};
use duet_types::{Bytes, Tokens};

impl Blueprint {
    /// The shape of KV pages: of layers that have keys and values of their own, each kind of heads in its own size.
    #[must_use]
    pub fn kv_layout(&self, format: KvFormat) -> KvLayout {
        let is_small = matches!(self.recurrent, Some(Recurrent::ShortConvolution { .. }));
        KvLayout {
            layers: self.cached_layers(Heads::Common),
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            format,
            state: if is_small { self.recurrent_layers() * self.layer_state() } else { 0 },
            wide: self.wide.map_or_else(WideLayers::default, |wide| WideLayers {
                layers: self.cached_layers(Heads::Wide),
                kv_heads: wide.kv_heads,
                head_dim: wide.head_dim,
            }),
            lasting: self.lasting(),
        }
    }

    /// The longest window of layers that have one, where others see all positions.
    #[must_use]
    pub fn window(&self) -> Option<Tokens> {
        let windows = self.layers.iter().filter_map(|layer| layer.window).max()?;
        (self.lasting() != Lasting::All).then(|| Tokens(u32::try_from(windows).unwrap_or(u32::MAX)))
    }

    /// Layers that see all positions, where others see a window of them.
    fn lasting(&self) -> Lasting {
        let [common, wide] = [Heads::Common, Heads::Wide].map(|heads| self.cached_layers(heads));
        let wide_sees_all =
            self.layers.iter().filter(|plan| plan.has_cache(Heads::Wide)).all(|plan| plan.window.is_none());
        match (wide, self.lasting_common()) {
            _ if self.recurrent.is_some() => Lasting::All,
            (1.., 0) if wide_sees_all => Lasting::Wide,
            (0, first @ 1..) if first < common => Lasting::First(first),
            _ => Lasting::All,
        }
    }

    /// What is kept of a sequence beside its pages: matrices, and the columns of their layers.
    #[must_use]
    pub fn kv_states(&self, format: KvFormat) -> Option<StateLayout> {
        let floats = self.recurrent_layers() * self.layer_state();
        let is_large = matches!(self.recurrent, Some(Recurrent::Matrices(_)));
        is_large.then(|| StateLayout::new(floats, self.kv_layout(format).page_bytes()))
    }

    /// Memory of the pages of so many positions.
    #[must_use]
    pub fn kv_bytes(&self, format: KvFormat, positions: Tokens) -> Bytes {
        Bytes((positions.as_usize().div_ceil(PAGE_TOKENS) * self.kv_layout(format).page_bytes()) as u64)
    }

    /// Memory of one state that is kept beside pages; none where a page holds all that is kept of its positions.
    #[must_use]
    pub fn state_bytes(&self) -> Option<Bytes> {
        let state = self.kv_states(KvFormat::Int8)?;
        Some(Bytes((state.floats * size_of::<f32>()) as u64))
    }
}
