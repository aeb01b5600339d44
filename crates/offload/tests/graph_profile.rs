//! A small model's graphs, measured on OpenVINO's CPU device. Skipped, with a word, where there is no runtime.

use duet_model::{LoadOptions, Model};
use duet_offload::switching::{
    Demand, GraphBudget, GraphProfile, GraphProfileError, GraphSubject, Measuring, Placement, Swept,
};
use duet_openvino::{Activations, CompileOptions, Runtime};
use duet_runtimes::BlobCache;
use duet_types::{Bytes, Nanos, Tokens};
use std::path::Path;
use std::sync::Arc;

fn model() -> Arc<Model> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
    Arc::new(Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap())
}

fn placement(folder: &Path) -> Option<Placement> {
    let runtime = duet_testing::loaded(Runtime::load())?;
    let device = runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED));
    Some(Placement { device: Arc::new(device), cache: BlobCache::new(folder.to_owned(), Bytes(1 << 30)) })
}

fn measuring(rows: &[u32]) -> Measuring {
    Measuring { rows: rows.iter().copied().map(Tokens).collect(), samples: 2, ..Measuring::default() }
}

#[test]
fn every_shape_is_measured_and_the_choice_makes_blocks() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let Some(placement) = placement(folder.path()) else { return };
    let demand = Demand::mixed(model.config().context, GraphBudget::SetAndATenth);
    // Longer than its context, of no rows, twice: left out.
    let measuring = measuring(&[64, 16, 0, 16, 1 << 20, 32]);
    let measured = GraphProfile::measure(&model, &placement, &measuring, demand.clone(), &mut |_| {});
    let Swept { profile, choice } = measured.unwrap();
    let costs = profile.costs();
    assert_eq!(costs.shapes().iter().map(|shape| shape.rows.0).collect::<Vec<_>>(), [16, 32, 64]);
    assert_eq!((costs.layers(), costs.measured()), (model.config().layers, model.config().layers.min(3)));
    for shape in costs.shapes() {
        assert!(shape.pass.empty > Nanos::ZERO && shape.load.per_layer > Nanos::ZERO, "{shape:?}");
        assert!(shape.bytes > Bytes::ZERO && shape.compile > Nanos::ZERO, "{shape:?}");
        assert_eq!(shape.samples, 2);
    }
    assert_eq!(profile.blocks().count(), choice.best.candidate.blocks);
    // Kept, it is not measured again; for another demand it is chosen again of the same costs.
    let kept = tempfile::tempdir().unwrap();
    profile.save(kept.path()).unwrap();
    let again = |demand| GraphProfile::load_or_measure(Some(kept.path()), &model, &placement, demand, &mut |_| {});
    assert_eq!(again(demand.clone()).unwrap(), profile);
    let other = again(Demand { budget: GraphBudget::Bytes(Bytes(1 << 40)), ..demand }).unwrap();
    assert_eq!(other.costs(), profile.costs());
    let subject = GraphSubject::of(&model, &*placement.device);
    assert_eq!(GraphProfile::load(kept.path(), &subject), Some(other));
}

#[test]
fn what_cannot_be_chosen_is_said() {
    let (model, folder) = (model(), tempfile::tempdir().unwrap());
    let Some(placement) = placement(folder.path()) else { return };
    let measure = |rows: &[u32], budget| {
        let demand = Demand::mixed(model.config().context, budget);
        GraphProfile::measure(&model, &placement, &measuring(rows), demand, &mut |_| {}).unwrap_err()
    };
    assert!(matches!(measure(&[16, 16], GraphBudget::SetAndATenth), GraphProfileError::Shapes(_)));
    let error = measure(&[16, 32], GraphBudget::Bytes(Bytes(1)));
    assert!(error.to_string().contains("1 B"), "{error}");
}
