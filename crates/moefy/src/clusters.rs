//! Neurons that work together, or rows that are alike, in clusters of one size.
//!
//! Each neuron is a direction: how much it contributes to each token. Spherical k-means with equal clusters: in each
//! round neurons choose the nearest centre that has room, those first who would lose most by another. Everything is
//! ordered, so the same neurons give the same clusters.

use crate::matrix::{Hands, Matrix};

/// The cluster of each row of `directions`, which have length one or zero.
///
/// # Panics
/// If the rows do not divide by the clusters.
pub(crate) fn clusters(directions: &Matrix, count: usize, hands: Hands) -> Vec<usize> {
    let rows = directions.rows();
    assert!(count > 0 && rows.is_multiple_of(count));
    let mut centres = spread(directions, count, hands);
    let mut chosen = Vec::new();
    for _ in 0..ROUNDS {
        let next = choose(&directions.times_rows_of(&centres, hands), rows / count);
        if next == chosen {
            break;
        }
        chosen = next;
        centres = means(directions, &chosen, count);
    }
    chosen
}

/// The clusters' centres, which have length one.
///
/// # Panics
/// As [`clusters`].
pub(crate) fn centres(directions: &Matrix, count: usize, hands: Hands) -> Matrix {
    means(directions, &clusters(directions, count, hands), count)
}

/// More change next to nothing.
const ROUNDS: usize = 12;

/// First centres: each as far from those before as there is.
fn spread(directions: &Matrix, count: usize, hands: Hands) -> Matrix {
    let mut centres = directions.gather(&[0]);
    let mut nearest = vec![f32::NEG_INFINITY; directions.rows()];
    for _ in 1..count {
        let last = centres.gather(&[centres.rows() - 1]);
        let near = directions.times_rows_of(&last, hands);
        nearest.iter_mut().zip(near.values()).for_each(|(nearest, near)| *nearest = nearest.max(*near));
        let farthest = (0..nearest.len()).min_by(|&a, &b| nearest[a].total_cmp(&nearest[b])).unwrap_or(0);
        let values = [centres.values(), directions.row(farthest)].concat();
        centres = Matrix::of(directions.columns(), values);
    }
    centres
}

/// The cluster of each row, given how near it is to each: none with more than `room`.
fn choose(near: &Matrix, room: usize) -> Vec<usize> {
    let ranked: Vec<Vec<usize>> = (0..near.rows())
        .map(|row| {
            let mut order: Vec<usize> = (0..near.columns()).collect();
            order.sort_by(|&a, &b| near.row(row)[b].total_cmp(&near.row(row)[a]));
            order
        })
        .collect();
    let loss = |row: usize| {
        let second = ranked[row].get(1).map_or(0.0, |&second| near.row(row)[second]);
        near.row(row)[ranked[row][0]] - second
    };
    let mut order: Vec<usize> = (0..near.rows()).collect();
    order.sort_by(|&a, &b| loss(b).total_cmp(&loss(a)));
    let (mut chosen, mut left) = (vec![0; near.rows()], vec![room; near.columns()]);
    for row in order {
        // There is as much room as there are rows.
        let cluster = ranked[row].iter().copied().find(|&cluster| left[cluster] > 0).unwrap_or(0);
        left[cluster] = left[cluster].saturating_sub(1);
        chosen[row] = cluster;
    }
    chosen
}

fn means(directions: &Matrix, chosen: &[usize], count: usize) -> Matrix {
    let mut sums = Matrix::zeros(count, directions.columns());
    for (row, &cluster) in chosen.iter().enumerate() {
        sums.row_mut(cluster).iter_mut().zip(directions.row(row)).for_each(|(sum, value)| *sum += value);
    }
    normalise(&mut sums);
    sums
}

/// Rows of length one, but for those that are zero.
pub(crate) fn normalise(matrix: &mut Matrix) {
    for row in 0..matrix.rows() {
        let row = matrix.row_mut(row);
        let length = row.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length > 0.0 {
            row.iter_mut().for_each(|value| *value /= length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_kernels::isa::Isa;
    use proptest::prelude::*;

    const HANDS: Hands = Hands { isa: Isa::Portable, threads: 2 };

    #[test]
    fn what_works_together_comes_together() {
        // Neuron `i` works on the tokens of its own third.
        let mut directions = Matrix::zeros(12, 30);
        for neuron in 0..12 {
            let third = neuron % 3;
            (0..10)
                .for_each(|token| directions.row_mut(neuron)[third * 10 + token] = 1.0 + (neuron * token % 5) as f32);
        }
        normalise(&mut directions);
        let found = clusters(&directions, 3, HANDS);
        assert!((0..12).all(|neuron| found[neuron] == found[neuron % 3]), "{found:?}");
        assert!(found[0] != found[1] && found[1] != found[2] && found[0] != found[2]);
    }

    proptest! {
        #[test]
        fn clusters_are_of_one_size(
            count in 1_usize..8,
            size in 1_usize..9,
            values in prop::collection::vec(-2.0..2.0_f32, 64 * 3),
        ) {
            let values = values.into_iter().cycle().take(count * size * 3).collect();
            let mut directions = Matrix::of(3, values);
            normalise(&mut directions);
            let found = clusters(&directions, count, HANDS);
            for cluster in 0..count {
                prop_assert_eq!(found.iter().filter(|&&of| of == cluster).count(), size);
            }
        }
    }
}
