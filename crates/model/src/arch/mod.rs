//! Architectures: what a model file's metadata means.
//!
//! An architecture is one file with one function from [`Facts`] (what all have in common) to a [`Blueprint`] (all that
//! the forward pass knows). The forward pass has no architecture in it; it follows the blueprint.

pub(crate) mod bert;
mod blueprint;
mod experts;
mod facts;
mod gemma3;
mod gemma4;
mod glm4moe;
mod gpt_oss;
mod granite;
mod kept;
mod lfm2;
mod llama;
mod longrope;
mod olmoe;
mod phi3;
mod phimoe;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod qwen3next;
mod smollm3;
mod yarn;

pub use bert::EncoderBlueprint;
pub use blueprint::{Blueprint, Extra, Heads, LayerPlan, Mixer, Recurrent, Rope, RopePairs, WideHeads};
pub use experts::ExpertPlan;
pub(crate) use facts::Facts;

use crate::gguf::GgufFile;
use crate::load::LoadError;
use duet_types::Tokens;

/// An architecture that duet can run.
pub(crate) struct Architecture {
    /// GGUF `general.architecture`.
    pub(crate) name: &'static str,
    /// Reads the blueprint.
    pub(crate) blueprint: fn(&Facts<'_>) -> Result<Blueprint, LoadError>,
}

/// All of them. Adding one is a file and a line here.
pub(crate) const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "llama", blueprint: llama::blueprint },
    Architecture { name: "qwen2", blueprint: qwen2::blueprint },
    Architecture { name: "qwen3", blueprint: qwen3::blueprint },
    Architecture { name: "smollm3", blueprint: smollm3::blueprint },
    Architecture { name: "gemma3", blueprint: gemma3::blueprint },
    Architecture { name: "gemma4", blueprint: gemma4::blueprint },
    Architecture { name: "olmoe", blueprint: olmoe::blueprint },
    Architecture { name: "qwen2moe", blueprint: qwen2moe::blueprint },
    Architecture { name: "qwen3moe", blueprint: qwen3moe::blueprint },
    Architecture { name: "qwen3next", blueprint: qwen3next::blueprint },
    Architecture { name: "qwen35", blueprint: qwen35::dense },
    Architecture { name: "qwen35moe", blueprint: qwen35::with_experts },
    Architecture { name: "gpt-oss", blueprint: gpt_oss::blueprint },
    Architecture { name: "glm4moe", blueprint: glm4moe::blueprint },
    Architecture { name: "granite", blueprint: granite::dense },
    Architecture { name: "granitemoe", blueprint: granite::with_experts },
    Architecture { name: "granitehybrid", blueprint: granite::hybrid },
    Architecture { name: "lfm2", blueprint: lfm2::dense },
    Architecture { name: "lfm2moe", blueprint: lfm2::with_experts },
    Architecture { name: "phi3", blueprint: phi3::blueprint },
    Architecture { name: "phimoe", blueprint: phimoe::blueprint },
];

/// The blueprint of a file's model, for sequences as long as `wanted`; the longest that the file allows, if nobody said.
/// It is made of the header alone.
///
/// # Errors
/// [`LoadError`] names the field at fault.
pub fn blueprint(file: &GgufFile, wanted: Option<Tokens>) -> Result<Blueprint, LoadError> {
    let name = file.metadata().str("general.architecture")?;
    let architecture = ARCHITECTURES.iter().find(|architecture| architecture.name == name);
    let architecture = architecture.ok_or_else(|| LoadError::Architecture {
        name: name.to_owned(),
        supported: ARCHITECTURES.iter().map(|architecture| architecture.name).collect::<Vec<_>>().join(", "),
    })?;
    (architecture.blueprint)(&Facts::read(file, architecture.name, wanted)?)
}
