//! Profiles of a machine that is as a test wants it.

use serde_json::{Value, json};
use std::path::Path;

/// Makes the cores of every profile in a folder ten thousand times slower than they were measured, so that an engine which
/// starts with that folder gives its devices all that they take, whatever they are worth on the machine of the test.
///
/// # Panics
/// If there is no profile, or one that cannot be read.
pub fn prefer_devices(folder: &Path) {
    each_lane(folder, "Crew", |lane| {
        for rate in ["macs_per_s", "bytes_per_s"] {
            let measured = lane["anchors"][rate].as_f64().expect("a rate");
            lane["anchors"][rate] = (measured / 1e4).into();
        }
    });
}

/// Gives the devices of every profile in a folder the attention of all chunks, whatever it is worth on the machine of the
/// test. They must have some.
///
/// # Panics
/// If there is no profile, or one that cannot be read.
pub fn attend_on_devices(folder: &Path) {
    let chunks = json!({ "rows_min": 1, "rows_max": 65536, "context_min": 0, "context_max": 65536 });
    each_lane(folder, "Rows", |lane| lane["capabilities"]["attention"] = json!({ "Chunks": chunks }));
}

/// Changes the lanes that work in teams like this, in every profile of a folder.
fn each_lane(folder: &Path, joins: &str, mut change: impl FnMut(&mut Value)) {
    let mut found = 0;
    for file in std::fs::read_dir(folder).expect("the folder of profiles") {
        let path = file.expect("a profile").path();
        let text = std::fs::read_to_string(&path).expect("a profile");
        let mut profile: Value = serde_json::from_str(&text).expect("a profile is JSON");
        let lanes = profile["machine"]["lanes"].as_array_mut().expect("a profile has lanes");
        lanes.iter_mut().filter(|lane| lane["capabilities"]["joins"] == joins).for_each(&mut change);
        std::fs::write(&path, profile.to_string()).expect("the profile is written again");
        found += 1;
    }
    assert!(found > 0, "{} holds no profile", folder.display());
}
