//! Models: GGUF files, tokenizers, chat templates, architectures, the paged KV cache and the forward pass; and encoders.

pub mod arch;
mod disk_experts;
pub mod encoder;
pub mod exact;
pub mod forward;
pub mod gguf;
mod identity;
pub mod kv;
mod load;
mod packed_file;
mod plain;
mod read_at;
pub mod template;
pub mod tokenizer;
mod weights;
mod work;

pub use disk_experts::{ExpertMemoryError, ExpertMemoryStats, ExpertReads, ExpertUnread, Tell};
pub use duet_kernels::matmul::Gating;
pub use load::{LoadError, LoadOptions, LoadProgress, Model, ModelConfig, Packing, open_tokenizer};
pub use packed_file::{PackedFileUse, Unusable, WeightsIn};
pub use plain::{NormForm, PlainExperts, PlainFeed, PlainLayer, PlainMatrix};
pub use weights::PackError;
pub use work::{ExpertWork, Linear, RoutedBytes, Work};
