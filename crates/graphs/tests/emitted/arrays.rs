//! Arrays of any rank, with the few operations that networks have. Slow and plain.

/// Numbers, the last dimension side by side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array {
    pub(crate) dims: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

impl Array {
    pub(crate) fn new(dims: Vec<usize>, values: Vec<f64>) -> Self {
        assert_eq!(dims.iter().product::<usize>(), values.len());
        Self { dims, values }
    }

    /// The numbers at all places of `dims`, in order, each from the place in here that `from` says.
    pub(crate) fn gather(&self, dims: Vec<usize>, from: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let places = 0..dims.iter().product();
        let value = |place| self.values[flat(&self.dims, &from(&unflat(&dims, place)))];
        let values = places.map(value).collect();
        Self::new(dims, values)
    }

    /// Element by element; a dimension of one stands for all, and missing ones are in front.
    pub(crate) fn with(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        let rank = self.dims.len().max(other.dims.len());
        let [left, right] = [self, other].map(|array| array.with_rank(rank));
        let dims: Vec<usize> = left.dims.iter().zip(&right.dims).map(|(left, right)| *left.max(right)).collect();
        let [left, right] = [left, right].map(|array| {
            assert!(array.dims.iter().zip(&dims).all(|(own, all)| own == all || *own == 1), "dimensions differ");
            let own = array.dims.clone();
            array.gather(dims.clone(), move |at| {
                at.iter().zip(&own).map(|(at, own)| if *own == 1 { 0 } else { *at }).collect()
            })
        });
        Self::new(dims, left.values.iter().zip(&right.values).map(|(left, right)| f(*left, *right)).collect())
    }

    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self::new(self.dims.clone(), self.values.iter().copied().map(f).collect())
    }

    pub(crate) fn reshaped(&self, dims: Vec<usize>) -> Self {
        Self::new(dims, self.values.clone())
    }

    pub(crate) fn transposed(&self, order: &[usize]) -> Self {
        let dims = order.iter().map(|from| self.dims[*from]).collect();
        self.gather(dims, |at| {
            let mut place = vec![0; at.len()];
            order.iter().zip(at).for_each(|(from, at)| place[*from] = *at);
            place
        })
    }

    /// The mean along an axis, which stays as one.
    pub(crate) fn mean(&self, axis: usize) -> Self {
        let mut dims = self.dims.clone();
        dims[axis] = 1;
        let mut sums = Self::new(dims.clone(), vec![0.0; dims.iter().product()]);
        for (place, value) in self.values.iter().enumerate() {
            let mut at = unflat(&self.dims, place);
            at[axis] = 0;
            sums.values[flat(&dims, &at)] += value / self.dims[axis] as f64;
        }
        sums
    }

    /// `self × otherᵀ`, of `[rows, inputs]` and `[outputs, inputs]`.
    pub(crate) fn product(&self, other: &Self) -> Self {
        let (rows, inputs, outputs) = (self.dims[0], self.dims[1], other.dims[0]);
        assert_eq!(inputs, other.dims[1]);
        let sum = |row: usize, output: usize| -> f64 {
            (0..inputs).map(|input| self.values[row * inputs + input] * other.values[output * inputs + input]).sum()
        };
        let values = (0..rows * outputs).map(|place| sum(place / outputs, place % outputs)).collect();
        Self::new(vec![rows, outputs], values)
    }

    fn with_rank(&self, rank: usize) -> Self {
        let front = vec![1; rank - self.dims.len()];
        self.reshaped([front, self.dims.clone()].concat())
    }
}

fn flat(dims: &[usize], at: &[usize]) -> usize {
    assert!(at.iter().zip(dims).all(|(at, dim)| at < dim));
    at.iter().zip(dims).fold(0, |place, (at, dim)| place * dim + at)
}

fn unflat(dims: &[usize], place: usize) -> Vec<usize> {
    let mut rest = place;
    let mut at = vec![0; dims.len()];
    for (at, dim) in at.iter_mut().zip(dims).rev() {
        *at = rest % dim;
        rest /= dim;
    }
    at
}
