//! Rows of tensors as groups of 32, in the forms that they are packed in.

use crate::gguf::{StoredGroup, Tensor, TensorType};
use duet_kernels::packed::{Form, Packable, WeightGroup};
use duet_kernels::quantize::GROUP;

/// The packed form with the quants and scales, or the floats, of a type.
pub(crate) fn stored_form(kind: TensorType) -> Form {
    match kind {
        TensorType::F32 => Form::F32,
        TensorType::F16 => Form::F16,
        TensorType::BF16 => Form::BF16,
        TensorType::Q4_0 => Form::Q4_0,
        TensorType::Q4_1 => Form::Q4_1,
        TensorType::Q5_0 => Form::Q5_0,
        TensorType::Q5_1 => Form::Q5_1,
        TensorType::Q8_0 => Form::Q8_0,
        TensorType::Q2K => Form::Q2K,
        TensorType::Q3K => Form::Q3K,
        TensorType::Q4K => Form::Q4K,
        TensorType::Q5K => Form::Q5K,
        TensorType::Q6K => Form::Q6K,
        TensorType::IQ4NL => Form::IQ4NL,
        TensorType::IQ4XS => Form::IQ4XS,
        TensorType::MXFP4 => Form::MXFP4,
    }
}

/// Reads rows as groups. Groups of a row are asked for in order, so one row is decoded at a time.
pub(super) struct RowReader {
    groups: Vec<StoredGroup>,
    weights: Vec<f32>,
}

impl RowReader {
    pub(super) fn new(inputs: usize) -> Self {
        Self { groups: vec![StoredGroup::default(); inputs.div_ceil(GROUP)], weights: vec![0.0; inputs] }
    }

    /// A group as the file has it, if it is to be packed in the form of its type, else quantised to eight bits.
    pub(super) fn group(&mut self, tensor: Tensor<'_>, row: Option<usize>, index: usize, form: Form) -> Packable {
        let Some(row) = row else { return Packable::zeros(form) };
        if form.is_float() || form != stored_form(tensor.info.kind) {
            if index == 0 {
                tensor.dequantize_row(row, &mut self.weights);
            }
            let end = ((index + 1) * GROUP).min(self.weights.len());
            let weights = &self.weights[index * GROUP..end];
            if !form.is_float() {
                return WeightGroup::quantize(weights).into();
            }
            let mut floats = [0.0; GROUP];
            floats[..weights.len()].copy_from_slice(weights);
            return floats.into();
        }
        if index == 0 {
            tensor.stored_row(row, &mut self.groups);
        }
        let StoredGroup { scale, min, small, quants } = self.groups[index];
        WeightGroup { scale, min, small, quants }.into()
    }
}
