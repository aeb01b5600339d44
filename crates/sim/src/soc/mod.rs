//! SoC profiles: machines that nobody here has, as published figures describe them.
//!
//! A profile holds device peaks that vendors publish and micro-measurements of the papers, each with its source and, where
//! that is uncertain, an interval. **Rule:** no constant is chosen from a result that a simulation is compared with; what
//! comes out is a prediction, good or bad.

mod constant;
mod machine;
mod profile;

pub use constant::Constant;
pub use machine::{Power, UnitPower};
pub use profile::{ChunkProfile, GraphProfile, MemoryProfile, Path, SocProfile, UnitProfile};

use std::str::FromStr;

/// Why a text is not a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocError {
    /// It is not TOML, or a field is missing, unknown or of another type.
    #[error("{0}")]
    Format(String),
    /// It describes no machine.
    #[error("{path} {problem}")]
    Impossible {
        /// The constant.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl FromStr for SocProfile {
    type Err = SocError;

    fn from_str(text: &str) -> Result<Self, SocError> {
        let profile: Self = toml::from_str(text).map_err(|error| SocError::Format(error.to_string()))?;
        match profile.problem() {
            Some((path, problem)) => Err(SocError::Impossible { path: path.to_string(), problem }),
            None => Ok(profile),
        }
    }
}

/// The profiles that come with duet, as text.
const BUILT_IN: [&str; 7] = [
    include_str!("../../profiles/intel-core-ultra-5-125h.toml"),
    include_str!("../../profiles/snapdragon-8-gen-2.toml"),
    include_str!("../../profiles/snapdragon-8-gen-3.toml"),
    include_str!("../../profiles/snapdragon-8-elite.toml"),
    include_str!("../../profiles/apple-m2-max.toml"),
    include_str!("../../profiles/apple-m2-ultra.toml"),
    include_str!("../../profiles/amd-ryzen-ai-9-hx-370.toml"),
];

/// The profiles that come with duet.
pub fn built_in() -> impl Iterator<Item = SocProfile> {
    BUILT_IN.iter().map(|text| text.parse().unwrap_or_else(|error| panic!("a profile that comes with duet: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_can_be_read_and_every_constant_can_be_swept() {
        let names: Vec<String> = built_in().map(|profile| profile.name).collect();
        assert_eq!(names.len(), BUILT_IN.len());
        assert!(names.contains(&"intel-core-ultra-5-125h".to_owned()));
        for profile in built_in() {
            for (path, constant) in profile.constants() {
                if let Some((low, _)) = constant.interval() {
                    let changed = profile.with(path, low);
                    let now = changed.constants().into_iter().find(|(at, _)| *at == path).unwrap().1.value;
                    assert!((now - low).abs() < f64::EPSILON, "{}: {path}", profile.name);
                }
            }
        }
    }

    #[test]
    fn an_impossible_machine_is_named() {
        let text = BUILT_IN[0].replacen(
            "shared_gb_s = { value = 57.0, low = 49.0",
            "shared_gb_s = { value = 0.0, low = 0.0",
            1,
        );
        let error = text.parse::<SocProfile>().unwrap_err();
        assert_eq!(error.to_string(), "memory.shared_gb_s must be greater than zero, and is 0");
        let error = BUILT_IN[0].replacen("compile_w", "compile_watts", 1).parse::<SocProfile>().unwrap_err();
        assert!(error.to_string().contains("compile_watts"), "{error}");
        let error = "name = 3".parse::<SocProfile>().unwrap_err();
        assert!(error.to_string().contains("name = 3"), "{error}");
    }
}
