//! An engine that gives its devices all that they take.

use duet_engine::{Engine, EngineConfig};
use duet_model::Model;
use std::sync::Arc;

/// An engine that takes its devices for far quicker than its cores, those that attend among them.
pub(crate) fn preferring_devices(model: &Arc<Model>, config: &EngineConfig) -> Engine {
    let folder = tempfile::tempdir().unwrap();
    let config = EngineConfig { profile_folder: Some(folder.path().to_owned()), ..config.clone() };
    drop(Engine::start(Arc::clone(model), config.clone()).unwrap());
    duet_testing::prefer_devices(folder.path());
    if config.devices.iter().any(|device| device.attention.is_some()) {
        duet_testing::attend_on_devices(folder.path());
    }
    Engine::start(Arc::clone(model), config).unwrap()
}
