//! How weights are fetched is taken from a machine's profile. Alone in its file, since a process has one choice.

use duet_engine::profile::{FirstProfile, Profiler};
use duet_engine::{Engine, EngineConfig};
use duet_kernels::read_ahead::ReadAhead;
use duet_model::Model;
use std::path::Path;
use std::sync::Arc;

#[test]
fn an_engine_reads_as_its_profile_says_and_without_one_as_its_processor_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures/golden_llama.gguf");
    let model = Arc::new(Model::load(&path, &duet_model::LoadOptions::default(), &mut |_| {}).unwrap());
    let (measured, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = |folder: &Path| {
        let config = EngineConfig {
            threads: Some(1),
            profile_folder: Some(folder.to_owned()),
            first_profile: FirstProfile::Estimated,
            ..EngineConfig::default()
        };
        Engine::start(Arc::clone(&model), config).unwrap()
    };
    let one = EngineConfig { threads: Some(1), ..EngineConfig::default() };
    Profiler::start(Arc::clone(&model), &one).unwrap().measure_first(measured.path()).unwrap();
    duet_testing::settle(measured.path());
    let found = ReadAhead::current();
    let file = std::fs::read_dir(measured.path()).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(&found.to_string()), "{found}: {text}");
    for way in ReadAhead::ALL {
        std::fs::write(&file, text.replace(&found.to_string(), &way.to_string())).unwrap();
        assert!(!start(measured.path()).is_estimated(), "{way}");
        assert_eq!(ReadAhead::current(), way);
        assert!(start(empty.path()).is_estimated());
        assert_eq!(ReadAhead::current(), ReadAhead::of_processor());
    }
}
