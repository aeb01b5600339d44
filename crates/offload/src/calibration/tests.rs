use super::*;
use crate::layers::layer_blocks;
use duet_graphs::WeightRule;
use duet_model::LoadOptions;
use std::path::Path;

fn load(name: &str) -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    Model::load(&folder.join(format!("golden_{name}.gguf")), &LoadOptions::default(), &mut |_| {}).unwrap()
}

#[test]
fn every_block_is_seen_once_a_text_and_its_ranges_hold_what_it_was_given() {
    let model = load("llama");
    let (seen, layers) = (Seen::of(&model).unwrap(), model.config().layers);
    let hidden = model.blueprint().hidden;
    assert_eq!(seen.layers.len(), layers);
    assert!(seen.rows > TEXTS.len());
    for layer in 0..layers {
        let blocks = layer_blocks(&model, layer, WeightRule::PerOutput).unwrap();
        let ranges = seen.qkv(layer, &blocks.qkv).unwrap();
        let residual = Range::of(&seen.layers[layer].qkv);
        assert!(residual.most() > 0.0 && residual.least() < 0.0);
        assert_eq!(ranges.values()[0].most(), MARGIN * residual.most());
        assert_eq!(seen.feed_forward(layer, &blocks.feed_forward).unwrap().values().len(), 11);
        assert_eq!(seen.layers[layer].qkv.len(), seen.rows * hidden);
    }
    assert_eq!(seen.head.len(), seen.rows * hidden);
}

/// What one text does not show another does: ranges are those of all, and none is narrower than any text's.
#[test]
fn ranges_are_united_over_the_texts() {
    let model = load("llama");
    let blocks = layer_blocks(&model, 0, WeightRule::PerOutput).unwrap();
    let ranges = |texts: &[&str]| {
        let seen = Seen::of_texts(&model, texts, ROWS_MAX).unwrap();
        seen.feed_forward(0, &blocks.feed_forward).unwrap()
    };
    let all = ranges(&TEXTS);
    let united = TEXTS[1..].iter().fold(ranges(&TEXTS[..1]), |united, &text| united.and(&ranges(&[text])));
    assert_eq!(all, united);
    assert!(TEXTS.iter().all(|&text| ranges(&[text]) != all), "one text alone would have done");
}

#[test]
fn experts_are_seen_where_their_router_sends_rows() {
    for name in ["mixtral", "qwen2moe", "phimoe"] {
        let model = load(name);
        let (seen, plan) = (Seen::of(&model).unwrap(), model.blueprint().experts.unwrap());
        let places = plan.chosen + usize::from(plan.shared.is_some());
        assert_eq!(seen.layers.len(), model.config().layers, "{name}");
        for layer in &seen.layers {
            let SeenExperts { normed, routes } = &layer.experts;
            assert_eq!((normed.len(), routes.len()), (seen.rows * model.blueprint().hidden, seen.rows), "{name}");
            assert!(routes.iter().all(|route| route.len() == places), "{name}");
            assert_eq!(layer.attended[1].len(), normed.len(), "{name}: the output projection is seen, too");
        }
    }
}

#[test]
fn an_expert_is_run_on_its_own_rows_and_a_few_of_all() {
    let routes: Vec<Vec<u32>> = (0..100).map(|row| vec![if row % 3 == 0 { 1 } else { 2 }]).collect();
    let rows = expert_rows(&routes, 1);
    assert_eq!(rows.iter().filter(|row| *row % 3 == 0).count().min(EXPERT_ROWS), EXPERT_ROWS);
    let unseen = expert_rows(&routes, 9);
    assert!((1..=EXPERT_ROWS / 2).contains(&unseen.len()), "{unseen:?}");
    assert!(unseen.last() > Some(&80), "{unseen:?}");
    assert!(expert_rows(&[], 1).is_empty());
}
