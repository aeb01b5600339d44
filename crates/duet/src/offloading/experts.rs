//! Placing a model that has experts: in groups, by what `duet calibrate` counted.

use super::{DeviceSpec, ShapesName, Wanted, cache, told};
use crate::bad_input::BadInput;
use crate::progress::eprintln_quiet;
use duet_model::Model;
use duet_offload::{ExpertSettings, GraphUse, PlacedExperts, expert_file, read_experts};
use duet_runtimes::GraphDevice;
use duet_types::Bytes;
use std::path::Path;
use std::sync::Arc;

/// Compiles projections, the head and groups of experts for the device, or takes their graphs from the cache.
pub(super) fn placed(
    model: &Arc<Model>,
    spec: &DeviceSpec,
    device: Arc<dyn GraphDevice>,
    wanted: &Wanted,
) -> anyhow::Result<PlacedExperts> {
    let name = &spec.device;
    if spec.shapes == Some(ShapesName::Fixed) {
        let text =
            format!("--device {spec}: experts have groups of fixed shapes of their own: leave `shapes=fixed` out");
        return Err(BadInput(text).into());
    }
    let counts = wanted.model_path.as_deref().and_then(|path| counts(path, model));
    let settings = ExpertSettings {
        memory: spec.graph_memory.or(wanted.graph_memory).unwrap_or(Bytes(u64::MAX)),
        threads: wanted.threads,
        chunk: wanted.chunk,
        ..wanted.experts
    };
    let cache = cache(model, &*device, wanted.graph_cache, GraphUse::Resident)?;
    let target = (device, cache);
    told(name, || PlacedExperts::ready_on(model, target, counts.as_ref(), settings, &mut |_| {}))
}

/// A dense model has nothing that these could say anything about.
pub(super) fn refuse_settings(settings: &ExpertSettings) -> Result<(), BadInput> {
    if *settings == ExpertSettings::default() {
        return Ok(());
    }
    let flags = "--expert-scheme and --expert-overflow";
    Err(BadInput(format!("{flags} are for models with experts, and this one is dense: leave them out")))
}

/// What was counted of this model; the person is told where there is nothing.
fn counts(path: &Path, model: &Model) -> Option<duet_moe::Calibration> {
    let counts = read_experts(&expert_file(path), model);
    if counts.is_none() {
        let shown = path.display();
        eprintln_quiet(&format!(
            "warning: all experts are taken as equally busy; `duet calibrate {shown} --data FILE` counts how busy they are"
        ));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_moe::Overflow;
    use duet_offload::ExpertScheme;

    #[test]
    fn a_dense_model_is_asked_for_nothing_of_experts() {
        let usual = ExpertSettings::default();
        assert!(refuse_settings(&usual).is_ok());
        for asked in [
            ExpertSettings { scheme: ExpertScheme::Naive, ..usual },
            ExpertSettings { overflow: Overflow::Prune, ..usual },
        ] {
            assert!(refuse_settings(&asked).unwrap_err().0.contains("--expert-scheme"));
        }
    }
}
