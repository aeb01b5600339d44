//! Profiles of a machine that is as a test wants it.

use serde_json::{Value, json};
use std::path::Path;

/// Makes the devices of every profile in a folder far quicker than its cores, so that an engine which starts with that
/// folder gives them all that they take. Nothing that was measured stays: a busy machine measures anything.
///
/// # Panics
/// If there is no profile, or one that cannot be read.
pub fn prefer_devices(folder: &Path) {
    each_lane(folder, |lane| {
        let rate = if joins(lane, "Crew") { 1e6 } else { 1e12 };
        let anchors = &mut lane["anchors"];
        for name in ["macs_per_s", "attention_macs_per_s", "bytes_per_s"] {
            anchors[name] = rate.into();
        }
        for factor in anchors["few_rows"].as_array_mut().expect("factors") {
            *factor = 1.into();
        }
        anchors["launch"] = 1000.into();
        anchors["per_row"] = json!({ "qkv": 0.0, "attention": 0.0 });
    });
}

/// Gives the devices of every profile in a folder the attention of all chunks, whatever it is worth on the machine of the
/// test. They must have some.
///
/// # Panics
/// If there is no profile, or one that cannot be read.
pub fn attend_on_devices(folder: &Path) {
    let chunks = json!({ "rows_min": 1, "rows_max": 65536, "context_min": 0, "context_max": 65536 });
    each_lane(folder, |lane| {
        if joins(lane, "Rows") {
            lane["capabilities"]["attention"] = json!({ "Chunks": chunks });
        }
    });
}

fn joins(lane: &Value, what: &str) -> bool {
    lane["capabilities"]["joins"] == what
}

/// Has later starts load every profile in a folder, however busy the machine was: tests run side by side.
///
/// # Panics
/// If there is no profile, or one that cannot be read.
pub fn settle(folder: &Path) {
    each_lane(folder, |_| {});
}

/// Changes the lanes of every profile in a folder, and has later starts load it.
fn each_lane(folder: &Path, mut change: impl FnMut(&mut Value)) {
    let mut found = 0;
    for file in std::fs::read_dir(folder).expect("the folder of profiles") {
        let path = file.expect("a profile").path();
        let text = std::fs::read_to_string(&path).expect("a profile");
        let mut profile: Value = serde_json::from_str(&text).expect("a profile is JSON");
        // What drafters have learned lies beside profiles.
        if profile.get("machine").is_none() {
            continue;
        }
        let lanes = profile["machine"]["lanes"].as_array_mut().expect("a profile has lanes");
        lanes.iter_mut().for_each(&mut change);
        profile["is_settled"] = true.into();
        std::fs::write(&path, profile.to_string()).expect("the profile is written again");
        found += 1;
    }
    assert!(found > 0, "{} holds no profile", folder.display());
}
