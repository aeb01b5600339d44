//! A model's ranges, found out once and kept beside its graphs: reading the text and running the reference interpreter
//! takes seconds for small models and minutes for large ones.
//!
//! They are kept under the model's identity (its file's header and samples of all tensors), what was read for them, and
//! all that graphs are kept under. Blocks are added as they are asked for, so that who needs a few layers waits for these
//! only. What is damaged is found out again.

use crate::calibration::{CalibrateError, Seen};
use crate::identity::identity;
use crate::placed::OffloadError;
use duet_graphs::{ActivationRule, Block, Range, Ranges};
use duet_model::Model;
use duet_moe::ExpertId;
use duet_runtimes::{BlobCache, BlobKey, BlobSource, GraphDevice};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

/// Which block of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Of this layer.
    Qkv(usize),
    /// Of this layer.
    FeedForward(usize),
    Head,
    /// The output projection of this layer, which has experts.
    Output(usize),
    /// The expert of this layer that all rows go to.
    Shared(usize),
    /// One of this layer's experts.
    Expert(usize, ExpertId),
}

/// The ranges of a model's blocks on a device; none where the device computes in floats.
pub(crate) struct KnownRanges<'a> {
    calibrated: Option<Calibrated<'a>>,
}

struct Calibrated<'a> {
    model: &'a Model,
    kept: Option<(&'a BlobCache, BlobKey)>,
    known: RefCell<BTreeMap<Place, Vec<Range>>>,
    /// How many were kept.
    old: usize,
    /// Read when the first one is not known.
    seen: OnceCell<Seen>,
}

impl<'a> KnownRanges<'a> {
    /// Those that are kept in the cache; the others are found out when they are asked for.
    pub(crate) fn of(model: &'a Model, device: &dyn GraphDevice, cache: Option<&'a BlobCache>) -> Self {
        let calibrated = (device.rules().activations == ActivationRule::Calibrated).then(|| {
            let kept = cache.map(|cache| (cache, key(model, device)));
            let known = kept.as_ref().and_then(|(cache, key)| parse(&cache.get(key)?)).unwrap_or_default();
            let (old, known) = (known.len(), RefCell::new(known));
            Calibrated { model, kept, known, old, seen: OnceCell::new() }
        });
        Self { calibrated }
    }

    /// The ranges of a block, if the device wants any.
    pub(crate) fn get(&self, place: Place, block: &Block) -> Result<Option<Ranges>, OffloadError> {
        let ranges = self.calibrated.as_ref().map(|calibrated| calibrated.get(place, block));
        Ok(ranges.transpose()?)
    }

    /// The ranges of a group of a layer's experts, if the device wants any. Each is calibrated alone, as the block that `one`
    /// makes of it, so that what is kept of it holds in whichever group it is.
    pub(crate) fn of_experts(
        &self,
        layer: usize,
        experts: &[ExpertId],
        group: &Block,
        one: &dyn Fn(ExpertId) -> Result<Block, OffloadError>,
    ) -> Result<Option<Ranges>, OffloadError> {
        let Some(calibrated) = &self.calibrated else { return Ok(None) };
        let ranges = experts.iter().map(|&expert| Ok(calibrated.get(Place::Expert(layer, expert), &one(expert)?)?));
        let ranges: Vec<Ranges> = ranges.collect::<Result<_, OffloadError>>()?;
        // A block's values are its inputs, one of each expert, and then what each expert makes of its own.
        let inputs = ranges.iter().filter_map(|ranges| ranges.values().first());
        let made = ranges.iter().flat_map(|ranges| ranges.values().iter().skip(1));
        let values = inputs.chain(made).copied().collect();
        Ok(Some(Ranges::new(group, values).map_err(CalibrateError::from)?))
    }

    /// Keeps what was found out. That it could not be kept makes only the next start slower.
    pub(crate) fn keep(&self) {
        let Some(calibrated) = &self.calibrated else { return };
        let known = calibrated.known.borrow();
        if let (Some((cache, key)), true) = (&calibrated.kept, known.len() > calibrated.old) {
            let _ = cache.put(key, &written(&known));
        }
    }
}

impl Calibrated<'_> {
    fn get(&self, place: Place, block: &Block) -> Result<Ranges, CalibrateError> {
        let known = self.known.borrow().get(&place).cloned();
        if let Some(ranges) = known.and_then(|values| Ranges::new(block, values).ok()) {
            return Ok(ranges);
        }
        let seen = match self.seen.get() {
            Some(seen) => seen,
            None => {
                let seen = Seen::of(self.model)?;
                self.seen.get_or_init(|| seen)
            }
        };
        let ranges = match place {
            Place::Qkv(layer) => seen.qkv(layer, block),
            Place::FeedForward(layer) => seen.feed_forward(layer, block),
            Place::Head => seen.head(block),
            Place::Output(layer) => seen.feed_forward(layer, block),
            Place::Shared(layer) => seen.shared(layer, block),
            Place::Expert(layer, expert) => seen.expert(layer, expert.0, block),
        }?;
        self.known.borrow_mut().insert(place, ranges.values().to_vec());
        Ok(ranges)
    }
}

fn key(model: &Model, device: &dyn GraphDevice) -> BlobKey {
    let source = BlobSource { model: identity(model), block: Seen::settings(), shape: "ranges".to_owned() };
    BlobKey::new(&source, device)
}

/// For each block: its place (three numbers), how many ranges, and these; all numbers little-endian.
fn written(known: &BTreeMap<Place, Vec<Range>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (place, ranges) in known {
        place.numbers().iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend((ranges.len() as u32).to_le_bytes());
        for range in ranges {
            bytes.extend(range.least().to_le_bytes());
            bytes.extend(range.most().to_le_bytes());
        }
    }
    bytes
}

/// What was written; nothing if it is anything else.
fn parse(bytes: &[u8]) -> Option<BTreeMap<Place, Vec<Range>>> {
    let (words, []) = bytes.as_chunks::<4>() else { return None };
    let mut words = words.iter().copied();
    let mut known = BTreeMap::new();
    while let Some(kind) = words.next() {
        let place = Place::of([kind, words.next()?, words.next()?].map(u32::from_le_bytes))?;
        let count = u32::from_le_bytes(words.next()?) as usize;
        if words.len() < count.checked_mul(2)? {
            return None;
        }
        let mut float = || words.next().map(f32::from_le_bytes);
        let ranges = (0..count).map(|_| Some(Range::new(float()?, float()?))).collect::<Option<_>>()?;
        known.insert(place, ranges);
    }
    Some(known)
}

impl Place {
    /// What kind, of which layer, which expert.
    fn numbers(self) -> [u32; 3] {
        match self {
            Self::Head => [0, 0, 0],
            Self::Qkv(layer) => [1, layer as u32, 0],
            Self::FeedForward(layer) => [2, layer as u32, 0],
            Self::Output(layer) => [3, layer as u32, 0],
            Self::Shared(layer) => [4, layer as u32, 0],
            Self::Expert(layer, expert) => [5, layer as u32, expert.0],
        }
    }

    fn of([kind, layer, expert]: [u32; 3]) -> Option<Self> {
        let layer = layer as usize;
        Some(match kind {
            0 => Self::Head,
            1 => Self::Qkv(layer),
            2 => Self::FeedForward(layer),
            3 => Self::Output(layer),
            4 => Self::Shared(layer),
            5 => Self::Expert(layer, ExpertId(expert)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::layer_blocks;
    use duet_graphs::LayoutRules;
    use duet_model::LoadOptions;
    use duet_runtimes::{DeviceInfo, DeviceKind, Emitted, Error, Graph, GraphSource};
    use duet_types::Bytes;
    use proptest::prelude::*;
    use std::path::Path;

    /// A device that computes in integers, and is asked for nothing but that.
    #[derive(Debug)]
    struct Integers(DeviceInfo);

    impl Integers {
        fn new() -> Self {
            let (name, peaks) = ("INTEGERS".to_owned(), Vec::new());
            let (full_name, architecture, driver, memory) = Default::default();
            Self(DeviceInfo { name, kind: DeviceKind::Npu, full_name, architecture, driver, memory, peaks })
        }
    }

    impl GraphDevice for Integers {
        fn info(&self) -> &DeviceInfo {
            &self.0
        }

        fn rules(&self) -> LayoutRules {
            LayoutRules::HTP
        }

        fn toolchain(&self) -> &str {
            "1"
        }

        fn settings(&self) -> String {
            String::new()
        }

        fn tolerance(&self) -> f64 {
            0.0
        }

        fn emit(&self, _: &GraphSource<'_>) -> Result<Emitted, Error> {
            Err(Error::NotStarted)
        }

        fn compile_graph(&self, _: &Emitted) -> Result<Box<dyn Graph>, Error> {
            Err(Error::NotStarted)
        }

        fn import_graph(&self, _: &[u8]) -> Result<Box<dyn Graph>, Error> {
            Err(Error::NotStarted)
        }
    }

    #[test]
    fn the_text_is_read_once_and_again_if_what_was_kept_is_damaged() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        let model = Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cache = BlobCache::new(folder.path().to_owned(), Bytes(1 << 20));
        let (device, block) = (Integers::new(), layer_blocks(&model, 0, LayoutRules::HTP.weights).unwrap().qkv);
        // The ranges, and whether the text was read for them.
        let get = |place| {
            let known = KnownRanges::of(&model, &device, Some(&cache));
            let ranges = known.get(place, &block).unwrap().unwrap();
            known.keep();
            (ranges, known.calibrated.unwrap().seen.get().is_some())
        };
        let (first, read) = get(Place::Qkv(0));
        assert!(read);
        assert_eq!(get(Place::Qkv(0)), (first.clone(), false));
        // Another one is added to it.
        assert!(get(Place::Qkv(1)).1);
        assert_eq!(get(Place::Qkv(0)), (first.clone(), false));
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
        assert_eq!(get(Place::Qkv(0)), (first, true));
    }

    /// A group is the experts' own blocks, side by side: what is found of them alone is what would be found of it.
    #[test]
    fn a_groups_ranges_are_its_experts() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_mixtral.gguf");
        let model = Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap();
        let (device, rule) = (Integers::new(), LayoutRules::HTP.weights);
        let known = KnownRanges::of(&model, &device, None);
        let experts = [ExpertId(2), ExpertId(0)];
        let block = |experts: &[ExpertId]| crate::expert_block(&model, 1, experts, rule).unwrap().unwrap();
        let group = block(&experts);
        let ranges = known.of_experts(1, &experts, &group, &|expert| Ok(block(&[expert]))).unwrap().unwrap();
        let alone = experts.map(|expert| known.get(Place::Expert(1, expert), &block(&[expert])).unwrap().unwrap());
        assert_ne!(alone[0], alone[1]);
        let of = |values: &[Range], of: &[usize]| of.iter().map(|&at| values[at]).collect::<Vec<_>>();
        // Two inputs, then five values of each: gate, up, the gate's nonlinearity, their product, what comes out.
        assert_eq!(ranges.values().len(), 12);
        assert_eq!(of(ranges.values(), &[0, 2, 3, 4, 5, 6]), alone[0].values());
        assert_eq!(of(ranges.values(), &[1, 7, 8, 9, 10, 11]), alone[1].values());
    }

    fn place() -> impl Strategy<Value = Place> {
        let layer = 0_usize..99;
        prop_oneof![
            Just(Place::Head),
            layer.clone().prop_map(Place::Qkv),
            layer.clone().prop_map(Place::FeedForward),
            layer.clone().prop_map(Place::Output),
            layer.clone().prop_map(Place::Shared),
            (layer, 0_u32..999).prop_map(|(layer, expert)| Place::Expert(layer, ExpertId(expert))),
        ]
    }

    proptest! {
        #[test]
        fn ranges_are_found_again_to_the_bit(
            known in prop::collection::btree_map(
                place(),
                prop::collection::vec((-1e30_f32..0.0, 0.0_f32..1e30).prop_map(|(least, most)| Range::new(least, most)), 0..12),
                0..9,
            ),
        ) {
            prop_assert_eq!(parse(&written(&known)), Some(known));
        }

        #[test]
        fn other_bytes_are_no_reason_to_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
