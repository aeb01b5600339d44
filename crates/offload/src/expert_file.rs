//! The file beside a model that holds where its routers sent rows: `model.gguf` has `model.experts.json`.
//!
//! It is sealed, and has the model's identity in it, so that what was counted for another model of that name, or was
//! changed or cut off, is as if it were not there.

use crate::identity::identity;
use duet_files::sealed;
use duet_model::Model;
use duet_moe::Calibration;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// What is in the file.
#[derive(Serialize, Deserialize)]
struct Counted<C> {
    model: String,
    calibration: C,
}

/// The file's kind and its format's version.
const KIND: &str = "duet experts 1";

/// Where the file of the model at `model` is.
#[must_use]
pub fn expert_file(model: &Path) -> PathBuf {
    model.with_extension("experts.json")
}

/// Writes a model's counts, whole or not at all.
///
/// # Errors
/// As the file system says.
pub fn write_experts(path: &Path, model: &Model, calibration: &Calibration) -> io::Result<()> {
    sealed::write(path, KIND, &Counted { model: identity(model).to_string(), calibration })
}

/// Reads them. None if there are none, if they are another model's, or if they cannot be.
#[must_use]
pub fn read_experts(path: &Path, model: &Model) -> Option<Calibration> {
    let counted: Counted<Calibration> = sealed::read(path, KIND)?;
    let plan = model.blueprint().experts?;
    let calibration = counted.calibration;
    let fits = counted.model == identity(model).to_string()
        && calibration.layers().len() == model.config().layers
        && (calibration.experts(), calibration.chosen() as usize) == (plan.count, plan.chosen);
    fits.then_some(calibration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate_experts;
    use duet_model::LoadOptions;
    use duet_types::TokenId;

    fn load(name: &str) -> Model {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
        Model::load(&folder.join(format!("golden_{name}.gguf")), &LoadOptions::default(), &mut |_| {}).unwrap()
    }

    #[test]
    fn counts_are_found_again_for_their_own_model_and_only_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = expert_file(&folder.path().join("mixtral.q8.gguf"));
        assert!(path.ends_with("mixtral.q8.experts.json"));
        let model = load("mixtral");
        assert_eq!(read_experts(&path, &model), None);
        let texts = [vec![TokenId(1), TokenId(2), TokenId(3)]];
        let calibration = calibrate_experts(&model, &texts, 1, &mut |_| {}).unwrap();
        write_experts(&path, &model, &calibration).unwrap();
        assert_eq!(read_experts(&path, &model), Some(calibration));
        assert_eq!(read_experts(&path, &load("olmoe")), None);
        assert_eq!(read_experts(&path, &load("llama")), None);
        let text = std::fs::read_to_string(&path).unwrap();
        for end in [0, 1, text.len() / 2, text.len() - 1] {
            std::fs::write(&path, &text[..end]).unwrap();
            assert_eq!(read_experts(&path, &model), None, "{end} bytes");
        }
    }

    #[test]
    fn counts_that_cannot_be_are_not_believed_however_well_they_are_sealed() {
        #[derive(Serialize)]
        struct Impossible {
            chosen: u32,
            tokens: u64,
            layers: Vec<Vec<u64>>,
        }
        let folder = tempfile::tempdir().unwrap();
        let (path, model) = (folder.path().join("m.experts.json"), load("mixtral"));
        let plan = model.blueprint().experts.unwrap();
        for tokens in [0, 1, u64::MAX] {
            let layers = vec![vec![tokens; plan.count]; model.config().layers];
            let calibration = Impossible { chosen: plan.chosen as u32, tokens, layers };
            sealed::write(&path, KIND, &Counted { model: identity(&model).to_string(), calibration }).unwrap();
            assert_eq!(read_experts(&path, &model), None, "{tokens}");
        }
    }
}
