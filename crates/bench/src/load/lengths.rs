//! How long real requests are, in a model's own tokens.

use super::subject::encode;
use super::{LoadError, Workload};
use duet_model::Model;
use duet_types::Tokens;
use std::path::PathBuf;

/// Tokens of each prompt of the files and of its answer, as far as both fit the model's context.
///
/// # Errors
/// As [`Workload::read`]; [`LoadError::NothingAnswered`] names a file without such a prompt.
pub fn lengths(model: &Model, files: &[PathBuf]) -> Result<Vec<(Tokens, Tokens)>, LoadError> {
    let context = model.config().context.as_usize();
    let mut all = Vec::new();
    for file in files {
        let before = all.len();
        for prompt in Workload::in_order(file)? {
            let (length, output) = (encode(model, &prompt.messages)?.len(), prompt.output);
            if length > 0 && length + output.as_usize() <= context {
                all.push((Tokens(length as u32), output));
            }
        }
        if all.len() == before {
            return Err(LoadError::NothingAnswered { file: file.clone() });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_model::LoadOptions;
    use std::path::Path;

    #[test]
    fn a_prompt_that_does_not_fit_is_left_out_and_a_file_of_such_is_named() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/golden_llama.gguf");
        let model = Model::load(Path::new(path), &LoadOptions::default(), &mut |_| {}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, prompts: &[String]| {
            let line = |text: &String| {
                let messages = [serde_json::json!({"role": "user", "content": text})];
                serde_json::json!({"kind": "reactive", "messages": messages, "reference": "Yes."}).to_string() + "\n"
            };
            let path = folder.path().join(name);
            std::fs::write(&path, prompts.iter().map(line).collect::<String>()).unwrap();
            path
        };
        let (short, long) = ("ab".to_owned(), "ab ".repeat(2000));
        let found = lengths(&model, &[file("both", &[short.clone(), long.clone()])]).unwrap();
        let [(prompt, answer)] = *found else { panic!("{found:?}") };
        assert!(prompt > Tokens::ZERO && answer > Tokens::ZERO);
        let error = lengths(&model, &[file("short", &[short]), file("long", &[long])]).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("long"), "{error}");
    }
}
