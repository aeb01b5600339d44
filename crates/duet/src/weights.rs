//! What a model's weights take in memory, by its tensors.

use duet_model::gguf::{TensorInfo, TensorType};
use duet_types::Bytes;

/// What weights take in memory, about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// All of them.
    pub(crate) all: Bytes,
    /// Those of experts that rows are routed to, which may stay on disk.
    pub(crate) experts: Bytes,
}

impl Weights {
    /// Of these tensors.
    pub(crate) fn of(tensors: &[TensorInfo]) -> Self {
        let of_experts = |tensor: &&TensorInfo| tensor.name.contains("_exps.") && tensor.shape.len() == 3;
        let bytes = |tensors: &mut dyn Iterator<Item = &TensorInfo>| Bytes(tensors.map(packed_bytes).sum());
        let (mut all, mut experts) = (tensors.iter(), tensors.iter().filter(of_experts));
        Self { all: bytes(&mut all), experts: bytes(&mut experts) }
    }

    /// Of a model's file and of another part of it.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { all: Bytes(self.all.0 + other.all.0), experts: Bytes(self.experts.0 + other.experts.0) }
    }

    /// What has to be in memory, whatever is left on disk.
    pub(crate) fn least(self) -> Bytes {
        Bytes(self.all.0 - self.experts.0)
    }

    /// With so much memory for experts; none: with all of them.
    pub(crate) fn with(self, expert_memory: Option<Bytes>) -> Bytes {
        Bytes(self.least().0 + expert_memory.unwrap_or(self.experts).min(self.experts).0)
    }
}

/// Matrices are packed as they are in the file, with an eighth of a bit more in types whose small scales have six bits, and
/// a sixteenth or a quarter in two others. Vectors are kept in single precision.
fn packed_bytes(tensor: &TensorInfo) -> u64 {
    let elements = tensor.elements() as u64;
    if tensor.name == READ_BY_ROWS {
        return 0;
    }
    if tensor.shape.len() == 1 {
        return elements * 4;
    }
    match tensor.kind {
        TensorType::Q3K | TensorType::Q4K | TensorType::Q5K => tensor.bytes() as u64 + elements / 64,
        TensorType::IQ4XS => tensor.bytes() as u64 + elements / 128,
        // The power of two becomes half precision.
        TensorType::MXFP4 => tensor.bytes() as u64 + elements / 32,
        _ => tensor.bytes() as u64,
    }
}

/// What Gemma 4 has for each token and layer is read from the file, a row a token.
const READ_BY_ROWS: &str = "per_layer_token_embd.weight";

#[cfg(test)]
mod tests {
    use super::*;
    use duet_model::gguf::GgufFile;

    #[test]
    fn experts_are_what_rows_are_routed_to() {
        let of = |name: &str| {
            let path = format!("{}/../model/tests/fixtures/golden_{name}.gguf", env!("CARGO_MANIFEST_DIR"));
            Weights::of(GgufFile::open(path.as_ref()).unwrap().tensors())
        };
        assert_eq!(of("llama").experts, Bytes(0));
        let mixture = of("olmoe");
        assert!(mixture.experts.0 > mixture.all.0 / 4 && mixture.least() < mixture.all, "{mixture:?}");
    }
}
