//! Weights as the matrix products read them: packed once at load.
//!
//! A matrix of `outputs × inputs` is cut into panels of 16 outputs and groups of 32 inputs. A panel's quants lie contiguous,
//! group by group, in 64-byte registers: four inputs of each of the 16 outputs take one, at eight bits. Of fewer bits,
//!
//! - four: register `i` has the inputs `8i..8i + 4` in its low nibbles and the next four in its high ones, be they quants or
//!   numbers of a form's sixteen values;
//! - five: likewise, and a fifth register the highest bits, bit `i` for the inputs `4i..4i + 4`;
//! - six: likewise, and two more with the upper two bits, 16 inputs each, those of inputs `4i..4i + 4` at bit `2i`;
//! - two and three: two such registers with the lower bits, and for three bits one with the highest.
//!
//! The panel's scales lie beside them, in the same order ([`Form`]): those of half precision in units of a power of two,
//! the others as in the file. Floats have none: those of the 16 outputs for one input lie side by side. So each byte of the
//! file is read once, and weights are exactly the file's values.
//!
//! Rows of one matrix may be of several forms, each [`Section`] of some whole pairs of panels of its own.

mod bytes;
mod fill;
mod form;
mod group;
mod row;
#[cfg(test)]
mod tests;

pub use bytes::{Lend, Lender};
pub use form::Form;
pub use group::{Packable, WeightGroup};
pub use row::{WeightRow, WeightRows};

pub(crate) use form::{BLOCK, HALVES};

use crate::memory::{Aligned, Region};
use crate::quantize::GROUP;
use crate::simd::LANES;
use bytes::PackedBytes;
use group::{float, quant};
use half::f16;
use row::GroupWise;

/// Outputs in a panel.
pub const PANEL: usize = LANES;

/// Panels that products take together: sections begin at a multiple of it.
pub const PANELS_TOGETHER: usize = 2;

/// A packed matrix.
#[derive(Debug)]
pub struct PackedMatrix {
    inputs: usize,
    outputs: usize,
    sections: Vec<Section>,
}

/// What a section of a matrix is made of.
#[derive(Clone, Copy, Debug)]
pub struct PackedPart<'a> {
    /// How its weights are stored.
    pub form: Form,
    /// Rows of it.
    pub outputs: usize,
    /// All its quants, or floats.
    pub quants: &'a [u8],
    /// All its scales.
    pub scales: &'a [u8],
    section: &'a Section,
}

impl PackedPart<'_> {
    /// The memory that its quants and its scales lie in, where a device that shares the processor's memory may be given it.
    #[must_use]
    pub fn regions(&self) -> [Option<Region>; 2] {
        [self.section.quants.region(), self.section.scales.region()]
    }
}

/// Bytes of the quants, or floats, and of the scales of a section of so many outputs, with so many groups in a row. Panels
/// are padded to whole pairs.
#[must_use]
pub const fn section_bytes(outputs: usize, groups: usize, form: Form) -> [usize; 2] {
    let panels = outputs.div_ceil(PANEL).next_multiple_of(PANELS_TOGETHER);
    [panels * groups * form.registers() * 64, panels * form.scale_bytes(groups)]
}

/// Some outputs that are packed alike.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) form: Form,
    /// The first of its panels.
    pub(crate) first: usize,
    outputs: usize,
    /// Groups of a row.
    groups: usize,
    quants: PackedBytes,
    scales: PackedBytes,
}

impl PackedMatrix {
    /// Packs a matrix given group by group: `group(output, index)` is group `index` of an output's weights, of its form.
    ///
    /// # Errors
    /// [`OutOfRange`] if a scale or minimum is not a number or too large, or a float is not finite.
    ///
    /// # Panics
    /// If a group is of floats and the form is not, or the other way round.
    pub fn new<G: Into<Packable>>(
        outputs: usize,
        inputs: usize,
        form: Form,
        group: impl FnMut(usize, usize) -> G,
    ) -> Result<Self, OutOfRange> {
        Self::in_sections(inputs, &[(outputs, form)], group)
    }

    /// Packs a matrix whose rows are of several forms, given as by [`Self::new`]: so many of the first, then so many of the
    /// next.
    ///
    /// # Errors
    /// As [`Self::new`].
    ///
    /// # Panics
    /// As [`Self::new`], or if a section but the last is no whole number of pairs of panels.
    pub fn in_sections<G: Into<Packable>>(
        inputs: usize,
        forms: &[(usize, Form)],
        group: impl FnMut(usize, usize) -> G,
    ) -> Result<Self, OutOfRange> {
        Self::of_rows(inputs, forms, &mut GroupWise::new(inputs, group))
    }

    /// The same, given row by row, which is the quickest way.
    ///
    /// # Errors
    /// As [`Self::new`].
    ///
    /// # Panics
    /// As [`Self::in_sections`], or if a row has fewer groups or floats than there are inputs.
    pub fn of_rows(inputs: usize, forms: &[(usize, Form)], rows: &mut impl WeightRows) -> Result<Self, OutOfRange> {
        let (groups, mut first, mut sections) = (inputs.div_ceil(GROUP), 0, Vec::new());
        for &(outputs, form) in forms {
            assert!(first % (PANELS_TOGETHER * PANEL) == 0, "a section begins within a pair of panels");
            let mut section = Section::zeroed(1, outputs, groups, form).remove(0);
            section.first = first / PANEL;
            section.fill(first, rows)?;
            first += outputs;
            sections.push(section);
        }
        Ok(Self { inputs, outputs: first, sections })
    }

    /// Packs `count` matrices of one shape that lie beside each other in memory, given row by row: those of the second behind
    /// those of the first.
    ///
    /// # Errors
    /// As [`Self::new`]; outputs are counted through all matrices.
    ///
    /// # Panics
    /// As [`Self::of_rows`].
    pub fn many(
        count: usize,
        outputs: usize,
        inputs: usize,
        form: Form,
        rows: &mut impl WeightRows,
    ) -> Result<Vec<Self>, OutOfRange> {
        let sections = Section::zeroed(count, outputs, inputs.div_ceil(GROUP), form);
        let fill = |(matrix, mut section): (usize, Section)| {
            section.fill(matrix * outputs, rows)?;
            Ok(Self { inputs, outputs, sections: vec![section] })
        };
        sections.into_iter().enumerate().map(fill).collect()
    }

    /// What it is made of, one section after the other.
    pub fn parts(&self) -> impl Iterator<Item = PackedPart<'_>> {
        self.sections.iter().map(|section| PackedPart {
            form: section.form,
            outputs: section.outputs,
            quants: &section.quants,
            scales: &section.scales,
            section,
        })
    }

    /// A matrix whose sections somebody lends: of so many outputs and a form each, and where in the lender's bytes its quants
    /// and its scales begin. Their lengths are those of [`section_bytes`]. Nothing if they do not lie there, or a section
    /// but the last is no whole number of pairs of panels.
    #[must_use]
    pub fn lent(inputs: usize, sections: &[(usize, Form, [usize; 2])], lender: &Lender) -> Option<Self> {
        let (groups, mut first, mut lent) = (inputs.div_ceil(GROUP), 0, Vec::new());
        for &(outputs, form, [quants, scales]) in sections {
            let lens = section_bytes(outputs, groups, form);
            let quants = PackedBytes::lent(lender, quants, lens[0])?;
            let scales = PackedBytes::lent(lender, scales, lens[1])?;
            if first % (PANELS_TOGETHER * PANEL) != 0 {
                return None;
            }
            lent.push(Section { form, first: first / PANEL, outputs, groups, quants, scales });
            first += outputs;
        }
        Some(Self { inputs, outputs: first, sections: lent })
    }

    /// The matrix of some outputs alone, in this order, if all outputs are of one form; else nothing.
    ///
    /// # Panics
    /// If there is no such output.
    #[must_use]
    pub fn gather(&self, outputs: &[usize]) -> Option<Self> {
        let [section] = self.sections.as_slice() else { return None };
        let mut gathered = Section::zeroed(1, outputs.len(), section.groups, section.form).remove(0);
        for (to, &from) in outputs.iter().enumerate() {
            assert!(from < self.outputs, "there is no output {from}");
            gathered.copy_output(to, section, from);
        }
        Some(Self { inputs: self.inputs, outputs: outputs.len(), sections: vec![gathered] })
    }

    /// The sections, by their first panels.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Whether it has floats: products with it then read activations that are not rounded.
    #[must_use]
    pub fn has_floats(&self) -> bool {
        self.sections.iter().any(|section| section.form.is_float())
    }

    /// The quants of the first section as they lie in memory, for probes.
    #[must_use]
    pub fn quants(&self) -> &[u8] {
        self.sections.first().map_or(&[], |section| &section.quants)
    }

    /// Rows of the matrix: values of a result.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the matrix: values of an operand.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Panels of 16 outputs, the last one padded with zeros.
    #[must_use]
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Groups of 32 inputs, the last one padded with zeros.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.inputs.div_ceil(GROUP)
    }

    /// Bytes that a product with one row reads.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sections.iter().map(|section| section.quants.bytes() + section.scales.bytes()).sum()
    }

    /// How many lines [`Self::line`] knows of a panel; 0 if there is no such panel.
    pub(crate) fn lines_of_panel(&self, panel: usize) -> usize {
        self.section_of(panel).map_or(0, |section| section.groups * (section.form.registers() + 1))
    }

    /// A cache line of a panel, in the order of reading: those of each group's quants, and after them that of its scales.
    pub(crate) fn line(&self, panel: usize, line: usize) -> Option<*const u8> {
        let section = self.section_of(panel)?;
        let registers = section.form.registers();
        let (group, line) = (line / (registers + 1), line % (registers + 1));
        let Panel { quants, scales } = (group < section.groups).then(|| section.panel(panel - section.first))?;
        Some(if line < registers {
            quants.wrapping_add((group * registers + line) * 64)
        } else {
            scales.wrapping_add(section.form.scales_at(group))
        })
    }

    /// The section that a panel is in.
    fn section_of(&self, panel: usize) -> Option<&Section> {
        self.sections.iter().find(|section| (section.first..section.first + section.panels()).contains(&panel))
    }

    /// Multiply-accumulates of a product with one row.
    #[must_use]
    pub fn macs(&self) -> usize {
        self.outputs * self.inputs
    }

    /// Weight `input` of `output`, for tests and for reading single rows.
    ///
    /// # Panics
    /// If there is no such weight.
    #[must_use]
    pub fn weight(&self, output: usize, input: usize) -> f32 {
        assert!(output < self.outputs && input < self.inputs);
        let section = self.sections.iter().rfind(|section| section.first * PANEL <= output);
        section.map_or(0.0, |section| section.weight(output - section.first * PANEL, input))
    }
}

impl Section {
    /// `count` sections that lie beside each other in memory.
    fn zeroed(count: usize, outputs: usize, groups: usize, form: Form) -> Vec<Self> {
        let [quants, scales] = section_bytes(outputs, groups, form).map(|len| Aligned::slab(count, len));
        let section = |(quants, scales)| {
            let (quants, scales) = (PackedBytes::Own(quants), PackedBytes::Own(scales));
            Self { form, first: 0, outputs, groups, quants, scales }
        };
        quants.into_iter().zip(scales).map(section).collect()
    }

    /// Panels that have outputs.
    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Copies an output of another section of the same form and width.
    fn copy_output(&mut self, to: usize, source: &Self, from: usize) {
        let (form, (to_lane, from_lane)) = (self.form, (to % PANEL, from % PANEL));
        // Four quants or bytes of planes, or one float.
        let width = if form.is_float() { form.bits() / 8 } else { 4 };
        let steps = self.groups * form.registers() * 64 / (width * LANES);
        for step in 0..steps {
            let at = |output: usize| ((output / PANEL * steps + step) * LANES + output % PANEL) * width;
            self.quants.own()[at(to)..][..width].copy_from_slice(&source.quants[at(from)..][..width]);
        }
        if form.is_float() {
            return;
        }
        let bytes = form.scale_bytes(self.groups);
        let (scales, source) = (&mut self.scales.own()[to / PANEL * bytes..], &source.scales[from / PANEL * bytes..]);
        for index in 0..self.groups {
            let block = form.block_at(index);
            for half in 0..1 + usize::from(form.has_min()) {
                let at = block + half * HALVES;
                scales[at + 2 * to_lane..][..2].copy_from_slice(&source[at + 2 * from_lane..][..2]);
            }
            if form.has_small_scales() {
                for i in 0..form.small_scales() {
                    let at = form.scales_at(index) + i * LANES;
                    scales[at + to_lane] = source[at + from_lane];
                }
            }
        }
    }

    fn weight(&self, output: usize, input: usize) -> f32 {
        let (form, (panel, lane), index) = (self.form, (output / PANEL, output % PANEL), input / GROUP);
        let bytes = form.registers() * 64;
        let registers = &self.quants[(panel * self.groups + index) * bytes..][..bytes];
        if form.is_float() {
            return float(form, registers, lane, input % GROUP);
        }
        let q = quant(form, registers, lane, input % GROUP);
        let scales = &self.scales[panel * form.scale_bytes(self.groups)..];
        let half = |at: usize| f16::from_le_bytes([scales[at], scales[at + 1]]).to_f32() * UNIT;
        let block = form.block_at(index) + 2 * lane;
        let small = form.has_small_scales().then(|| {
            let at = form.scales_at(index) + lane;
            [scales[at], if form.small_scales() > 1 { scales[at + LANES] } else { 0 }]
        });
        let min = if form.has_min() { half(block + HALVES) } else { 0.0 };
        group::weight(form, (half(block), min), small, input % GROUP, q)
    }

    /// Where panel `index` of the section begins; valid for all its groups.
    pub(crate) fn panel(&self, index: usize) -> Panel {
        let (quants, scales) = (self.groups * self.form.registers() * 64, self.form.scale_bytes(self.groups));
        Panel {
            quants: self.quants[index * quants..(index + 1) * quants].as_ptr(),
            scales: self.scales[index * scales..(index + 1) * scales].as_ptr(),
        }
    }
}

/// Pointers to one panel.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    pub(crate) quants: *const u8,
    pub(crate) scales: *const u8,
}

/// Scales are stored in this unit. A power of two, so that the files' half-precision scales stay exact, and small, so
/// that those of unquantised weights (about 1e-4) keep half precision's full 11 bits.
pub(crate) const UNIT: f32 = 1.0 / 1024.0;

/// A scale or minimum, or a float, that cannot be packed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("output {output} has {value}, outside of what can be packed (finite floats, and scales within ±63)")]
pub struct OutOfRange {
    /// The output it belongs to.
    pub output: usize,
    /// The scale or float.
    pub value: f32,
}
