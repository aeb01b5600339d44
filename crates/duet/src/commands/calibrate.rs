//! `duet calibrate`: which experts prompts go to, and whether others go to the same.

use crate::bad_input::BadInput;
use crate::cli::CalibrateArgs;
use crate::failure::{data_error, print};
use crate::progress::eprintln_quiet;
use crate::{models, session};
use anyhow::Context;
use duet_bench::load::{self, spread};
use duet_model::Model;
use duet_moe::{Calibration, LayerCounts};
use duet_offload::{RoutingError, calibrate_experts, expert_file, write_experts};
use duet_types::Tokens;
use serde::Serialize;
use std::path::PathBuf;

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    experts: usize,
    top_k: u32,
    /// That were counted.
    tokens: u64,
    layers: Vec<LayerReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<Against>,
    file: PathBuf,
}

/// How unevenly a layer's experts are used.
#[derive(Debug, Serialize)]
struct LayerReport {
    layer: usize,
    /// The busiest expert's tokens over the mean.
    imbalance: f64,
    /// Part of all tokens that the four busiest experts have; absent where there are no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    share_top_4: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share_top_8: Option<f64>,
    /// Busiest first.
    popularity: Vec<u32>,
}

/// Whether other prompts go to the same experts.
#[derive(Debug, Serialize)]
struct Against {
    tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap_4: Option<Overlap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap_8: Option<Overlap>,
}

/// How many of the busiest experts are the busiest there as well.
#[derive(Debug, Serialize)]
struct Overlap {
    mean: f64,
    median: f64,
    /// What choosing experts blindly would come to.
    by_chance: f64,
    layers: Vec<f64>,
}

pub(super) fn calibrate(arguments: &CalibrateArgs) -> anyhow::Result<()> {
    let path = models::locate(&arguments.model)?;
    let threads = arguments.threads.map(u16::from);
    let model = session::open_to_read(&arguments.model, threads, arguments.expert_memory)?;
    if model.blueprint().experts.is_none() {
        let name = &arguments.model;
        let advice = "calibrate one with experts, or make one of it with `duet moefy`";
        return Err(BadInput(format!("{name} is a dense model: it has no experts to count; {advice}")).into());
    }
    let file = arguments.output.clone().unwrap_or_else(|| expert_file(&path));
    if file.canonicalize().ok().is_some_and(|file| path.canonicalize().is_ok_and(|path| path == file)) {
        return Err(BadInput(format!("--output {}: this is the model itself", file.display())).into());
    }
    let calibration = count(arguments, &model, "--data", &arguments.data)?;
    let against = match arguments.against.as_slice() {
        [] => None,
        files => Some(against(&calibration, &count(arguments, &model, "--against", files)?)?),
    };
    write_experts(&file, &model, &calibration).with_context(|| format!("--output {}", file.display()))?;
    let report = Report {
        experts: calibration.experts(),
        top_k: calibration.chosen(),
        tokens: calibration.tokens().0,
        layers: with_experts(&calibration).map(layer_report).collect(),
        against,
        file,
    };
    if arguments.json {
        return print(&(serde_json::to_string(&report)? + "\n"));
    }
    print(&page(&report))
}

/// Counts on the prompts of some files.
fn count(
    arguments: &CalibrateArgs,
    model: &Model,
    flag: &'static str,
    files: &[PathBuf],
) -> anyhow::Result<Calibration> {
    let texts = load::texts(model, files, TEXT_LENGTH).map_err(|error| data_error(flag, error))?;
    let texts = spread(texts.into_iter(), arguments.tokens as usize);
    let all: usize = texts.iter().map(Vec::len).sum();
    let threads = arguments.threads.map(|threads| usize::from(threads.get()));
    let threads = threads.unwrap_or_else(|| duet_device::available_cores().len());
    let mut told = 0;
    let calibration = calibrate_experts(model, &texts, threads, &mut |read| {
        if read.as_usize() * TOLD / all.max(1) > told {
            told = read.as_usize() * TOLD / all.max(1);
            eprintln_quiet(&format!("{flag}: {read} of {all} tokens"));
        }
    });
    calibration.map_err(|error| match error {
        RoutingError::NoText => BadInput(format!("{flag}: there is no prompt to count on")).into(),
        other => other.into(),
    })
}

/// Tokens of a prompt at most: so that one long one is not all there is.
const TEXT_LENGTH: Tokens = Tokens(1024);
/// How often progress is told.
const TOLD: usize = 8;

/// Some models' first layers have none.
fn with_experts(calibration: &Calibration) -> impl Iterator<Item = (usize, &LayerCounts)> {
    calibration.layers().iter().enumerate().filter(|(_, counts)| counts.has_experts())
}

fn layer_report((layer, counts): (usize, &LayerCounts)) -> LayerReport {
    let share = |count| (counts.loads().len() > count).then(|| counts.busiest_share(count));
    LayerReport {
        layer,
        imbalance: counts.imbalance(),
        share_top_4: share(4),
        share_top_8: share(8),
        popularity: counts.popularity().into_iter().map(|expert| expert.0).collect(),
    }
}

fn against(calibration: &Calibration, other: &Calibration) -> anyhow::Result<Against> {
    let overlap = |k: usize| -> anyhow::Result<Option<Overlap>> {
        // All of all experts are always the same ones.
        if calibration.experts() <= k {
            return Ok(None);
        }
        let layers = calibration.overlap(other, k)?;
        let by_chance = k as f64 / calibration.experts() as f64;
        Ok(Some(Overlap { mean: mean(&layers), median: median(&layers), by_chance, layers }))
    };
    Ok(Against { tokens: other.tokens().0, overlap_4: overlap(4)?, overlap_8: overlap(8)? })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Of an even number, half way between the middle two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = |at: usize| sorted.get(at).copied().unwrap_or(0.0);
    (middle(sorted.len().saturating_sub(1) / 2) + middle(sorted.len() / 2)) / 2.0
}

fn page(report: &Report) -> String {
    let percent =
        |share: Option<f64>| share.map_or_else(|| "      -".to_owned(), |share| format!("{:>5.1} %", 100.0 * share));
    let mut page = "layer  imbalance    top 4    top 8  busiest\n".to_owned();
    for layer in &report.layers {
        let busiest: Vec<String> = layer.popularity.iter().take(8).map(u32::to_string).collect();
        page += &format!(
            "{:>5}  {:>9.2}  {}  {}  {}\n",
            layer.layer,
            layer.imbalance,
            percent(layer.share_top_4),
            percent(layer.share_top_8),
            busiest.join(" "),
        );
    }
    let imbalances: Vec<f64> = report.layers.iter().map(|layer| layer.imbalance).collect();
    page += &format!(
        "\n{} experts, {} a token, {} tokens counted; imbalance {:.2} in the mean\n",
        report.experts,
        report.top_k,
        report.tokens,
        mean(&imbalances),
    );
    if let Some(against) = &report.against {
        page += &against_page(against);
    }
    page + &format!("written to {}\n", report.file.display())
}

fn against_page(against: &Against) -> String {
    let mut page = format!("against {} tokens of other prompts:\n", against.tokens);
    for (k, overlap) in [(4, &against.overlap_4), (8, &against.overlap_8)] {
        let Some(Overlap { mean, median, by_chance, .. }) = overlap else { continue };
        let [mean, median, by_chance] = [mean, median, by_chance].map(|share| 100.0 * share);
        page += &format!("  Overlap@{k}  {mean:.1} % (median layer {median:.1} %; by chance {by_chance:.1} %)\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_moe::Load;

    fn calibration(loads: [u64; 6]) -> Calibration {
        let tokens = Load(loads.iter().sum::<u64>() / 2);
        Calibration::new(2, tokens, vec![LayerCounts::of(loads.map(Load).to_vec())]).unwrap()
    }

    #[test]
    fn overlap_with_all_experts_is_no_figure() {
        let found = against(&calibration([5, 4, 3, 2, 1, 1]), &calibration([1, 1, 2, 3, 4, 5])).unwrap();
        let overlap = found.overlap_4.unwrap();
        assert_eq!((overlap.mean, overlap.layers), (0.5, vec![0.5]));
        assert!((overlap.by_chance - 4.0 / 6.0).abs() < 1e-12);
        assert!(found.overlap_8.is_none());
    }

    #[test]
    fn the_median_layer_is_between_the_middle_two() {
        assert_eq!(median(&[0.25, 1.0, 0.5]), 0.5);
        assert_eq!(median(&[1.0, 0.25, 0.5, 0.75]), 0.625);
    }
}
