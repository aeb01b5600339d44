//! Gemma 3 270M, Q4_K_M.

use crate::greedy::{Agreement, continues_as_llama_cpp};
use crate::texts;

const NAME: &str = "gemma";

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
    continues_as_llama_cpp(NAME, &Agreement { equal_min: 5, tie: 0.45 });
}
