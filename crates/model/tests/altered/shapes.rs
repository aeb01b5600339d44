//! Tensors of other shapes than a model's settings say: an error that names the tensor, or a model that runs. Never a panic.

use crate::parts::{MODELS, PartTensor, Parts};

/// Shapes near one that is right.
fn near(shape: &[u64]) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    for place in 0..shape.len() {
        for len in [shape[place] + 1, shape[place] - 1, shape[place] * 2] {
            let mut other = shape.to_vec();
            other[place] = len;
            all.push(other);
        }
    }
    all.push(shape.iter().rev().copied().collect());
    all.push(shape[1..].to_vec());
    all.push(shape[..shape.len() - 1].to_vec());
    all.push([shape, &[2]].concat());
    all.push([&[2], shape].concat());
    all.retain(|other| other != shape && (1..=4).contains(&other.len()) && !other.contains(&0));
    all
}

/// The factors of the longer of two ropes, of which the shorter is taken.
const UNREAD: &str = "rope_factors_long.weight";

/// Loads the model without a tensor, and with each shape near its own.
fn alter(parts: &Parts, index: usize) {
    let mut without = parts.clone();
    let PartTensor { name, shape, .. } = without.tensors.remove(index);
    if let Err(error) = without.load_and_run() {
        assert!(error.contains(&format!("`{name}`")), "without {name}: {error}");
    }
    for other in near(&shape) {
        let mut altered = parts.clone();
        altered.tensors[index] = PartTensor::floats(&name, &other);
        if let Err(error) = altered.load_and_run() {
            // Of the embeddings, the tokens are counted, and other tensors have as many.
            let named = error.contains(&format!("`{name}`")) || name == "token_embd.weight";
            assert!(named, "{name} as {other:?}: {error}");
        } else {
            let elements = |shape: &[u64]| shape.iter().product::<u64>();
            let same = elements(&other) == elements(&shape) || ["token_embd.weight", UNREAD].contains(&name.as_str());
            assert!(same, "{name} was taken as {other:?}, it has {shape:?}");
        }
    }
}

/// Layers are read by the same code: the first speaks for all.
fn alter_all(name: &str) {
    let mut parts = Parts::of(name);
    parts.load_and_run().unwrap();
    if !parts.tensors.iter().any(|tensor| tensor.name == "output.weight") {
        // Tied: the embeddings are the head, and what it checks is checked of them.
        each(&parts);
        let embeddings = parts.tensors.iter().find(|tensor| tensor.name == "token_embd.weight").unwrap();
        let head = embeddings.clone().named("output.weight");
        parts.tensors.push(head);
        parts.load_and_run().unwrap();
    }
    each(&parts);
}

fn each(parts: &Parts) {
    for (index, tensor) in parts.tensors.iter().enumerate() {
        if !tensor.name.starts_with("blk.") || tensor.name.starts_with("blk.0.") {
            alter(parts, index);
        }
    }
}

macro_rules! alter_all {
    ($($test:ident: $first:literal..$end:literal;)+) => {
        $(#[test]
        fn $test() {
            MODELS[$first..$end].iter().for_each(|name| alter_all(name));
        })+
    };
}

alter_all! {
    llama: 0..3;
    qwen2_and_3: 3..5;
    gemma3: 5..6;
    mixtral_and_olmoe: 6..8;
    qwen_2_moe: 8..9;
    qwen_3_moe: 9..10;
    phi_moe: 10..11;
    phi_moe_with_longrope: 11..12;
    gemma4: 22..24;
    gemma4_with_experts: 24..25;
}

/// A head of its own leaves the embeddings' width to them alone.
#[test]
fn embeddings_of_another_width_than_the_model_s_are_refused() {
    let mut parts = Parts::of("llama");
    let at = |parts: &Parts, name: &str| parts.tensors.iter().position(|tensor| tensor.name == name);
    let index = at(&parts, "token_embd.weight").unwrap();
    let [hidden, vocabulary] = parts.tensors[index].shape[..] else { panic!("a matrix") };
    if at(&parts, "output.weight").is_none() {
        parts.tensors.push(PartTensor::floats("output.weight", &[hidden, vocabulary]));
    }
    parts.tensors[index] = PartTensor::floats("token_embd.weight", &[hidden + 1, vocabulary]);
    let (other, right) = ([hidden + 1, vocabulary], [hidden, vocabulary]);
    assert_eq!(
        parts.load_and_run().unwrap_err(),
        format!("tensor `token_embd.weight` has shape {other:?} where {right:?} is expected")
    );
}
