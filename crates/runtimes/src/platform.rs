//! How systems call libraries, and where they keep them and packages.

use std::path::{Path, PathBuf};

/// How libraries are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    Linux,
    MacOs,
    Windows,
}

impl Platform {
    /// The one that this program was built for.
    pub(crate) const HERE: Self = if cfg!(windows) {
        Self::Windows
    } else if cfg!(target_os = "macos") {
        Self::MacOs
    } else {
        Self::Linux
    };

    /// The version in the name of a file, if it is the library called `library`.
    pub(crate) fn version(self, library: &str, name: &str) -> Option<Version> {
        let digits = match self {
            Self::Windows => name.eq_ignore_ascii_case(&format!("{library}.dll")).then_some("")?,
            Self::MacOs => name.strip_prefix("lib")?.strip_prefix(library)?.strip_suffix(".dylib")?,
            Self::Linux => name.strip_prefix("lib")?.strip_prefix(library)?.strip_prefix(".so")?,
        };
        if digits.is_empty() {
            return Some(Version::default());
        }
        digits.strip_prefix('.')?.split('.').map(|number| number.parse().ok()).collect::<Option<_>>().map(Version)
    }

    /// How the library called `library` is called without a version.
    pub(crate) fn library(self, library: &str) -> String {
        match self {
            Self::Linux => format!("lib{library}.so"),
            Self::MacOs => format!("lib{library}.dylib"),
            Self::Windows => format!("{library}.dll"),
        }
    }

    /// The variable that names more folders of libraries.
    pub(crate) fn library_path_variable(self) -> &'static str {
        match self {
            Self::Linux => "LD_LIBRARY_PATH",
            Self::MacOs => "DYLD_LIBRARY_PATH",
            Self::Windows => "PATH",
        }
    }

    /// Where the system keeps libraries.
    pub(crate) fn library_folders(self) -> &'static [&'static str] {
        match self {
            Self::Linux => {
                &["/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
            }
            Self::MacOs => &["/usr/local/lib", "/opt/homebrew/lib"],
            Self::Windows => &[],
        }
    }

    /// Where an environment rooted at `prefix` keeps its packages.
    pub(crate) fn package_folders(self, prefix: &Path) -> Vec<PathBuf> {
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
    pub(crate) fn conda_libraries(self, prefix: &Path) -> PathBuf {
        match self {
            Self::Windows => prefix.join("Library").join("bin"),
            Self::Linux | Self::MacOs => prefix.join("lib"),
        }
    }
}

/// A version as its numbers; without any, the name has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(Vec<u64>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_with_their_versions() {
        let linux = |name| Platform::Linux.version("openvino_c", name);
        assert_eq!(linux("libopenvino_c.so"), Some(Version(vec![])));
        assert_eq!(linux("libopenvino_c.so.2641"), Some(Version(vec![2641])));
        assert!(linux("libopenvino_c.so.2026.4.1") > linux("libopenvino_c.so.2026.3.9"));
        for other in ["libopenvino.so.2641", "libopenvino_core.so", "libopenvino_c.so.old", "libopenvino_c.so2641"] {
            assert_eq!(linux(other), None, "{other}");
        }
        assert_eq!(Platform::MacOs.version("openvino_c", "libopenvino_c.2641.dylib"), Some(Version(vec![2641])));
        assert_eq!(Platform::Windows.version("openvino_c", "openvino_c.dll"), Some(Version(vec![])));
        assert_eq!(Platform::Windows.version("openvino_c", "openvino.dll"), None);
    }
}
