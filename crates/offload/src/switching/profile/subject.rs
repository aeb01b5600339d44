//! What a profile of graphs was measured with: of anything else it says nothing.

use duet_files::plain;
use duet_model::Model;
use duet_runtimes::{Digest, GraphDevice};
use duet_types::Bytes;
use serde::{Deserialize, Serialize};

/// A model on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphSubject {
    /// The model's name.
    pub model: String,
    /// Its packed weights: files of one name differ in their types.
    pub weights: Bytes,
    /// The device, as its runtime calls it.
    pub device: String,
    /// Its maker's name for it.
    pub full_name: Option<String>,
    /// Its architecture, as its maker numbers it.
    pub architecture: Option<String>,
    /// The version of its driver.
    pub driver: Option<String>,
    /// The version of what compiles for it.
    pub toolchain: String,
    /// How it compiles, the number of its threads among it.
    pub settings: String,
    /// The version of the program.
    pub version: String,
}

impl GraphSubject {
    /// This model on this device.
    #[must_use]
    pub fn of(model: &Model, device: &dyn GraphDevice) -> Self {
        let info = device.info();
        Self {
            model: model.config().name.clone(),
            weights: model.weight_bytes(),
            device: info.name.clone(),
            full_name: info.full_name.clone(),
            architecture: info.architecture.clone(),
            driver: info.driver.clone(),
            toolchain: device.toolchain().to_owned(),
            settings: device.settings(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The name of its file: readable, and different for every subject.
    pub(super) fn file_name(&self) -> String {
        let digest = Digest::of(format!("{self:?}").as_bytes()).to_string();
        format!("{}.{}.{}.graphs.json", plain(&self.model), plain(&self.device), &digest[..DIGITS])
    }
}

/// Of the digest: enough for the profiles of one machine.
const DIGITS: usize = 16;
