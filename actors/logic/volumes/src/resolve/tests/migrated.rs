//! Volumes of plugins that became drivers.

use super::*;
use crate::AccessMode;

const SAYS: &str = "
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disk.csi.azure.com}
spec: {attachRequired: false}
";

fn node(manifests: &str) -> ResolveRig {
    ResolveRig::of(&format!("{manifests}{SAYS}")).driver("disk.csi.azure.com", &[])
}

#[test]
fn a_persistent_volume_keeps_its_name_and_loses_the_old_plugins_affinity() {
    let affinity = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: failure-domain.beta.kubernetes.io/zone, operator: In, values: [a]}]}]}}";
    let manifests = bound(&format!(
        "{affinity}\naccessModes: [ReadWriteOnce]\nazureDisk: {{diskName: d, diskURI: /s/d, kind: Managed, fsType: ext4}}"
    ));
    let mut node = node(&manifests);
    node.labels = string_map(&[("zone", "a")]);
    let found = node.volume(&mounting(CLAIMING));
    assert_eq!(found.id.0, "kubernetes.io/csi/disk.csi.azure.com^/s/d");
    assert_eq!(found.folder, "pv");
    let made = csi(&found);
    assert_eq!(made.migrated_from, "kubernetes.io/azure-disk");
    assert_eq!(
        (made.volume_handle.as_str(), made.fs_type.as_str()),
        ("/s/d", "ext4")
    );
}

#[test]
fn a_pods_own_volume_has_one_plain_folder_and_the_pods_access() {
    let disk = "azureDisk: {diskName: d, diskURI: /subscriptions/x/d, readOnly: true}";
    let found = node("").volume(&mounting(disk));
    assert_eq!(found.folder, "~subscriptions~x~d");
    assert_eq!(found.name, "data");
    assert_eq!(found.access, VolumeAccess::ReadOnly);
    assert_eq!(csi(&found).access_mode, Some(AccessMode::ReadWriteOnce));
    let written = node("").volume(&mounting(&disk.replace(", readOnly: true", "")));
    assert_eq!(written.access, VolumeAccess::ReadWrite);
    assert_eq!(
        node("").refusal(&mounting(
            "azureDisk: {diskName: d, diskURI: d, kind: Shared}"
        )),
        "processing FailedMount: failed to translate in-tree pv to CSI: kind(Shared) is not supported in csi migration"
    );
}
