//! A tensor of a file: where it lies, and its rows as numbers.
//!
//! A [`TensorInfo`] exists only for a possible tensor: 1 to 4 dimensions, none zero, rows of whole blocks, and a size
//! that fits the address space. A [`Tensor`] exists only with exactly its bytes.

use super::{GgufError, Group, TensorType, rows};
use duet_kernels::packed::WeightGroup;

/// What the file says about a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, unique in the file.
    pub name: String,
    /// Elements along each dimension, the contiguous one first: `shape[0]` is the length of a row.
    pub shape: Vec<u64>,
    /// How elements are stored.
    pub kind: TensorType,
    rows: usize,
    row_len: usize,
    /// Where it starts within the data part of the file.
    offset: u64,
}

/// A tensor and its bytes, which stay in the file.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// What the file says about it.
    pub info: &'a TensorInfo,
    data: &'a [u8],
}

impl TensorInfo {
    /// Checks shape and type.
    pub(super) fn new(name: &str, shape: Vec<u64>, kind: TensorType, offset: u64) -> Result<Self, GgufError> {
        if !(1..=4).contains(&shape.len()) {
            return Err(GgufError::Dimensions { tensor: name.into(), count: shape.len() as u32 });
        }
        let Some((row_len, rows)) = extent(&shape) else {
            return Err(GgufError::Shape { tensor: name.into(), shape });
        };
        if !row_len.is_multiple_of(kind.block_elements()) {
            return Err(GgufError::PartialBlock { tensor: name.into(), row_len: row_len as u64, kind });
        }
        Ok(Self { name: name.into(), shape, kind, rows, row_len, offset })
    }

    /// The number of rows: the product of all dimensions but the first.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements in a row.
    #[must_use]
    pub fn row_len(&self) -> usize {
        self.row_len
    }

    /// Elements in all.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.rows * self.row_len
    }

    /// Bytes of a row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_len / self.kind.block_elements() * self.kind.block_bytes()
    }

    /// Bytes in all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }
}

impl<'a> Tensor<'a> {
    pub(super) fn new(info: &'a TensorInfo, data: &'a [u8]) -> Self {
        debug_assert_eq!(info.bytes(), data.len());
        Self { info, data }
    }

    /// All its bytes, as stored.
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The bytes of a row, as stored.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn row_bytes(&self, row: usize) -> &'a [u8] {
        assert!(row < self.info.rows, "row {row} of `{}`, which has {}", self.info.name, self.info.rows);
        let len = self.info.row_bytes();
        &self.data[row * len..][..len]
    }

    /// Writes the weights of a row, exactly as the type defines them. A zero may have either sign, and a block whose
    /// scale is infinite may read as NaN.
    ///
    /// # Panics
    /// When there is no such row or `out` is not [`TensorInfo::row_len`] long.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert_eq!(out.len(), self.info.row_len, "one number per element of a row of `{}`", self.info.name);
        rows::dequantize(self.info.kind, self.row_bytes(row), out);
    }

    /// Writes a row as groups of 32 weights.
    ///
    /// # Panics
    /// When the type has no [`TensorType::group_form`], there is no such row, or `out` does not have one group for
    /// every 32 elements of a row.
    pub fn groups_row(&self, row: usize, out: &mut [Group]) {
        assert!(self.info.kind.group_form().is_some(), "{} has no groups of 32", self.info.kind.name());
        assert_eq!(out.len(), self.info.row_len / 32, "one group per 32 elements of a row of `{}`", self.info.name);
        rows::groups(self.info.kind, self.row_bytes(row), out);
    }

    /// Writes what the file has for a row's groups of 32 weights; nothing if it holds floats. Of `Q8_0`, -128 is given as
    /// -127.
    ///
    /// # Panics
    /// When there is no such row, or `out` does not have one group for every 32 elements of a row of quants.
    pub fn stored_row(&self, row: usize, out: &mut [WeightGroup]) {
        assert_eq!(
            out.len(),
            self.info.row_len.div_ceil(32),
            "one group per 32 elements of a row of `{}`",
            self.info.name
        );
        rows::stored(self.info.kind, self.row_bytes(row), out);
    }
}

/// Length and number of rows, if the shape is possible: no dimension is zero and the size in bytes fits `isize`.
fn extent(shape: &[u64]) -> Option<(usize, usize)> {
    let (&row_len, outer) = shape.split_first()?;
    let row_len = usize::try_from(row_len).ok()?;
    let rows = outer.iter().try_fold(1usize, |rows, &dim| rows.checked_mul(usize::try_from(dim).ok()?))?;
    // No type takes more than four bytes for an element.
    let bytes_max = rows.checked_mul(row_len)?.checked_mul(4)?;
    (1..=isize::MAX as usize).contains(&bytes_max).then_some((row_len, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_shapes_are_refused() {
        let new = |shape: &[u64], kind| TensorInfo::new("t", shape.into(), kind, 0);
        assert!(matches!(new(&[], TensorType::F32), Err(GgufError::Dimensions { count: 0, .. })));
        assert!(matches!(new(&[1; 5], TensorType::F32), Err(GgufError::Dimensions { count: 5, .. })));
        assert!(matches!(new(&[32, 0], TensorType::F32), Err(GgufError::Shape { .. })));
        assert!(matches!(new(&[1 << 32, 1 << 32], TensorType::F32), Err(GgufError::Shape { .. })));
        assert!(matches!(new(&[u64::MAX], TensorType::Q8_0), Err(GgufError::Shape { .. })));
        assert_eq!(
            new(&[33, 2], TensorType::Q8_0).unwrap_err().to_string(),
            "tensor `t` has rows of 33 elements, Q8_0 needs a multiple of 32"
        );
    }

    #[test]
    fn sizes_follow_from_shape_and_type() {
        let info = TensorInfo::new("t", vec![512, 3, 2], TensorType::Q4K, 0).unwrap();
        assert_eq!((info.row_len(), info.rows(), info.elements()), (512, 6, 3072));
        assert_eq!((info.row_bytes(), info.bytes()), (288, 1728));
    }
}
