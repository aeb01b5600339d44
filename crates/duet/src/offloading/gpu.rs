//! A model on a GPU, by kernels of duet's own.

use super::{DeviceSpec, Wanted, experts};
use crate::bad_input::BadInput;
use crate::progress::Progress;
use duet_engine::Device;
use duet_gpu::{Adapter, Adapters, GpuError, GpuModel, Verdict};
use duet_model::Model;
use duet_model::forward::TokenWise;
use duet_openvino::Activations;
use duet_types::Bytes;
use std::sync::Arc;

/// The GPUs that nobody has to name: programs on the processor are not among them.
pub(super) fn working() -> Vec<String> {
    let found = Adapters::look();
    let used = found.all().iter().filter(|adapter| adapter.verdict == Verdict::Used);
    used.filter(|adapter| passes(adapter)).map(|adapter| adapter.name.clone()).collect()
}

fn passes(adapter: &Adapter) -> bool {
    let tried = duet_gpu::self_test(adapter);
    if let Err(error) = &tried {
        tracing::warn!(device = %adapter.name, %error, "a device is left out: it fails its self-test");
    }
    tried.is_ok()
}

/// Whether a GPU reads a model's weights where the cores have them, if they lie in memory of the process's own. For one that may hold
/// so much and no more they are not brought there.
pub(super) fn shares_weights(model: &Model, spec: &DeviceSpec, name: &str) -> bool {
    spec.memory.is_none() && Adapters::look().named(name).is_ok_and(|adapter| duet_gpu::shares_weights(model, adapter))
}

/// A GPU's driver: what was measured of another one says nothing of it.
pub(super) fn identity(name: &str) -> anyhow::Result<String> {
    Ok(identity_of(Adapters::look().named(name)?))
}

fn identity_of(adapter: &Adapter) -> String {
    format!("{}, {}, {}", adapter.full_name, adapter.driver, adapter.interface)
}

/// Brings the model to the GPU.
pub(super) fn placed(model: &Arc<Model>, spec: &DeviceSpec, name: &str, wanted: &Wanted) -> anyhow::Result<Device> {
    spec.check()?;
    if wanted.graph_memory.is_some() {
        return Err(BadInput(format!("--device {spec}: a GPU compiles no graphs: leave --graph-memory out")).into());
    }
    if model.blueprint().experts.is_none() {
        experts::refuse_settings(&wanted.experts)?;
    }
    let (adapter, model) = brought(model, name, spec.memory)?;
    let nodes = Arc::new(model);
    let spans = Some(Arc::clone(&nodes) as _);
    // One that holds all has nothing to be planned.
    let layers = (!nodes.holds_all()).then(|| Arc::clone(&nodes) as _);
    Ok(Device { spans, layers, ..Device::new(spec.label(), identity_of(&adapter), nodes) })
}

/// The model there, if it is to round activations as it does.
pub(super) fn rounding(model: &Arc<Model>, name: &str, activations: Activations) -> anyhow::Result<Arc<dyn TokenWise>> {
    if activations != Activations::ROUNDED {
        let text = "a GPU rounds activations as the cores do: `duet bench quality` compares it with exact values";
        return Err(BadInput(format!("--device {name}: {text}")).into());
    }
    Ok(Arc::new(brought(model, name, None)?.1))
}

fn brought(model: &Arc<Model>, name: &str, memory: Option<Bytes>) -> anyhow::Result<(Adapter, GpuModel)> {
    let told = |error: GpuError| match error {
        GpuError::Unknown { .. } | GpuError::Unusable { .. } | GpuError::NoRoom { .. } => {
            BadInput(format!("--device {name}: {error}")).into()
        }
        other => anyhow::Error::new(other).context(name.to_owned()),
    };
    let found = Adapters::look();
    let adapter = found.named(name).map_err(told)?;
    let progress = Progress::spinner("bringing", &format!("weights to {name}"));
    let model = GpuModel::within(Arc::clone(model), adapter, memory).map_err(told)?;
    progress.finish("brought");
    let (copied, shared) = (model.bytes(), model.shared_bytes());
    tracing::info!(device = name, %copied, %shared, "a GPU has its weights");
    Ok((adapter.clone(), model))
}
