//! Plans against the best plan, on the random problems of [`crate::optimality`]. No device takes part: planners are
//! compared on the same costs.

use super::line::{Line, RatioLine};
use crate::optimality::{PLANNERS, PROBLEMS, ratios};
use duet_sim::percentile;

pub(super) fn measure(tell: &mut dyn FnMut(Line)) {
    let all: Vec<[f64; PLANNERS.len()]> = (0..PROBLEMS).filter_map(ratios).collect();
    for (at, (name, _)) in PLANNERS.iter().enumerate() {
        let mut each: Vec<f64> = all.iter().map(|ratios| ratios[at]).collect();
        each.sort_by(f64::total_cmp);
        let share = |share| percentile(&each, share);
        let line = share(0.5).zip(share(0.1)).zip(share(0.9)).zip(each.last());
        if let Some((((ratio_p50, ratio_p10), ratio_p90), &ratio_max)) = line {
            let setting = format!("plans, {name}");
            tell(Line::Ratio(RatioLine { setting, n: each.len(), ratio_p10, ratio_p50, ratio_p90, ratio_max }));
        }
    }
}
