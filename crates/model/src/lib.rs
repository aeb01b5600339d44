//! Models: GGUF files, tokenizers, chat templates, architectures, the paged KV cache and the forward pass.

pub mod arch;
mod floats;
pub mod forward;
pub mod gguf;
pub mod kv;
mod load;
pub mod template;
pub mod tokenizer;
mod weights;

pub use duet_kernels::matmul::Gating;
pub use floats::{FloatLayer, FloatMatrix};
pub use load::{Linear, LoadError, LoadOptions, LoadProgress, Model, ModelConfig, Work, open_tokenizer};
