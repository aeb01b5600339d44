//! Where a runtime is: looked for when it is first wanted, in an order that the user can foresee.
//!
//! 1. `DUET_RT`, a folder that the Python package was installed into (`pip install --target`);
//! 2. the active Python environment (`VIRTUAL_ENV`, `CONDA_PREFIX`);
//! 3. the packages of `python3`, which is asked once and has a time limit;
//! 4. the folders that the system loads libraries from.
//!
//! Packages hold libraries under a name with a version (`libopenvino_c.so.2641`) and no other, so names are
//! matched, not guessed; of several versions in a folder the highest is taken. Nothing is loaded here.

use crate::package::Package;
use crate::platform::Platform;
use crate::python;
use std::fmt;
use std::path::{Path, PathBuf};

/// A library of a runtime.
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
    /// What is not there.
    pub package: Package,
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

impl Found {
    /// The library called `library` beside it, whether it is there or not.
    #[must_use]
    pub fn beside(&self, library: &str) -> PathBuf {
        self.path.with_file_name(Platform::HERE.library(library))
    }
}

/// Finds the package's library. Takes microseconds; if only `python3` knows of it, up to some seconds the first time.
///
/// # Errors
/// [`Missing`] if it is in none of the places.
pub fn find(package: &Package) -> Result<Found, Missing> {
    search(package, &Surroundings::of_this_process(), Platform::HERE)
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

fn search(package: &Package, surroundings: &Surroundings, platform: Platform) -> Result<Found, Missing> {
    let mut looked = Vec::new();
    for (place, folders) in places(package, surroundings, platform) {
        for folder in folders() {
            match library_in(&folder, package, platform) {
                Ok(path) => return Ok(Found { path, place }),
                Err(lack) => looked.push(Looked { place, folder, lack }),
            }
        }
    }
    Err(Missing { package: *package, looked })
}

type Folders<'a> = Box<dyn FnOnce() -> Vec<PathBuf> + 'a>;

/// The folders to look at, in order. They are made one place after the other: asking `python3` takes time.
fn places<'a>(package: &'a Package, surroundings: &'a Surroundings, platform: Platform) -> [(Place, Folders<'a>); 5] {
    let packaged = |folders: Vec<PathBuf>| folders.iter().map(|folder| libraries_of(package, folder)).collect();
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
        (
            Place::System,
            Box::new(move || {
                let installed = package.installed.iter().map(PathBuf::from).filter(|folder| folder.exists());
                surroundings.library_path.iter().cloned().chain(installed).collect()
            }),
        ),
    ]
}

/// Where the package keeps its libraries.
fn libraries_of(package: &Package, packages: &Path) -> PathBuf {
    package.folders.iter().fold(packages.to_owned(), |path, folder| path.join(folder))
}

fn library_in(folder: &Path, package: &Package, platform: Platform) -> Result<PathBuf, Lack> {
    let entries = std::fs::read_dir(folder).map_err(|_| Lack::Folder)?;
    let versions = entries.flatten().filter_map(|entry| {
        let version = platform.version(package.library, entry.file_name().to_str()?)?;
        Some((version, entry.path()))
    });
    versions.max().map(|(_, path)| path).ok_or(Lack::Library)
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not installed; `{}` brings it", self.package.title, self.package.command())?;
        write!(f, ", or add `--target FOLDER` and set DUET_RT=FOLDER")?;
        self.looked.iter().try_for_each(|looked| write!(f, "\n  {looked}"))
    }
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lack = match self.lack {
            Lack::Folder => "no such folder",
            Lack::Library => "it is not in it",
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
    use crate::package::{ONNX_RUNTIME, OPENVINO, QNN_PROVIDER};
    use std::fs;

    fn nowhere() -> Surroundings {
        Surroundings { duet_rt: None, virtual_env: None, conda: None, python: Vec::new, library_path: Vec::new() }
    }

    fn install(folder: &Path, names: &[&str]) {
        fs::create_dir_all(folder).unwrap();
        names.iter().for_each(|name| fs::write(folder.join(name), "").unwrap());
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
        let found = search(&OPENVINO, &both, Platform::Linux).unwrap();
        assert_eq!((found.place, found.path), (Place::DuetRt, named.join("openvino/libs/libopenvino_c.so.2641")));
        let found = search(&OPENVINO, &Surroundings { duet_rt: None, ..both }, Platform::Linux).unwrap();
        assert_eq!(found.place, Place::VirtualEnv);
    }

    #[test]
    fn environments_of_conda_and_of_windows_are_known() {
        let root = tempfile::tempdir().unwrap();
        install(&root.path().join("lib"), &["libopenvino_c.so"]);
        install(&root.path().join("Lib/site-packages/openvino/libs"), &["openvino_c.dll"]);
        let conda = Surroundings { conda: Some(root.path().to_owned()), ..nowhere() };
        assert_eq!(search(&OPENVINO, &conda, Platform::Linux).unwrap().path, root.path().join("lib/libopenvino_c.so"));
        let windows = Surroundings { virtual_env: Some(root.path().to_owned()), ..nowhere() };
        assert_eq!(search(&OPENVINO, &windows, Platform::Windows).unwrap().place, Place::VirtualEnv);
    }

    #[test]
    fn what_is_missing_names_each_folder_and_the_command() {
        let root = tempfile::tempdir().unwrap();
        let (empty, absent) = (root.path().join("empty"), root.path().join("absent"));
        fs::create_dir_all(&empty).unwrap();
        let duet_rt = Some(absent.clone());
        let surroundings = Surroundings { duet_rt, library_path: vec![empty.clone()], ..nowhere() };
        let missing = search(&OPENVINO, &surroundings, Platform::Linux).unwrap_err();
        let absent = Looked { place: Place::DuetRt, folder: absent.join("openvino/libs"), lack: Lack::Folder };
        let empty = Looked { place: Place::System, folder: empty, lack: Lack::Library };
        assert_eq!(missing.looked, [absent, empty]);
        assert!(missing.to_string().contains("pip install --no-deps openvino=="), "{missing}");
    }

    #[test]
    fn a_provider_is_found_with_what_lies_beside_it() {
        let root = tempfile::tempdir().unwrap();
        install(
            &root.path().join("onnxruntime/capi"),
            &["libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so"],
        );
        install(&root.path().join("onnxruntime_qnn"), &["libonnxruntime_providers_qnn.so"]);
        let surroundings = Surroundings { duet_rt: Some(root.path().to_owned()), ..nowhere() };
        let runtime = search(&ONNX_RUNTIME, &surroundings, Platform::Linux).unwrap();
        assert_eq!(runtime.path, root.path().join("onnxruntime/capi/libonnxruntime.so.1.31.1"));
        let provider = search(&QNN_PROVIDER, &surroundings, Platform::Linux).unwrap();
        assert_eq!(provider.path, root.path().join("onnxruntime_qnn/libonnxruntime_providers_qnn.so"));
        assert_eq!(provider.beside("QnnHtp").parent(), provider.path.parent());
    }
}
