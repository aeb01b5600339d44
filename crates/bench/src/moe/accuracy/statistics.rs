//! How far a figure of some items may be from that of all items like them: intervals that hold it in 95 of 100 samples.

use duet_sim::Random;

/// Where a figure is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Wilson's interval of a share, `hits` of `n`; all there is if `n` is none. It is never empty and never leaves `0..=1`,
/// unlike the normal one, whose interval of 30 of 30 is a point.
pub(super) fn wilson(hits: usize, n: usize) -> Interval {
    if n == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    let (share, n) = (hits as f64 / n as f64, n as f64);
    let square = DEVIATIONS * DEVIATIONS;
    let middle = (share + square / (2.0 * n)) / (1.0 + square / n);
    let spread = DEVIATIONS / (1.0 + square / n) * (share * (1.0 - share) / n + square / (4.0 * n * n)).sqrt();
    Interval { low: (middle - spread).max(0.0), high: (middle + spread).min(1.0) }
}

/// The bootstrap's interval of a figure of `n` items: the middle 95 % of what it is of as many items drawn from them again
/// and again. `figure` is told which; a figure that compares settings item by item so stays paired. The same seed gives
/// the same interval.
pub(super) fn bootstrap(n: usize, seed: u64, figure: &dyn Fn(&[usize]) -> f64) -> Interval {
    let mut random = Random::new(seed);
    let mut drawn = vec![0; n];
    let mut figures: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.iter_mut().for_each(|item| *item = random.between(0, n as u32) as usize);
            figure(&drawn)
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    let cut = RESAMPLES * 25 / 1000;
    Interval { low: figures[cut], high: figures[RESAMPLES - 1 - cut] }
}

/// Of a normal distribution, that hold 95 % of it.
const DEVIATIONS: f64 = 1.959_964;
/// The ends of an interval are then those of 50 of them.
const RESAMPLES: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: Interval, low: f64, high: f64) {
        assert!((found.low - low).abs() < 5e-4 && (found.high - high).abs() < 5e-4, "{found:?}");
    }

    /// Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
    #[test]
    fn wilsons_intervals_are_the_published_ones() {
        near(wilson(81, 263), 0.2553, 0.3662);
        near(wilson(15, 148), 0.0624, 0.1605);
        near(wilson(0, 20), 0.0, 0.1611);
        near(wilson(1, 29), 0.0061, 0.1718);
        assert_eq!(wilson(0, 0), Interval { low: 0.0, high: 1.0 });
    }

    #[test]
    fn the_bootstrap_of_a_mean_is_as_wide_as_its_standard_error_says() {
        let values: Vec<f64> = (0..400).map(|value| f64::from(value % 20)).collect();
        let mean = |drawn: &[usize]| drawn.iter().map(|&item| values[item]).sum::<f64>() / drawn.len() as f64;
        let interval = bootstrap(values.len(), 7, &mean);
        // Of 0..20, evenly: the mean is 9.5, the variance (20² - 1) / 12.
        let error = (399.0_f64 / 12.0 / 400.0).sqrt() * DEVIATIONS;
        let (low, high) = (9.5 - error, 9.5 + error);
        assert!((interval.low - low).abs() < 0.08 && (interval.high - high).abs() < 0.08, "{interval:?}");
        assert_eq!(interval, bootstrap(values.len(), 7, &mean));
        let same = bootstrap(5, 1, &|_| 3.0);
        assert_eq!(same, Interval { low: 3.0, high: 3.0 });
    }
}
