//! Reading keys and values out of a page, for devices that take them as plain floats.

use super::layout::{KvFormat, KvLayout, PAGE};
use half::f16;

impl KvLayout {
    /// Writes the keys and the values of one position, layer and head as floats.
    ///
    /// # Panics
    /// If the position is beyond the page, the page is smaller than [`Self::page_bytes`], or the slices are not as long as a
    /// head.
    pub fn read_position(
        &self,
        page: &[u8],
        (layer, kv_head, position): (usize, usize, usize),
        keys: &mut [f32],
        values: &mut [f32],
    ) {
        assert!(position < PAGE && keys.len() == self.head_dim && values.len() == self.head_dim);
        let (first_key, first_value) = (self.keys(layer, kv_head), self.values(layer, kv_head));
        for dimension in 0..self.head_dim {
            let (key, value) =
                (first_key + self.key_at(position, dimension), first_value + self.value_at(position, dimension));
            keys[dimension] = self.number(page, first_key, position, key);
            values[dimension] = self.number(page, first_value, position, value);
        }
    }

    /// The number at a place of a side that begins at `side`.
    fn number(&self, page: &[u8], side: usize, position: usize, at: usize) -> f32 {
        match self.format {
            KvFormat::F16 => f16::from_le_bytes([page[at], page[at + 1]]).to_f32(),
            KvFormat::Int8 => {
                let scale = side + self.scales() + position * size_of::<f32>();
                let scale = f32::from_le_bytes([page[scale], page[scale + 1], page[scale + 2], page[scale + 3]]);
                f32::from(page[at] as i8) * scale
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{PageMemory, Slot};
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn what_was_written_is_read_again() {
        for (format, tolerance) in [(KvFormat::F16, 1e-3), (KvFormat::Int8, 1e-2)] {
            let layout = KvLayout { layers: 2, kv_heads: 3, head_dim: 32, format };
            let mut page = PageMemory::new(layout);
            let side = |seed: usize| (0..32).map(|i| ((i * 13 + seed) % 29) as f32 / 29.0 - 0.5).collect::<Vec<_>>();
            for (position, layer, kv_head) in [(0, 0, 0), (17, 1, 2), (63, 0, 1)] {
                let (key, value) = (side(position), side(position + 7));
                // SAFETY: nobody else has the page.
                unsafe { page.writer().write(Isa::best(), Slot { position, layer, kv_head }, &key, &value) };
                let (mut keys, mut values) = ([9.0; 32], [9.0; 32]);
                layout.read_position(page.bytes(), (layer, kv_head, position), &mut keys, &mut values);
                let near = |(a, b): (&f32, &f32)| (a - b).abs() < tolerance;
                assert!(keys.iter().zip(&key).all(near) && values.iter().zip(&value).all(near), "{format:?}");
            }
        }
    }
}
