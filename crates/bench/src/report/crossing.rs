//! Where a curve that was measured at some points crosses a level.

/// The first x at which a line through the points, in the order of their x, comes from below `level` to it or above. Between
/// two points it is straight in x and in the logarithm of y, since latencies near saturation grow by factors. Absent if
/// it never does; the first point if it begins there.
pub(crate) fn crossing(points: &[(f64, f64)], level: f64) -> Option<f64> {
    let &(first, lowest) = points.first()?;
    if lowest >= level {
        return Some(first);
    }
    let pairs = points.iter().zip(&points[1..]);
    pairs
        .filter(|((_, low), (_, high))| *low < level && level <= *high)
        .map(|(low, high)| between(*low, *high, level))
        .next()
}

fn between((left, low): (f64, f64), (right, high): (f64, f64), level: f64) -> f64 {
    let share = if low > 0.0 { (level / low).ln() / (high / low).ln() } else { (level - low) / (high - low) };
    left + share * (right - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_crossed_where_the_line_through_the_points_says() {
        let points = [(1.0, 0.1), (2.0, 1.0), (4.0, 100.0)];
        assert!((crossing(&points, 1.0).unwrap() - 2.0).abs() < 1e-12);
        assert!((crossing(&points, 10.0).unwrap() - 3.0).abs() < 1e-12);
        assert!((crossing(&[(0.0, 0.0), (10.0, 5.0)], 1.0).unwrap() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_crossed_is_absent_and_what_begins_above_is_there() {
        let points = [(1.0, 0.5), (2.0, 0.4), (3.0, 0.9)];
        assert_eq!(crossing(&points, 1.0), None);
        assert_eq!(crossing(&points, 0.5), Some(1.0));
        // It comes back below the level and crosses it later.
        assert!(crossing(&points, 0.6).unwrap() > 2.0);
        assert_eq!(crossing(&[], 1.0), None);
    }
}
