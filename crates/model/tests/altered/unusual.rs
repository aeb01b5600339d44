//! What real files have and others of their architecture do not: read as it was meant, or refused by its name.

use crate::parts::{PartTensor, Parts, logits};
use duet_model::gguf::Value;
use duet_model::template::{ChatMessage, Turn};
use duet_types::TokenId;

#[test]
fn a_bias_that_nothing_computes_with_is_refused_by_its_name() {
    for (architecture, name) in [("llama", "blk.0.attn_q.bias"), ("qwen2", "blk.1.ffn_up.bias")] {
        let mut parts = Parts::of(architecture);
        parts.tensors.push(PartTensor::floats(name, &[64]));
        let error = parts.load().expect_err(name);
        assert!(error.contains(name), "{error}");
    }
    // Of a layer that is not computed either.
    let mut parts = Parts::of("llama");
    parts.tensors.push(PartTensor::floats("blk.99.ffn_up.bias", &[64]));
    assert!(parts.load().is_ok());
}

#[test]
fn a_template_that_cannot_be_read_is_an_error_of_conversations_only() {
    let model = Parts::of("llama").with("tokenizer.chat_template", Value::String("{% if".to_owned())).load().unwrap();
    assert!(logits(&model).iter().all(|logit| logit.is_finite()));
    let said = [ChatMessage::new("user", "hi")];
    let error = model.template().render(&said, None, Turn::Generate).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}

#[test]
fn a_template_for_tools_is_read_beside_the_other() {
    let of = |source: &str| Value::String(source.to_owned());
    let both = Parts::of("llama").with("tokenizer.chat_template", of("plain"));
    let rendered = |source: &str| {
        let model = both.clone().with("tokenizer.chat_template.tool_use", of(source)).load().unwrap();
        let said = [ChatMessage::new("user", "hi")];
        let (tools, template) = (serde_json::json!([]), model.template());
        [None, Some(&tools)].map(|tools| template.render(&said, tools, Turn::Generate).unwrap())
    };
    assert_eq!(rendered("tools"), ["plain", "tools"]);
    assert_eq!(rendered("{% if"), ["plain", "plain"], "one that cannot be read is none");
}

#[test]
fn special_tokens_that_are_not_there_are_none() {
    for none in [Value::U32(u32::MAX), Value::I32(-1)] {
        let mut parts = Parts::of("llama");
        for name in ["bos", "eos", "eot"] {
            parts = parts.with(&format!("tokenizer.ggml.{name}_token_id"), none.clone());
        }
        let model = parts.load().unwrap();
        assert_eq!((model.tokenizer().bos(), model.tokenizer().eos()), (None, None), "{none:?}");
    }
}

/// Files without types of tokens call all of them text.
#[test]
fn what_begins_and_ends_texts_is_no_text() {
    let parts = Parts::of("llama").without("tokenizer.ggml.token_type");
    let model = parts.with("tokenizer.ggml.eos_token_id", Value::U32(7)).load().unwrap();
    let (tokenizer, end) = (model.tokenizer(), TokenId(7));
    assert!(tokenizer.is_end_of_generation(end));
    assert!(tokenizer.bytes(end).is_empty() && tokenizer.text_of_special(end).is_some());
}

#[test]
fn rope_is_stretched_as_the_file_means() {
    let linear = Parts::of("llama_rope_linear");
    let expected = logits(&linear.load().unwrap());
    let unsaid = linear.clone().without("llama.rope.scaling.type");
    assert!(logits(&unsaid.load().unwrap()) == expected, "a factor alone is a linear one");
    let none = linear.without("llama.rope.scaling.type").with("llama.rope.scaling.factor", Value::F32(0.0));
    let plain = logits(&none.load().unwrap());
    assert!(plain.iter().all(|logit| logit.is_finite()) && plain != expected);

    let yarn = Parts::of("qwen3_rope_yarn");
    let original = yarn.metadata.iter().find(|(key, _)| key.ends_with("original_context_length")).unwrap().clone();
    let unsaid = yarn.clone().with("qwen3.context_length", original.1).without(&original.0);
    assert!(logits(&unsaid.load().unwrap()) == logits(&yarn.load().unwrap()), "it was stretched from where it stands");
}
