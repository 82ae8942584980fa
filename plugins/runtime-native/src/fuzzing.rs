//! What the fuzz targets call: hostile bytes in the place of the node's files and the runtime's own. Not for anything else.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::cdi;
use crate::record::{ContainerRecord, SandboxRecord};

/// The device that a container asks for.
pub const CDI_DEVICE: &str = "vendor.test/gpu=0";

/// Reads `input` as a CDI file in `folder`, and gives a container the device [`CDI_DEVICE`] of it.
pub fn cdi(folder: &Path, input: &[u8]) {
    fs::write(folder.join("vendor.yaml"), input).expect("the folder is the target's own");
    let mut document = json!({"process": {"user": {"uid": 0, "gid": 0}}, "linux": {}});
    let devices = [CDI_DEVICE.to_owned()];
    drop(cdi::inject(&mut document, &devices, &[folder.to_owned()]));
}

/// Reads `input` as the records of a sandbox and a container. A record that is read is written in a form that is read
/// as the same.
pub fn records(input: &[u8]) {
    if let Ok(sandbox) = serde_json::from_slice::<SandboxRecord>(input) {
        let written = serde_json::to_vec(&sandbox).expect("a record is JSON");
        let again = serde_json::from_slice(&written).ok();
        assert_eq!(again, Some(sandbox));
    }
    if let Ok(container) = serde_json::from_slice::<ContainerRecord>(input) {
        let written = serde_json::to_vec(&container).expect("a record is JSON");
        let again = serde_json::from_slice(&written).ok();
        assert_eq!(again, Some(container));
    }
}
