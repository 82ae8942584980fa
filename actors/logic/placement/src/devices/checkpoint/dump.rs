//! Go's debug dump of the checkpoint's data: what its checksum is taken of.
//!
//! Upstream prints with go-spew's `%#v` (k8s.io/utils/dump.ForHash): a field has its name and type, an element of a list
//! or map has none, and what is absent is `<nil>`.

use std::fmt::Display;

use super::{CheckpointData, CheckpointEntry};

const ABSENT: &str = "<nil>";

pub(super) fn dump(data: &CheckpointData) -> Vec<u8> {
    let entries = data.pod_device_entries.as_ref();
    let entries = entries.map_or(ABSENT.to_owned(), |entries| list(entries.iter().map(entry)));
    let registered = data.registered_devices.as_ref();
    let registered = registered.map_or(ABSENT.to_owned(), |registered| {
        let ids = |ids: &Option<Vec<String>>| ids.as_ref().map_or(ABSENT.to_owned(), list);
        map(registered
            .iter()
            .map(|(name, devices)| (name, ids(devices))))
    });
    format!(
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} \
         RegisteredDevices:(map[string][]string){registered}}}"
    )
    .into_bytes()
}

fn entry(entry: &CheckpointEntry) -> String {
    let CheckpointEntry {
        pod,
        container,
        resource,
        devices,
        answer,
    } = entry;
    let devices = devices.as_ref().map_or(ABSENT.to_owned(), |devices| {
        map(devices.iter().map(|(node, ids)| (node, list(ids))))
    });
    let answer = answer.as_ref().map_or(ABSENT.to_owned(), list);
    format!(
        "{{PodUID:(string){pod} ContainerName:(string){container} ResourceName:(string){resource} \
         DeviceIDs:(checkpoint.DevicesPerNUMA){devices} AllocResp:([]uint8){answer}}}"
    )
}

fn list<I: IntoIterator<Item: Display>>(items: I) -> String {
    let items = items.into_iter().map(|item| item.to_string());
    format!("[{}]", items.collect::<Vec<_>>().join(" "))
}

fn map<K: Display>(entries: impl Iterator<Item = (K, String)>) -> String {
    let entries = entries.map(|(key, value)| format!("{key}:{value}"));
    format!("map{}", list(entries))
}
