//! `duet inspect`: a model file for people, or as one JSON object.

use crate::cli::InspectArgs;
use crate::failure::print;
use crate::inspect::{KV_TOKENS, Overview, Shape};
use crate::models;
use crate::terminal::plain;
use duet_types::Bytes;

pub(super) fn inspect(arguments: &InspectArgs) -> anyhow::Result<()> {
    let overview = Overview::read(&models::locate(&arguments.model)?, arguments.tensors)?;
    if arguments.json {
        return print(&(serde_json::to_string(&overview)? + "\n"));
    }
    print(&page(&overview))
}

fn page(overview: &Overview) -> String {
    let shape = &overview.shape;
    let number = |number: Option<u64>| number.map_or("not given".to_owned(), |number| number.to_string());
    let size = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), |bytes| Bytes(bytes).to_string());
    let tokenizer = &overview.tokenizer;
    let kind = match tokenizer.kind.as_deref() {
        Some("gpt2") => "byte pairs",
        Some("llama") => "SentencePiece",
        other => other.unwrap_or("none"),
    };
    let pre = tokenizer.pre.as_ref().map(|pre| format!(" ({pre})")).unwrap_or_default();
    let mut rows = vec![
        (
            "file",
            format!("{} ({}, GGUF v{})", overview.path.display(), Bytes(overview.file_bytes), overview.gguf_version),
        ),
        ("name", overview.name.clone().unwrap_or_else(|| "not given".into())),
        ("architecture", overview.architecture.clone()),
        ("parameters", count(overview.parameters)),
        ("context", format!("{} tokens", number(shape.context))),
        ("layers", number(shape.layers)),
        (
            "heads",
            format!(
                "{} of {}, {} for keys and values",
                number(shape.heads),
                number(shape.key_length),
                number(shape.kv_heads)
            ),
        ),
        ("embedding", number(shape.embedding)),
        ("ffn", ffn(shape)),
        ("tokenizer", format!("{kind}{pre}, {} tokens", tokenizer.tokens)),
        ("chat template", if overview.chat_template { "yes" } else { "no" }.into()),
        ("weights", format!("about {} packed", Bytes(overview.memory.packed_weights_bytes))),
        (
            "KV cache",
            format!(
                "{} per {KV_TOKENS} tokens, {} with --kv f16, {} with --kv int4",
                size(overview.memory.kv_int8_bytes_per_1024_tokens),
                size(overview.memory.kv_f16_bytes_per_1024_tokens),
                size(overview.memory.kv_int4_bytes_per_1024_tokens)
            ),
        ),
    ];
    if let Some(bytes) = overview.memory.state_bytes {
        rows.push(("state", format!("{} a conversation at least", Bytes(bytes))));
    }
    let mut page: String = rows.iter().map(|(name, value)| format!("{name:<14} {}\n", plain(value))).collect();
    page += "\ntype     tensors  parameters       bytes\n";
    for kind in &overview.types {
        page += &format!(
            "{:<8} {:>7}  {:>10}  {:>10}\n",
            kind.kind,
            kind.tensors,
            count(kind.elements),
            Bytes(kind.bytes).to_string()
        );
    }
    if let Some(tensors) = &overview.tensors {
        page += "\ntype     shape                   bytes  name\n";
        for tensor in tensors {
            let shape = tensor.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("×");
            let bytes = Bytes(tensor.bytes).to_string();
            page += &format!("{:<8} {shape:<18} {bytes:>10}  {}\n", tensor.kind, plain(&tensor.name));
        }
    }
    page
}

/// `1536`, or what is in its place: `16 experts of 48, 4 a token; 768 for all`.
fn ffn(shape: &Shape) -> String {
    let number = |number: Option<u64>| number.map_or("not given".to_owned(), |number| number.to_string());
    let Some(experts) = shape.experts.filter(|experts| *experts > 0) else { return number(shape.ffn) };
    let width = shape.expert_ffn.or(shape.ffn);
    let shared = shape.shared_expert_ffn.map(|width| format!("; {width} for all")).unwrap_or_default();
    format!("{experts} experts of {}, {} a token{shared}", number(width), number(shape.experts_used))
}

/// `134.5 M`
fn count(number: u64) -> String {
    match number as f64 {
        n if n >= 1e9 => format!("{:.2} B", n / 1e9),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        assert_eq!(count(134_515_008), "134.5 M");
        assert_eq!(count(999), "999");
    }
}
