//! The paper's phones and models. (CoordGen §4.1)

use duet_sim::soc::{self, SocProfile};
use duet_sim::{ModelShape, shape};

/// A phone of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phone {
    /// Redmi K60 Pro.
    K60Pro,
    /// Redmi K70 Pro.
    K70Pro,
    /// OnePlus 13.
    OnePlus13,
}

/// A model of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Qwen2.5-0.5B.
    Qwen05,
    /// Qwen2.5-1.5B.
    Qwen15,
    /// Llama-3.2-3B.
    Llama3,
}

impl Phone {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::K60Pro, Self::K70Pro, Self::OnePlus13];

    /// What rows call it: its SoC.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::K60Pro => "8 Gen 2",
            Self::K70Pro => "8 Gen 3",
            Self::OnePlus13 => "8 Elite",
        }
    }

    /// Its SoC.
    pub(super) fn soc(self) -> SocProfile {
        let name = match self {
            Self::K60Pro => "snapdragon-8-gen-2",
            Self::K70Pro => "snapdragon-8-gen-3",
            Self::OnePlus13 => "snapdragon-8-elite",
        };
        soc::built_in().find(|soc| soc.name == name).expect("the phones' profiles come with the simulator")
    }
}

impl Target {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Qwen05, Self::Qwen15, Self::Llama3];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        self.shape().name
    }

    /// Its shape.
    pub(super) fn shape(self) -> ModelShape {
        let name = match self {
            Self::Qwen05 => "qwen2.5-0.5b",
            Self::Qwen15 => "qwen2.5-1.5b",
            Self::Llama3 => "llama-3.2-3b",
        };
        shape::SHAPES.into_iter().find(|shape| shape.name == name).expect("the models' shapes come with the simulator")
    }
}
