//! Qwen2.5-Coder 1.5B Instruct, Q4_K_M.

use crate::greedy::{Agreement, continues_as_llama_cpp};
use crate::{needles, texts};
use duet_model::kv::KvFormat;
use duet_types::Tokens;

const NAME: &str = "1.5b";

#[test]
fn texts_have_the_tokens_of_llama_cpp() {
    texts::have_the_tokens_of_llama_cpp(NAME);
}

#[test]
fn perplexity_is_that_of_llama_cpp() {
    texts::have_the_perplexity_of_llama_cpp(NAME, 16, 0.003);
}

#[test]
fn prompts_are_continued_as_llama_cpp_does() {
    continues_as_llama_cpp(NAME, &Agreement { equal_min: 11, tie: 0.25 });
}

#[test]
fn needles_are_found_in_8k() {
    needles::are_found(NAME, Tokens(8192), KvFormat::F16, &["Basel", "Lugano", "Geneva"]);
}
