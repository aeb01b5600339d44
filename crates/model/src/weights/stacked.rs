//! Whole tensors below each other as one matrix, for models that no blueprint of a decoder describes.

use super::packer::{finite, out_of_range, shape};
use super::parts::{Part, rows_of, sections};
use super::row_reader::RowReader;
use crate::gguf::{GgufFile, Tensor};
use crate::load::LoadError;
use duet_kernels::packed::{Form, PackedMatrix};

/// Reads tensors of a file whose shapes are known.
#[derive(Clone, Copy)]
pub(crate) struct Stacker<'a>(pub(crate) &'a GgufFile);

impl<'a> Stacker<'a> {
    /// Packs matrices, each given with its outputs, one below the other.
    pub(crate) fn matrix(&self, parts: &[(String, usize)], inputs: usize) -> Result<PackedMatrix, LoadError> {
        let part = |(name, outputs): &(String, usize)| Ok(Part::whole(self.tensor(name, *outputs, inputs)?));
        let parts: Vec<Part<'a>> = parts.iter().map(part).collect::<Result<_, LoadError>>()?;
        let apart = sections(&parts);
        let keeps_form = apart.is_some();
        let rows = rows_of(&parts);
        let forms = apart.unwrap_or_else(|| vec![(rows.len(), Form::Q8_0)]);
        let mut reader = RowReader::new(inputs, &rows, (!keeps_form).then_some(Form::Q8_0));
        PackedMatrix::of_rows(inputs, &forms, &mut reader).map_err(|error| out_of_range(&error, &rows))
    }

    /// A vector of floats.
    pub(crate) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.tensor(name, 1, len)?;
        let mut values = vec![0.0; len];
        tensor.dequantize_row(0, &mut values);
        finite(name, values)
    }

    /// Whether there is such a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.tensor(name).is_some()
    }

    /// A matrix of floats, however many outputs it has, and its bias: `{name}.weight` and `{name}.bias`.
    pub(crate) fn plain(&self, name: &str, inputs: usize) -> Result<(Vec<f32>, Vec<f32>), LoadError> {
        let weight = format!("{name}.weight");
        let missing = || LoadError::MissingTensor { name: weight.clone() };
        let outputs = self.0.tensor(&weight).ok_or_else(missing)?.info.rows();
        let tensor = self.tensor(&weight, outputs, inputs)?;
        let mut values = vec![0.0; outputs * inputs];
        for (row, values) in values.chunks_exact_mut(inputs).enumerate() {
            tensor.dequantize_row(row, values);
        }
        Ok((finite(&weight, values)?, self.vector(&format!("{name}.bias"), outputs)?))
    }

    fn tensor(&self, name: &str, outputs: usize, inputs: usize) -> Result<Tensor<'a>, LoadError> {
        let tensor = self.0.tensor(name).ok_or_else(|| LoadError::MissingTensor { name: name.to_owned() })?;
        let fits = tensor.info.rows() == outputs && tensor.info.row_len() == inputs;
        if fits { Ok(tensor) } else { Err(shape(tensor, vec![inputs, outputs])) }
    }
}
