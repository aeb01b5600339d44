//! A task: a workload file, and which task of the paper it stands for.

use super::TraceError;
use crate::load::{LoadError, Workload, encode};
use duet_model::Model;
use duet_types::TokenId;
use std::path::{Path, PathBuf};

/// Some requests of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The name of its file.
    pub(crate) name: String,
    workload: Workload,
}

impl Task {
    /// A task for each file; without any, the samples that come with the program.
    ///
    /// # Errors
    /// If a file cannot be read, or a line of it is wrong.
    pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<Self>, LoadError> {
        if files.is_empty() {
            return Ok(vec![Self { name: "sample".to_owned(), workload: Workload::read(&[])? }]);
        }
        let task =
            |file: &PathBuf| Ok(Self { name: name(file), workload: Workload::read(std::slice::from_ref(file))? });
        files.iter().map(task).collect()
    }

    /// Its prompts, as the model reads them.
    pub(super) fn prompts(&self, model: &Model) -> Result<Vec<Vec<TokenId>>, TraceError> {
        let prompts = self.workload.all().map(|prompt| encode(model, &prompt.messages));
        Ok(prompts.collect::<Result<_, _>>().map_err(LoadError::from)?)
    }
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}
