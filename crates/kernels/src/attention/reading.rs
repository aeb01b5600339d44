//! Reading keys and values out of a page, for devices that take them as plain floats.

use super::layer::LayerLayout;
use super::layout::{GROUP, KvFormat, KvLayout, NIBBLE_ZERO, PAGE, SCALE_UNIT};
use super::rotation::turn;
use crate::simd::LANES;
use crate::simd::portable::Portable;
use half::f16;

impl KvLayout {
    /// Writes the keys and the values of one position, layer and head as floats; keys of eight bits without their
    /// [bias](super::KeyBias).
    ///
    /// # Panics
    /// If there is no such position or layer, the page is smaller than [`Self::page_bytes`], or the slices are not as long as a
    /// head.
    pub fn read_position(
        &self,
        page: &[u8],
        (layer, kv_head, position): (usize, usize, usize),
        keys: &mut [f32],
        values: &mut [f32],
    ) {
        assert!(position < PAGE && layer < self.all_layers());
        let layer = self.layer(layer);
        assert!(keys.len() == layer.head_dim && values.len() == layer.head_dim);
        let (keys_side, values_side) = (&page[layer.keys(kv_head)..], &page[layer.values(kv_head)..]);
        for (dimension, (key, value)) in keys.iter_mut().zip(&mut *values).enumerate() {
            *key = layer.key(keys_side, position, dimension);
            *value = layer.value(values_side, position, dimension);
        }
        if self.format != KvFormat::F16 {
            turn(Portable, keys);
            turn(Portable, values);
        }
    }
}

impl LayerLayout {
    /// A key of a layer and head, turned as it is stored.
    fn key(&self, side: &[u8], position: usize, dimension: usize) -> f32 {
        let at = self.key_at(position, dimension);
        match self.format {
            KvFormat::F16 => half_at(side, at),
            KvFormat::Int8 | KvFormat::Int4 => {
                f32::from(side[at] as i8) * scale_at(side, self.key_scales(dimension / GROUP), position)
            }
        }
    }

    /// A value, turned as it is stored.
    fn value(&self, side: &[u8], position: usize, dimension: usize) -> f32 {
        let at = self.value_at(position, dimension);
        let scale = |side| scale_at(side, self.value_scales(dimension / GROUP), position);
        match self.format {
            KvFormat::F16 => half_at(side, at),
            KvFormat::Int8 => f32::from(side[at] as i8) * scale(side),
            KvFormat::Int4 => {
                let nibble = if dimension % GROUP < LANES { side[at] & 15 } else { side[at] >> 4 };
                let centre = half_at(side, self.value_centres(dimension / GROUP) + position * size_of::<u16>());
                (f32::from(nibble) - NIBBLE_ZERO as f32).mul_add(scale(side), centre)
            }
        }
    }
}

fn half_at(side: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([side[at], side[at + 1]]).to_f32()
}

fn scale_at(side: &[u8], scales: usize, position: usize) -> f32 {
    half_at(side, scales + position * size_of::<u16>()) * SCALE_UNIT
}

#[cfg(test)]
mod tests {
    use super::super::layout::{PageMemory, Slot, WideLayers};
    use super::*;
    use crate::isa::Isa;
    use proptest::prelude::*;

    /// A page with one key and value, and both as they are read again.
    fn write(isa: Isa, format: KvFormat, key: &[f32], value: &[f32]) -> (Vec<u8>, Vec<f32>, Vec<f32>) {
        let layout = KvLayout::uniform(1, 1, key.len(), format);
        let mut page = PageMemory::new(layout);
        // SAFETY: nobody else has the page.
        unsafe { page.writer().write(isa, Slot { position: 3, layer: 0, kv_head: 0 }, key, value) };
        let (mut keys, mut values) = (vec![0.0; key.len()], vec![0.0; key.len()]);
        layout.read_position(page.bytes(), (0, 0, 3), &mut keys, &mut values);
        (page.bytes().to_vec(), keys, values)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        /// Of any bits, but no larger than an exponent.
        #[test]
        fn any_floats_are_stored_alike_on_every_instruction_set(
            exponent_max in 0_u32..=255,
            bits in prop::collection::vec(any::<u32>(), 32),
        ) {
            let bounded = |bits: u32| f32::from_bits(bits & 0x807F_FFFF | (bits >> 23 & 255).min(exponent_max) << 23);
            let floats: Vec<f32> = bits.into_iter().map(bounded).collect();
            let (key, value) = floats.split_at(16);
            for format in KvFormat::ALL {
                let (page, keys, values) = write(Isa::Portable, format, key, value);
                for isa in Isa::available() {
                    prop_assert_eq!(&write(isa, format, key, value).0, &page, "{}", isa);
                }
                for (stored, given) in [(keys, key), (values, value)] {
                    prop_assert!(stored.iter().all(|x| x.is_finite()));
                    let length = |all: &[f32]| all.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                    // Scales of four bits reach to 15,000.
                    if format != KvFormat::F16 && length(given) < 7000.0 {
                        // No turned number is longer than all of them, and each is off by half a step, with room for the
                        // rounding of the scale and of the centre, which is absolute where they are tiny.
                        let off: Vec<_> = stored.iter().zip(given).map(|(a, b)| a - b).collect();
                        let step = if format == KvFormat::Int8 { 0.0043 } else { 0.069 };
                        let most = (length(given) * step + 2e-7) * (given.len() as f64).sqrt();
                        prop_assert!(length(&off) <= most, "{:?} {:?}", stored, given);
                    }
                }
            }
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        for (format, tolerance) in [(KvFormat::F16, 1e-3), (KvFormat::Int8, 2e-2), (KvFormat::Int4, 0.2)] {
            let wide = WideLayers { layers: 2, kv_heads: 1, head_dim: 48 };
            let layout = KvLayout { state: 5, wide, ..KvLayout::uniform(2, 3, 32, format) };
            let mut page = PageMemory::new(layout);
            let side =
                |seed: usize, dim| (0..dim).map(|i| ((i * 13 + seed) % 29) as f32 / 29.0 - 0.5).collect::<Vec<_>>();
            let places = [(0, 0, 0, 32), (17, 1, 2, 32), (63, 0, 1, 32), (63, 2, 0, 48), (17, 3, 0, 48)];
            for (position, layer, kv_head, dim) in places {
                let (key, value) = (side(position + layer, dim), side(position + layer + 7, dim));
                // SAFETY: nobody else has the page.
                unsafe { page.writer().write(Isa::chosen().unwrap(), Slot { position, layer, kv_head }, &key, &value) };
            }
            layout.write_state(page.bytes_mut(), 0, &[1.0; 5]);
            for (position, layer, kv_head, dim) in places {
                let (key, value) = (side(position + layer, dim), side(position + layer + 7, dim));
                let (mut keys, mut values) = (vec![9.0; dim], vec![9.0; dim]);
                layout.read_position(page.bytes(), (layer, kv_head, position), &mut keys, &mut values);
                let near = |(a, b): (&f32, &f32)| (a - b).abs() < tolerance;
                assert!(keys.iter().zip(&key).all(near) && values.iter().zip(&value).all(near), "{format:?}");
            }
            let mut other = PageMemory::new(layout);
            layout.copy_position(page.bytes(), 17, other.bytes_mut(), 5);
            for (position, layer, kv_head, dim) in places.into_iter().filter(|place| place.0 == 17) {
                let [mut one, mut two] = [(); 2].map(|()| [vec![0.0; dim], vec![0.0; dim]]);
                let ([keys, values], [other_keys, other_values]) = (&mut one, &mut two);
                layout.read_position(page.bytes(), (layer, kv_head, position), keys, values);
                layout.read_position(other.bytes(), (layer, kv_head, 5), other_keys, other_values);
                assert_eq!(one, two, "{format:?}");
            }
        }
    }
}
