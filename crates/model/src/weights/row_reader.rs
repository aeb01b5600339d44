//! Rows of tensors, in the forms that they are packed in.

use crate::gguf::{Tensor, TensorType};
use duet_kernels::packed::{Form, WeightGroup, WeightRow, WeightRows};
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

/// Rows of tensors to be packed below each other, one decoded at a time.
pub(super) struct RowReader<'a> {
    rows: &'a [(Tensor<'a>, Option<usize>)],
    /// What all are packed in; none: each in the form of its type.
    form: Option<Form>,
    groups: Vec<WeightGroup>,
    weights: Vec<f32>,
}

impl<'a> RowReader<'a> {
    /// Of rows with so many weights; `None` is a row of zeros.
    pub(super) fn new(inputs: usize, rows: &'a [(Tensor<'a>, Option<usize>)], form: Option<Form>) -> Self {
        let groups = vec![WeightGroup::default(); inputs.div_ceil(GROUP)];
        Self { rows, form, groups, weights: vec![0.0; inputs] }
    }
}

impl WeightRows for RowReader<'_> {
    /// As the file has it, if it is to be packed in the form of its type, else quantised to eight bits.
    fn row(&mut self, output: usize) -> WeightRow<'_> {
        let (tensor, Some(row)) = self.rows[output] else { return WeightRow::Zeros };
        let own = stored_form(tensor.info.kind);
        let form = self.form.unwrap_or(own);
        if form == own && !form.is_float() {
            tensor.stored_row(row, &mut self.groups);
            return WeightRow::Quants(&self.groups);
        }
        tensor.dequantize_row(row, &mut self.weights);
        if form.is_float() {
            return WeightRow::Floats(&self.weights);
        }
        for (group, weights) in self.groups.iter_mut().zip(self.weights.chunks(GROUP)) {
            *group = WeightGroup::quantize(weights);
        }
        WeightRow::Quants(&self.groups)
    }
}
