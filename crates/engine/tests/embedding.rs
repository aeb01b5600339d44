//! Embeddings of the real model, against its reader in plain floats. `DUET_TEST_MODEL` is the path of a GGUF file; without
//! it this is skipped.

use duet_engine::{Engine, EngineConfig, GenerateRequest, GenerationEvent, Output};
use duet_model::exact::{ExactReader, Rounding};
use duet_model::tokenizer::SpecialTokens;
use duet_model::{LoadOptions, Model};
use duet_testing::Need;
use duet_types::{Class, TokenId, Tokens};
use std::sync::Arc;

const TEXT: &str = "The old lighthouse keeper had counted ships for forty years.";

fn embed(engine: &Engine, prompt: &[TokenId], class: Class) -> Vec<f32> {
    let request = GenerateRequest { prompt: prompt.to_vec(), class, output: Output::Embedding, ..Default::default() };
    let mut generation = engine.submit(request).unwrap();
    let mut embedding = None;
    while let Some(event) = generation.next_blocking() {
        match event {
            GenerationEvent::Embedding(values) => embedding = Some(values),
            GenerationEvent::Finished { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    embedding.unwrap()
}

#[test]
fn it_is_the_readers_mean_and_the_same_under_load() {
    let Some(path) = duet_testing::path(Need::Model) else { return };
    let model = Arc::new(Model::load(&path, &LoadOptions::default(), &mut |_| {}).unwrap());
    let profiles = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        context: Some(Tokens(640)),
        profile_folder: Some(profiles.path().to_owned()),
        ..EngineConfig::default()
    };
    let engine = Engine::start(Arc::clone(&model), config).unwrap();
    let tokens = model.tokenizer().encode(TEXT, SpecialTokens::AsText);
    let embedding = embed(&engine, &tokens, Class::Reactive);
    assert!((embedding.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);

    let reader = ExactReader::open(&path, Rounding::None).unwrap();
    let hidden = reader.hidden(&tokens, &(0..tokens.len()).collect::<Vec<_>>()).unwrap();
    let mut mean = vec![0.0_f64; embedding.len()];
    for row in hidden.chunks_exact(mean.len()) {
        mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += f64::from(*x));
    }
    let length = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
    let cosine: f64 = mean.iter().zip(&embedding).map(|(a, b)| a / length * f64::from(*b)).sum();
    eprintln!("cosine to the reader's: {cosine:.6}");
    // Measured of SmolLM2-135M-Instruct in Q4_1: 0.99984.
    assert!(cosine > 0.999, "{cosine}");

    // Longer than a chunk, so that they are pre-empted and cut.
    let long: Vec<TokenId> = tokens.iter().copied().cycle().take(500).collect();
    let alone = embed(&engine, &long, Class::Proactive);
    std::thread::scope(|scope| {
        let background: Vec<_> = (0..3).map(|_| scope.spawn(|| embed(&engine, &long, Class::Proactive))).collect();
        let person = embed(&engine, &tokens, Class::Reactive);
        assert_eq!(person, embedding);
        background.into_iter().for_each(|embedded| assert_eq!(embedded.join().unwrap(), alone));
    });
}
