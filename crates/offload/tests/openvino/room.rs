//! The room that the cache is given, beside what graphs take there.

use crate::common::runtime;
use duet_model::{LoadOptions, Model};
use duet_offload::switching::{LayerShelf, Placement};
use duet_offload::{GraphRoom, GraphUse, OffloadError};
use duet_openvino::{Activations, CompileOptions};
use duet_runtimes::{BlobCache, GraphDevice};
use duet_types::{Bytes, Tokens};
use std::sync::Arc;

/// A layer of a real model in two shapes: what the cache may take holds them, and is not many times as much.
#[test]
fn what_is_reserved_holds_the_graphs() {
    let Some(path) = duet_testing::path(duet_testing::Need::Model) else { return };
    let Some(runtime) = runtime() else { return };
    let model = Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap());
    let options = CompileOptions::of_blocks(1, Activations::ROUNDED);
    let rows = [Tokens(32), Tokens(256)];
    for device in [runtime.device("CPU").unwrap(), runtime.npu_front_end_on_cpu()] {
        let device: Arc<dyn GraphDevice> = Arc::new(device.with_options(options));
        let room = GraphRoom::of(&model, &device.rules(), GraphUse::Exchanged).unwrap();
        let name = device.info().name.clone();
        let folder = tempfile::tempdir().unwrap();
        let placement = Placement { device, cache: BlobCache::new(folder.path().to_owned(), Bytes(1 << 30)) };
        let shelf = LayerShelf::fill(&model, placement, 1, &rows, &mut |_| {}).unwrap();
        let layers = model.config().layers as u64;
        let taken = rows.map(|rows| shelf.bytes(0..1, rows).0 * layers).iter().sum::<u64>();
        println!("{name}: {} of {} with the head, {} in all", Bytes(taken), room.loaded, room.all);
        assert!(room.loaded.0 > taken, "{name}: {taken} of {:?}", room.loaded);
        assert!(room.loaded.0 < 3 * taken, "{name}: {taken} of {:?}", room.loaded);
        assert!(room.all > room.loaded);
    }
}

#[test]
fn too_little_room_is_refused_with_what_is_needed() {
    let rules = duet_graphs::LayoutRules::FREE;
    let room = GraphRoom::of(&model("llama"), &rules, GraphUse::Exchanged).unwrap();
    assert!(room.loaded > Bytes::ZERO, "blocks come and go");
    assert_eq!(room.limit(None).unwrap(), Bytes(4 << 30), "never less than it was");
    assert_eq!(room.limit(Some(room.loaded)).unwrap(), room.loaded);
    let asked = Bytes(room.loaded.0 - 1);
    let refused = room.limit(Some(asked)).unwrap_err();
    assert!(matches!(refused, OffloadError::CacheTooSmall { needed, .. } if needed == room.loaded), "{refused}");
    assert!(refused.to_string().contains(&room.loaded.to_string()), "{refused}");
}

#[test]
fn groups_of_experts_make_do_with_any_room_and_have_all_they_need_unless_it_is_asked_for() {
    let room = GraphRoom::of(&model("mixtral"), &duet_graphs::LayoutRules::FREE, GraphUse::Resident).unwrap();
    assert_eq!(room.limit(Some(Bytes(1000))).unwrap(), Bytes(1000));
    assert!(room.all > Bytes::ZERO && room.limit(None).unwrap() >= room.all);
}

fn model(name: &str) -> Model {
    let path = format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
    Model::load(path.as_ref(), &LoadOptions::default(), &mut |_| {}).unwrap()
}
