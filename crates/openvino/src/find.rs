//! Where OpenVINO's runtime is: looked for when it is first wanted, in an order that the user can foresee.
//!
//! 1. `DUET_RT`, a folder that the Python package was installed into (`pip install --target`);
//! 2. the active Python environment (`VIRTUAL_ENV`, `CONDA_PREFIX`);
//! 3. the packages of `python3`, which is asked once and has a time limit;
//! 4. the folders that the system loads libraries from.
//!
//! The package holds the C library under a name with a version (`libopenvino_c.so.2641`) and no other, so names are
//! matched, not guessed; of several versions in a folder the highest is taken. Nothing is loaded here.

use crate::python;
use std::fmt;
use std::path::{Path, PathBuf};

/// A C library of OpenVINO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The library's file.
    pub path: PathBuf,
    /// Why that folder was looked at.
    pub place: Place,
}

/// Why a folder is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `DUET_RT` names it.
    DuetRt,
    /// It belongs to the active virtual environment (`VIRTUAL_ENV`).
    VirtualEnv,
    /// It belongs to the active conda environment (`CONDA_PREFIX`).
    Conda,
    /// `python3` finds its packages there.
    Python,
    /// The system loads libraries from there.
    System,
}

/// There is no runtime; says where it was looked for, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Missing {
    /// Each folder that was looked at, in order.
    pub looked: Vec<Looked>,
}

/// A folder without the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Why it was looked at.
    pub place: Place,
    /// The folder.
    pub folder: PathBuf,
    /// What it lacks.
    pub lack: Lack,
}

/// What a folder lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There is no such folder.
    Folder,
    /// It holds no file of the library's name.
    Library,
}

/// The package's version that duet is tested with.
pub const VERSION: &str = "2026.4.1";

impl Missing {
    /// The one command that brings the runtime.
    #[must_use]
    pub fn command() -> String {
        format!("pip install openvino=={VERSION}")
    }
}

/// Finds the library. Takes microseconds; if only `python3` knows of it, up to some seconds the first time.
///
/// # Errors
/// [`Missing`] if it is in none of the places.
pub fn find() -> Result<Found, Missing> {
    search(&Surroundings::of_this_process(), Platform::HERE)
}

/// What this process was started with.
struct Surroundings {
    duet_rt: Option<PathBuf>,
    virtual_env: Option<PathBuf>,
    conda: Option<PathBuf>,
    /// Asked only if the library was not found before.
    python: fn() -> Vec<PathBuf>,
    /// Folders that the loader looks at.
    library_path: Vec<PathBuf>,
}

impl Surroundings {
    fn of_this_process() -> Self {
        let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let platform = Platform::HERE;
        let mut library_path: Vec<PathBuf> = std::env::var_os(platform.library_path_variable())
            .map(|paths| std::env::split_paths(&paths).filter(|path| path.is_absolute()).collect())
            .unwrap_or_default();
        library_path.extend(platform.library_folders().iter().map(PathBuf::from));
        Self {
            duet_rt: folder("DUET_RT"),
            virtual_env: folder("VIRTUAL_ENV"),
            conda: folder("CONDA_PREFIX"),
            python: python::package_folders,
            library_path,
        }
    }
}

/// How libraries are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Platform {
    Linux,
    MacOs,
    Windows,
}

impl Platform {
    const HERE: Self = if cfg!(windows) {
        Self::Windows
    } else if cfg!(target_os = "macos") {
        Self::MacOs
    } else {
        Self::Linux
    };

    /// The version in the name of a C library of OpenVINO; none if the file is something else.
    fn version(self, name: &str) -> Option<Version> {
        let digits = match self {
            Self::Windows => name.eq_ignore_ascii_case("openvino_c.dll").then_some("")?,
            Self::MacOs => name.strip_prefix("libopenvino_c")?.strip_suffix(".dylib")?,
            Self::Linux => name.strip_prefix("libopenvino_c.so")?,
        };
        if digits.is_empty() {
            return Some(Version::default());
        }
        digits.strip_prefix('.')?.split('.').map(|number| number.parse().ok()).collect::<Option<_>>().map(Version)
    }

    fn library_path_variable(self) -> &'static str {
        match self {
            Self::Linux => "LD_LIBRARY_PATH",
            Self::MacOs => "DYLD_LIBRARY_PATH",
            Self::Windows => "PATH",
        }
    }

    fn library_folders(self) -> &'static [&'static str] {
        match self {
            Self::Linux => &[
                "/usr/local/lib",
                "/usr/lib",
                "/usr/lib64",
                "/usr/lib/x86_64-linux-gnu",
                "/usr/lib/aarch64-linux-gnu",
                "/opt/intel/openvino/runtime/lib/intel64",
            ],
            Self::MacOs => &["/usr/local/lib", "/opt/homebrew/lib"],
            Self::Windows => &[],
        }
    }

    /// Where an environment rooted at `prefix` keeps its packages.
    fn package_folders(self, prefix: &Path) -> Vec<PathBuf> {
        if self == Self::Windows {
            return vec![prefix.join("Lib").join("site-packages")];
        }
        let pythons = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
        let mut folders: Vec<_> = pythons
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python"))
            .map(|entry| entry.path().join("site-packages"))
            .collect();
        folders.sort();
        // Where there is none, the one that was meant is told all the same.
        if folders.is_empty() {
            folders.push(prefix.join("lib").join("python3").join("site-packages"));
        }
        folders
    }

    /// Where a conda package's libraries are.
    fn conda_libraries(self, prefix: &Path) -> PathBuf {
        match self {
            Self::Windows => prefix.join("Library").join("bin"),
            Self::Linux | Self::MacOs => prefix.join("lib"),
        }
    }
}

/// A version as its numbers; without any, the name has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Version(Vec<u64>);

fn search(surroundings: &Surroundings, platform: Platform) -> Result<Found, Missing> {
    let mut looked = Vec::new();
    for (place, folders) in places(surroundings, platform) {
        for folder in folders() {
            match library_in(&folder, platform) {
                Ok(path) => return Ok(Found { path, place }),
                Err(lack) => looked.push(Looked { place, folder, lack }),
            }
        }
    }
    Err(Missing { looked })
}

type Folders<'a> = Box<dyn FnOnce() -> Vec<PathBuf> + 'a>;

/// The folders to look at, in order. They are made one place after the other: asking `python3` takes time.
fn places(surroundings: &Surroundings, platform: Platform) -> [(Place, Folders<'_>); 5] {
    let packaged = |folders: Vec<PathBuf>| folders.iter().map(|folder| libraries_of_package(folder)).collect();
    [
        (Place::DuetRt, Box::new(move || packaged(surroundings.duet_rt.clone().into_iter().collect()))),
        (
            Place::VirtualEnv,
            Box::new(move || {
                let prefix = surroundings.virtual_env.iter();
                packaged(prefix.flat_map(|prefix| platform.package_folders(prefix)).collect())
            }),
        ),
        (
            Place::Conda,
            Box::new(move || {
                let Some(prefix) = &surroundings.conda else { return Vec::new() };
                let mut folders = packaged(platform.package_folders(prefix));
                folders.push(platform.conda_libraries(prefix));
                folders
            }),
        ),
        (Place::Python, Box::new(move || packaged((surroundings.python)()))),
        (Place::System, Box::new(move || surroundings.library_path.clone())),
    ]
}

/// Where the package keeps its libraries.
fn libraries_of_package(packages: &Path) -> PathBuf {
    packages.join("openvino").join("libs")
}

fn library_in(folder: &Path, platform: Platform) -> Result<PathBuf, Lack> {
    let entries = std::fs::read_dir(folder).map_err(|_| Lack::Folder)?;
    let versions = entries.flatten().filter_map(|entry| {
        let version = platform.version(entry.file_name().to_str()?)?;
        Some((version, entry.path()))
    });
    versions.max().map(|(_, path)| path).ok_or(Lack::Library)
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenVINO is not installed; `{}` brings it", Missing::command())?;
        write!(f, ", or add `--target FOLDER` and set DUET_RT=FOLDER")?;
        self.looked.iter().try_for_each(|looked| write!(f, "\n  {looked}"))
    }
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lack = match self.lack {
            Lack::Folder => "no such folder",
            Lack::Library => "no OpenVINO in it",
        };
        write!(f, "{} ({}): {lack}", self.folder.display(), self.place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DuetRt => "DUET_RT",
            Self::VirtualEnv => "VIRTUAL_ENV",
            Self::Conda => "CONDA_PREFIX",
            Self::Python => "python3",
            Self::System => "the system",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn nowhere() -> Surroundings {
        Surroundings { duet_rt: None, virtual_env: None, conda: None, python: Vec::new, library_path: Vec::new() }
    }

    fn install(folder: &Path, names: &[&str]) {
        fs::create_dir_all(folder).unwrap();
        names.iter().for_each(|name| fs::write(folder.join(name), "").unwrap());
    }

    #[test]
    fn names_are_matched_with_their_versions() {
        let linux = |name| Platform::Linux.version(name);
        assert_eq!(linux("libopenvino_c.so"), Some(Version(vec![])));
        assert_eq!(linux("libopenvino_c.so.2641"), Some(Version(vec![2641])));
        assert!(linux("libopenvino_c.so.2026.4.1") > linux("libopenvino_c.so.2026.3.9"));
        for other in ["libopenvino.so.2641", "libopenvino_core.so", "libopenvino_c.so.old", "libopenvino_c.so2641"] {
            assert_eq!(linux(other), None, "{other}");
        }
        assert_eq!(Platform::MacOs.version("libopenvino_c.2641.dylib"), Some(Version(vec![2641])));
        assert_eq!(Platform::Windows.version("openvino_c.dll"), Some(Version(vec![])));
        assert_eq!(Platform::Windows.version("openvino.dll"), None);
    }

    #[test]
    fn the_named_folder_comes_first_and_the_highest_version_in_it() {
        let root = tempfile::tempdir().unwrap();
        let (named, environment) = (root.path().join("named"), root.path().join("environment"));
        install(
            &named.join("openvino/libs"),
            &["libopenvino_c.so.2541", "libopenvino_c.so.2641", "libopenvino.so.2699"],
        );
        install(&environment.join("lib/python3.11/site-packages/openvino/libs"), &["libopenvino_c.so.2700"]);
        let both = Surroundings { duet_rt: Some(named.clone()), virtual_env: Some(environment), ..nowhere() };
        let found = search(&both, Platform::Linux).unwrap();
        assert_eq!((found.place, found.path), (Place::DuetRt, named.join("openvino/libs/libopenvino_c.so.2641")));
        let found = search(&Surroundings { duet_rt: None, ..both }, Platform::Linux).unwrap();
        assert_eq!(found.place, Place::VirtualEnv);
    }

    #[test]
    fn environments_of_conda_and_of_windows_are_known() {
        let root = tempfile::tempdir().unwrap();
        install(&root.path().join("lib"), &["libopenvino_c.so"]);
        install(&root.path().join("Lib/site-packages/openvino/libs"), &["openvino_c.dll"]);
        let conda = Surroundings { conda: Some(root.path().to_owned()), ..nowhere() };
        assert_eq!(search(&conda, Platform::Linux).unwrap().path, root.path().join("lib/libopenvino_c.so"));
        let windows = Surroundings { virtual_env: Some(root.path().to_owned()), ..nowhere() };
        assert_eq!(search(&windows, Platform::Windows).unwrap().place, Place::VirtualEnv);
    }

    #[test]
    fn what_is_missing_names_each_folder_and_the_command() {
        let root = tempfile::tempdir().unwrap();
        let (empty, absent) = (root.path().join("empty"), root.path().join("absent"));
        fs::create_dir_all(&empty).unwrap();
        let duet_rt = Some(absent.clone());
        let surroundings = Surroundings { duet_rt, library_path: vec![empty.clone()], ..nowhere() };
        let missing = search(&surroundings, Platform::Linux).unwrap_err();
        let absent = Looked { place: Place::DuetRt, folder: absent.join("openvino/libs"), lack: Lack::Folder };
        let empty = Looked { place: Place::System, folder: empty, lack: Lack::Library };
        assert_eq!(missing.looked, [absent, empty]);
        assert!(missing.to_string().contains("pip install openvino==2026.4.1"), "{missing}");
    }
}
