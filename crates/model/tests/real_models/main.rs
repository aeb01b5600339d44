//! Models of users' sizes, with K-quants and vocabularies beyond 128k, against llama.cpp, and over long prompts.
//!
//! `DUET_REAL_MODELS` is the folder of the models, which `scripts/real_models.py` fetches; without it these tests are
//! skipped. `scripts/test-real-models.sh` runs them. References: `scripts/golden/real_model_answers.py`. The text is
//! chapters I to VI of Lewis Carroll's *Alice's Adventures in Wonderland* (1865), which is in the public domain.
//!
//! A module for each model says what is expected of it; how that is found out is in the other ones.

mod gemma_270m;
mod greedy;
mod minilm;
mod needles;
mod qwen_0_5b;
mod qwen_1_5b;
mod reference;
#[path = "../sequence/mod.rs"]
mod sequence;
mod texts;
