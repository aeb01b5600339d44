//! Reading keys and values out of a page, for devices that take them as plain floats.

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
        let (keys_side, values_side) = (&page[self.keys(layer, kv_head)..], &page[self.values(layer, kv_head)..]);
        for (dimension, (key, value)) in keys.iter_mut().zip(&mut *values).enumerate() {
            *key = self.key(keys_side, position, dimension);
            *value = self.value(values_side, position, dimension);
        }
        if self.format != KvFormat::F16 {
            turn(Portable, keys);
            turn(Portable, values);
        }
    }

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
    use super::super::layout::{PageMemory, Slot};
    use super::*;
    use crate::isa::Isa;
    use proptest::prelude::*;

    /// A page with one key and value, and both as they are read again.
    fn write(isa: Isa, format: KvFormat, key: &[f32], value: &[f32]) -> (Vec<u8>, Vec<f32>, Vec<f32>) {
        let layout = KvLayout { layers: 1, kv_heads: 1, head_dim: key.len(), format, state: 0 };
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
            let layout = KvLayout { layers: 2, kv_heads: 3, head_dim: 32, format, state: 5 };
            let mut page = PageMemory::new(layout);
            let side = |seed: usize| (0..32).map(|i| ((i * 13 + seed) % 29) as f32 / 29.0 - 0.5).collect::<Vec<_>>();
            for (position, layer, kv_head) in [(0, 0, 0), (17, 1, 2), (63, 0, 1)] {
                let (key, value) = (side(position), side(position + 7));
                // SAFETY: nobody else has the page.
                unsafe { page.writer().write(Isa::chosen().unwrap(), Slot { position, layer, kv_head }, &key, &value) };
                let (mut keys, mut values) = ([9.0; 32], [9.0; 32]);
                layout.read_position(page.bytes(), (layer, kv_head, position), &mut keys, &mut values);
                let near = |(a, b): (&f32, &f32)| (a - b).abs() < tolerance;
                assert!(keys.iter().zip(&key).all(near) && values.iter().zip(&value).all(near), "{format:?}");
            }
        }
    }
}
