//! Weights that a device has in groups are the file's own, and it rounds as the CPU's kernels do; a processor without
//! instructions for products of bytes rounds nothing.

use crate::common::{furthest, logits, runtime};
use crate::requantised::{Blocks, requantised};
use duet_model::gguf::TensorType;
use duet_model::gguf::writer::quantise;
use duet_offload::PlacedModel;
use duet_openvino::{Activations, CompileOptions};

/// Relative to the largest logit: sums of single precision in another order. One that tips an activation to the next of 255
/// steps would be a thousandth, and one scale per output a hundredth.
const TOLERANCE: f32 = 1e-5;

/// What rounding activations costs here. Groups with minima may differ by as much: the device multiplies minima with sums of
/// inputs that are not rounded, which tips activations of the products after it.
const ROUNDING: f32 = 0.03;

#[test]
fn groups_of_a_file_come_to_what_the_kernels_make_of_them() {
    let Some(runtime) = runtime() else { return };
    let kinds: [(TensorType, Blocks, f32); 3] = [
        (TensorType::Q4_0, quantise::q4_0, TOLERANCE),
        (TensorType::Q4_1, quantise::q4_1, ROUNDING),
        (TensorType::Q8_0, quantise::q8_0, TOLERANCE),
    ];
    for (kind, blocks, tolerance) in kinds {
        let folder = tempfile::tempdir().unwrap();
        let model = requantised(kind, blocks, folder.path());
        let device = runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::ROUNDED));
        let placed = PlacedModel::ready_on(&model, &device, None, &mut |_| {}).unwrap();
        let native = logits(&model, None).unwrap();
        let rounded = logits(&model, Some(&placed)).unwrap();
        let device = runtime.device("CPU").unwrap().with_options(CompileOptions::of_blocks(1, Activations::Floats));
        let exact = PlacedModel::ready_on(&model, &device, None, &mut |_| {}).unwrap();
        let exact = logits(&model, Some(&exact)).unwrap();
        let (reference, tolerance) =
            if duet_testing::multiplies_bytes() { (&native, tolerance) } else { (&exact, TOLERANCE) };
        let worst = furthest(&rounded, reference);
        assert!(worst < tolerance, "{}: off by {worst}", kind.name());
        let rounding = furthest(&exact, &native);
        assert!((TOLERANCE..ROUNDING).contains(&rounding), "{}: rounding costs {rounding}", kind.name());
    }
}
