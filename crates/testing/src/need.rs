//! What a test may need.

use std::path::PathBuf;

/// Something that is not part of the repository, and the variable that says where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A GGUF file of SmolLM2-135M-Instruct.
    Model,
    /// A folder of texts and prompts, with `corpus.txt`.
    Workloads,
    /// A folder that accelerators' runtimes were installed into.
    Runtimes,
    /// A folder of the models that `scripts/real_models.py` fetches.
    RealModels,
    /// A driver with Vulkan, Metal or DirectX 12; one that is a program on the processor will do.
    Gpu,
}

impl Need {
    const ALL: [Self; 5] = [Self::Model, Self::Workloads, Self::Runtimes, Self::RealModels, Self::Gpu];

    /// Its name in `DUET_REQUIRE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Workloads => "workloads",
            Self::Runtimes => "runtimes",
            Self::RealModels => "real-models",
            Self::Gpu => "gpu",
        }
    }

    /// The variable that names its path; or, of a GPU, the one to test on.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Model => "DUET_TEST_MODEL",
            Self::Workloads => "DUET_WORKLOADS",
            Self::Runtimes => "DUET_RT",
            Self::RealModels => "DUET_REAL_MODELS",
            Self::Gpu => "DUET_TEST_GPU",
        }
    }

    /// What the environment names; an empty variable names nothing.
    pub(crate) fn path(self) -> Option<PathBuf> {
        std::env::var_os(self.variable()).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// The needs in a list of names that commas separate, or the name that is none.
    pub(crate) fn parse_list(list: &str) -> Result<Vec<Self>, String> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| Self::ALL.into_iter().find(|need| need.name() == name).ok_or(name.to_owned())).collect()
    }
}
