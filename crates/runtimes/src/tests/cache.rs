//! The cache, with a device in plain Rust.

use super::fake::{Fake, INPUTS, product};
use crate::blob_key::{BlobKey, BlobSource, Digest};
use crate::buffer::{Buffer, Tensors};
use crate::cache::{BlobCache, Origin};
use crate::graph_device::Graph;
use crate::product::{reference, whole_numbers};
use duet_types::{Bytes, Nanos};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

fn source(block: &str, shape: &str) -> BlobSource {
    let shape = shape.to_owned();
    BlobSource { model: Digest::of(b"a model"), block: Digest::of(block.as_bytes()), shape }
}

fn key(block: &str) -> BlobKey {
    BlobKey::new(&source(block, "256"), &Fake::new())
}

fn cache(limit: u64) -> (TempDir, BlobCache) {
    let folder = tempfile::tempdir().unwrap();
    let cache = BlobCache::new(folder.path().join("graphs"), Bytes(limit));
    (folder, cache)
}

fn files(folder: &TempDir) -> Vec<PathBuf> {
    fs::read_dir(folder.path().join("graphs")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn runs(graph: &mut dyn Graph, weights: &[f32]) -> bool {
    let x = Buffer::from(&*whole_numbers(3 * INPUTS, 3));
    let expected = reference(&x, weights, INPUTS);
    let tensors = Tensors { inputs: vec![Arc::new(x)], outputs: vec![Buffer::zeroed(expected.len())] };
    *graph.run(tensors, Nanos(60_000_000_000)).unwrap()[0] == *expected
}

#[test]
fn a_graph_is_compiled_once() {
    let (_folder, cache) = cache(1 << 20);
    let (device, weights) = (Fake::new(), whole_numbers(8 * INPUTS, 5));
    let mut first = cache.obtain(&key("ffn"), &device, || product(&weights)).unwrap();
    assert!(matches!(first.origin, Origin::Compiled), "{first:?}");
    let mut again = cache.obtain(&key("ffn"), &device, || unreachable!("it is there")).unwrap();
    assert!(matches!(again.origin, Origin::Imported), "{again:?}");
    assert_eq!(device.compiled(), 1);
    assert!(runs(&mut *first.graph, &weights) && runs(&mut *again.graph, &weights));
}

#[test]
fn whatever_a_graph_depends_on_makes_it_another() {
    let device = Fake::new();
    let base = key("ffn");
    let other_model = BlobSource { model: Digest::of(b"another model"), ..source("ffn", "256") };
    let others = [
        BlobKey::new(&other_model, &device),
        BlobKey::new(&source("qkv", "256"), &device),
        BlobKey::new(&source("ffn", "32"), &device),
        BlobKey::new(&source("ffn", "256\"\ndevice \"FAKE"), &device),
        BlobKey::new(&source("ffn", "256"), &device.clone().with_driver("2")),
        BlobKey::new(&source("ffn", "256"), &device.clone().with_toolchain("1.1")),
        BlobKey::new(&source("ffn", "256"), &device.clone().with_settings("floats")),
    ];
    let (_folder, cache) = cache(1 << 20);
    cache.put(&base, b"a graph").unwrap();
    assert_eq!(cache.get(&key("ffn")).as_deref(), Some(&b"a graph"[..]));
    assert!(others.iter().all(|other| *other != base && cache.get(other).is_none()));
}

/// Bytes that are whole may be refused by the device, and a file of another key may have this one's name.
#[test]
fn what_cannot_be_taken_up_is_compiled_again() {
    let (folder, cache) = cache(1 << 20);
    let (device, weights) = (Fake::new(), whole_numbers(8 * INPUTS, 5));
    cache.put(&key("ffn"), b"no export of this device").unwrap();
    let mut obtained = cache.obtain(&key("ffn"), &device, || product(&weights)).unwrap();
    assert!(matches!(obtained.origin, Origin::Compiled) && runs(&mut *obtained.graph, &weights));
    let own = fs::read(&files(&folder)[0]).unwrap();
    cache.put(&key("qkv"), b"another graph").unwrap();
    let other = files(&folder).into_iter().find(|path| fs::read(path).unwrap() != own).unwrap();
    fs::write(other, own).unwrap();
    assert_eq!(cache.get(&key("qkv")), None);
    assert!(cache.get(&key("ffn")).is_some());
}

#[test]
fn a_folder_that_cannot_be_written_only_costs_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = BlobCache::new(file.path().join("graphs"), Bytes(1 << 20));
    let (device, weights) = (Fake::new(), whole_numbers(8 * INPUTS, 5));
    for compiled in 1..3 {
        let mut obtained = cache.obtain(&key("ffn"), &device, || product(&weights)).unwrap();
        let Origin::NotKept(error) = &obtained.origin else { panic!("{obtained:?}") };
        assert!(error.to_string().starts_with("a compiled graph could not be kept"), "{error}");
        assert!(runs(&mut *obtained.graph, &weights));
        assert_eq!(device.compiled(), compiled);
    }
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    const SIZE: usize = 4096;
    // Three fit with their heads, four do not.
    let (folder, cache) = cache(3 * SIZE as u64 + 3000);
    let blob = |byte: u8| vec![byte; SIZE];
    let put = |name: &str, byte| {
        let before = files_or_none(&folder);
        cache.put(&key(name), &blob(byte)).unwrap();
        files_or_none(&folder).into_iter().find(|path| !before.contains(path)).unwrap()
    };
    for (age, name) in [(300, "old"), (200, "middle"), (100, "new")] {
        let path = put(name, 1);
        let time = SystemTime::now() - Duration::from_secs(age);
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    assert!(cache.get(&key("old")).is_some(), "it is used, and so the youngest");
    put("newest", 2);
    let kept = |name| cache.get(&key(name)).is_some();
    assert_eq!(["old", "middle", "new", "newest"].map(kept), [true, false, true, true]);
    let error = cache.put(&key("too large"), &vec![0; 4 * SIZE]).unwrap_err();
    assert!(error.to_string().contains("16.0 KiB"), "{error}");
    assert!(kept("new"), "nothing goes for what cannot be kept");
}

fn files_or_none(folder: &TempDir) -> Vec<PathBuf> {
    if folder.path().join("graphs").exists() { files(folder) } else { Vec::new() }
}

#[test]
fn what_a_killed_process_left_is_removed_and_what_is_not_ours_stays() {
    let (folder, cache) = cache(1 << 20);
    cache.put(&key("ffn"), b"a graph").unwrap();
    let path = |name: &str| folder.path().join("graphs").join(name);
    for name in ["old.partial", "new.partial", "notes.txt"] {
        fs::write(path(name), "x").unwrap();
    }
    let old = SystemTime::now() - Duration::from_secs(2 * 3600);
    for name in ["old.partial", "notes.txt"] {
        fs::File::options().write(true).open(path(name)).unwrap().set_modified(old).unwrap();
    }
    cache.put(&key("qkv"), b"another").unwrap();
    assert_eq!(["old.partial", "new.partial", "notes.txt"].map(|name| path(name).exists()), [false, true, true]);
}

/// Two processes that keep and take up at once see whole graphs only, and stay within the limit.
#[test]
fn a_folder_may_be_shared() {
    let (folder, cache) = cache(20_000);
    let work = |seed: usize| {
        for round in 0..60 {
            let name = format!("block {}", (round * 7 + seed) % 5);
            let blob = vec![name.as_bytes()[6]; 5000];
            cache.put(&key(&name), &blob).unwrap();
            if let Some(found) = cache.get(&key(&name)) {
                assert_eq!(found, blob);
            }
        }
    };
    std::thread::scope(|scope| [0, 3].map(|seed| scope.spawn(move || work(seed))).map(|thread| thread.join().unwrap()));
    cache.put(&key("last"), &[0; 10]).unwrap();
    let total: u64 = files(&folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(total <= 20_000, "{total}");
}

#[derive(Clone, Debug)]
enum Damage {
    Flip { at: prop::sample::Index, bits: u8 },
    Cut { at: prop::sample::Index },
    Append { bytes: Vec<u8> },
    Replace { bytes: Vec<u8> },
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..200);
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 1..=u8::MAX).prop_map(|(at, bits)| Damage::Flip { at, bits }),
        2 => any::<prop::sample::Index>().prop_map(|at| Damage::Cut { at }),
        1 => bytes().prop_map(|bytes| Damage::Append { bytes }),
        1 => bytes().prop_map(|bytes| Damage::Replace { bytes }),
    ]
}

impl Damage {
    fn apply(self, file: &mut Vec<u8>) {
        match self {
            Self::Flip { at, bits } => {
                let at = at.index(file.len());
                file[at] ^= bits;
            }
            Self::Cut { at } => file.truncate(at.index(file.len())),
            Self::Append { bytes } => file.extend(bytes),
            Self::Replace { bytes } => *file = bytes,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_damaged_file_is_as_if_it_were_not_there(
        blob in prop::collection::vec(any::<u8>(), 0..500), damage in damage()
    ) {
        let (folder, cache) = cache(1 << 20);
        cache.put(&key("ffn"), &blob).unwrap();
        let found = cache.get(&key("ffn"));
        prop_assert_eq!(found.as_deref(), Some(&*blob));
        let path = files(&folder).remove(0);
        let mut file = fs::read(&path).unwrap();
        damage.apply(&mut file);
        fs::write(&path, file).unwrap();
        prop_assert_eq!(cache.get(&key("ffn")), None);
    }
}
