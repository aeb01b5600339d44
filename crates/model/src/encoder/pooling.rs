//! From a text's rows to one vector.

/// What becomes of a text's rows after the last layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first one.
    First,
    /// The last one.
    Last,
    /// A score, by a head over the first one: how well a document answers a query.
    Score,
}

impl Pooling {
    /// Whether texts come to vectors; to scores otherwise.
    #[must_use]
    pub fn embeds(self) -> bool {
        self != Self::Score
    }

    /// The vector of a text, at a length of 1; of zeros, zeros. Rows are added up in their order, in double precision.
    pub(super) fn vector<'a>(self, rows: impl ExactSizeIterator<Item = &'a [f32]>, width: usize) -> Vec<f32> {
        let count = rows.len();
        let mut sum = vec![0.0_f64; width];
        for (index, row) in rows.enumerate() {
            let counts = match self {
                Self::Mean => true,
                Self::First | Self::Score => index == 0,
                Self::Last => index + 1 == count,
            };
            if counts {
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
            }
        }
        // The mean's divisor is in the length as well.
        unit(&sum)
    }
}

/// At a length of 1.
pub(super) fn unit(vector: &[f64]) -> Vec<f32> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
    vector.iter().map(|x| (x * scale) as f32).collect()
}
