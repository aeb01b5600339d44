//! Where packed matrices lie in their file.

use duet_kernels::packed::Form;
use std::ops::Range;

/// Where the panels of a matrix lie.
#[derive(Clone, Debug)]
pub(crate) struct MatrixPlace {
    pub(crate) inputs: usize,
    pub(crate) sections: Vec<SectionPlace>,
}

/// Where those of a section lie.
#[derive(Clone, Debug)]
pub(crate) struct SectionPlace {
    pub(crate) form: Form,
    pub(crate) outputs: usize,
    pub(crate) quants: Range<usize>,
    pub(crate) scales: Range<usize>,
    /// Of quants and scales, one behind the other.
    pub(crate) crc: u32,
}

/// Where an expert's matrices lie, one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct ExpertPlace {
    gate_up: MatrixPlace,
    down: MatrixPlace,
    span: Range<usize>,
}

/// Reads past the page cache begin and end at multiples of this, in the file and in memory.
pub(super) const BLOCK: usize = 4096;

/// Padding between sections is less.
const PADDING: usize = 64;

impl ExpertPlace {
    /// Nothing if the matrices do not lie together: an expert is to be one read.
    pub(crate) fn new(gate_up: MatrixPlace, down: MatrixPlace) -> Option<Self> {
        let parts = || gate_up.parts().chain(down.parts()).filter(|part| !part.is_empty());
        let span = parts().map(|part| part.start).min()?..parts().map(|part| part.end).max()?;
        let bytes: usize = parts().map(|part| part.len() + PADDING).sum();
        (span.len() <= bytes).then_some(Self { gate_up, down, span })
    }

    pub(super) fn gate_up(&self) -> &MatrixPlace {
        &self.gate_up
    }

    pub(super) fn down(&self) -> &MatrixPlace {
        &self.down
    }

    /// All that is between its first and its last byte.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What is to be read: whole blocks.
    pub(super) fn blocks(&self) -> Range<usize> {
        self.span.start / BLOCK * BLOCK..self.span.end.next_multiple_of(BLOCK)
    }

    /// Neurons.
    pub(crate) fn width(&self) -> usize {
        self.down.inputs
    }

    /// Bytes of its panels.
    pub(crate) fn bytes(&self) -> usize {
        self.gate_up.parts().chain(self.down.parts()).map(|part| part.len()).sum()
    }

    /// Multiply-accumulates of a row.
    pub(crate) fn macs(&self) -> usize {
        [&self.gate_up, &self.down].map(|matrix| matrix.inputs * matrix.outputs()).iter().sum()
    }

    /// Whether it has floats.
    pub(crate) fn has_floats(&self) -> bool {
        let mut sections = self.gate_up.sections.iter().chain(&self.down.sections);
        sections.any(|section| section.form.is_float())
    }
}

impl MatrixPlace {
    fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        self.sections.iter().flat_map(|section| [section.quants.clone(), section.scales.clone()])
    }

    fn outputs(&self) -> usize {
        self.sections.iter().map(|section| section.outputs).sum()
    }
}
