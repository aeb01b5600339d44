//! A real device as those who know no toolchain see it: in the cache, and failing by a plan.

use super::{cpu, exact};
use crate::matmul::MatMul;
use duet_runtimes::product::{reference, whole_numbers};
use duet_runtimes::{
    BlobCache, BlobKey, BlobSource, Buffer, Digest, Emitted, Error, FaultPlan, FaultyDevice, Graph, GraphDevice,
    Origin, Tensors,
};
use duet_types::{Bytes, Nanos};
use std::sync::Arc;

const INPUTS: usize = 4;
const OUTPUTS: usize = 8;

fn weights() -> Vec<f32> {
    whole_numbers(OUTPUTS * INPUTS, 5)
}

fn product() -> Emitted {
    MatMul::new(None, INPUTS, OUTPUTS, &weights()).emitted()
}

/// Whether the result is right, if there is one.
fn run(graph: &mut dyn Graph, limit: Nanos) -> Result<bool, Error> {
    let x = Buffer::from(&*whole_numbers(3 * INPUTS, 3));
    let expected = reference(&x, &weights(), INPUTS);
    let tensors = Tensors { inputs: vec![Arc::new(x)], outputs: vec![Buffer::zeroed(expected.len())] };
    Ok(*graph.run(tensors, limit)?[0] == *expected)
}

/// Long enough for an inference that does not hang.
const LIMIT: Nanos = Nanos(2_000_000_000);

#[test]
fn a_real_device_takes_up_what_it_compiled() {
    let Some(cpu) = cpu() else { return };
    let cpu = cpu.with_options(exact());
    let folder = tempfile::tempdir().unwrap();
    let cache = BlobCache::new(folder.path().to_owned(), Bytes(64 << 20));
    let source = BlobSource { model: Digest::of(b"a model"), block: product().digest(), shape: "?".to_owned() };
    let key = BlobKey::new(&source, &cpu);
    for imported in [false, true] {
        let mut obtained = cache.obtain(&key, &cpu, product).unwrap();
        assert_eq!(matches!(obtained.origin, Origin::Imported), imported, "{obtained:?}");
        assert!(run(&mut *obtained.graph, LIMIT).unwrap());
    }
}

#[test]
fn a_real_device_fails_by_plan_and_works_otherwise() {
    let Some(cpu) = cpu() else { return };
    let plan = FaultPlan::default().inference_fails(1).inference_hangs(2).vanishes_before(5);
    let device = FaultyDevice::new(cpu.with_options(exact()), plan);
    let mut graph = device.compile_graph(&product()).unwrap();
    let mut outcome = || match run(&mut *graph, LIMIT) {
        Ok(is_right) => {
            if is_right {
                "right"
            } else {
                "wrong"
            }
        }
        Err(Error::Refused { .. }) => "refused",
        Err(Error::Hung { .. }) => "hung",
        Err(Error::DeviceLost { .. }) => "lost",
        Err(error) => panic!("{error}"),
    };
    let outcomes: Vec<_> = (0..6).map(|_| outcome()).collect();
    assert_eq!(outcomes, ["right", "refused", "hung", "right", "right", "lost"]);
}
