//! Upstream's tables of csi-translation-lib.

use super::*;

fn volume(source: &str, meta: &str) -> PersistentVolume {
    PersistentVolume {
        metadata: serde_saphyr::from_str(&format!("{{name: pv, {meta}}}")).unwrap(),
        spec: Some(serde_saphyr::from_str(&format!("{{{source}}}")).unwrap()),
        status: None,
    }
}

fn pod_volume(source: &str) -> core::Volume {
    serde_saphyr::from_str(&format!("{{name: data, {source}}}")).unwrap()
}

/// Driver, handle and attributes.
fn told(translated: Option<TranslatedVolume>) -> String {
    let translated = translated.unwrap();
    let spec = translated.volume.spec.unwrap();
    let csi = spec.csi.unwrap();
    let attributes: Vec<String> = csi
        .volume_attributes
        .iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!(
        "{} {} {} [{}]",
        translated.plugin,
        csi.driver,
        csi.volume_handle,
        attributes.join(" ")
    )
}

/// Upstream's TestKubernetesVolumeIDToEBSVolumeID and the tables of TestTranslate*InTreePVToCSI.
#[test]
fn a_persistent_volume_becomes_the_drivers() {
    let cases = [
        (
            "awsElasticBlockStore: {volumeID: vol-02399794d890f9375, partition: 1}",
            "kubernetes.io/aws-ebs ebs.csi.aws.com vol-02399794d890f9375 [partition=1]",
        ),
        (
            "awsElasticBlockStore: {volumeID: 'aws:///vol-02399794d890f9375'}",
            "kubernetes.io/aws-ebs ebs.csi.aws.com vol-02399794d890f9375 [partition=0]",
        ),
        (
            "awsElasticBlockStore: {volumeID: 'aws://us-west-2/vol-02399794d890f9375/'}",
            "kubernetes.io/aws-ebs ebs.csi.aws.com vol-02399794d890f9375 [partition=0]",
        ),
        (
            "gcePersistentDisk: {pdName: pd, partition: 0}",
            "kubernetes.io/gce-pd pd.csi.storage.gke.io projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd [partition=]",
        ),
        (
            "cinder: {volumeID: c1, fsType: ext4}",
            "kubernetes.io/cinder cinder.csi.openstack.org c1 []",
        ),
        (
            "portworxVolume: {volumeID: p1}",
            "kubernetes.io/portworx-volume pxd.portworx.com p1 []",
        ),
        (
            "vsphereVolume: {volumePath: '[ds] kubevols/a.vmdk', storagePolicyName: gold}",
            "kubernetes.io/vsphere-volume csi.vsphere.vmware.com [ds] kubevols/a.vmdk [storagepolicyname=gold]",
        ),
        (
            "azureDisk: {diskName: d, diskURI: /subscriptions/x/disks/d, kind: managed, cachingMode: None, fsType: ext4}",
            "kubernetes.io/azure-disk disk.csi.azure.com /subscriptions/x/disks/d [cachingmode=None fstype=ext4 kind=Managed]",
        ),
        (
            "azureFile: {shareName: share, secretName: azure-storage-account-store-secret}, claimRef: {namespace: ns}",
            "kubernetes.io/azure-file file.csi.azure.com #store#share#pv#ns [sharename=share]",
        ),
        (
            "azureFile: {shareName: share, secretName: plain, secretNamespace: vault}, claimRef: {namespace: ns}",
            "kubernetes.io/azure-file file.csi.azure.com #plain#share#pv#vault [sharename=share]",
        ),
    ];
    for (source, expected) in cases {
        let made = persistent(&volume(source, "labels: {a: b}")).unwrap();
        assert_eq!(told(made), expected);
    }
    assert!(
        persistent(&volume("nfs: {server: s, path: /}", ""))
            .unwrap()
            .is_none()
    );
}

#[test]
fn what_cannot_be_translated_is_refused() {
    let cases = [
        (
            "awsElasticBlockStore: {volumeID: 'aws://us-west-2/disk-1'}",
            "",
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://us-west-2/disk-1)",
        ),
        (
            "awsElasticBlockStore: {volumeID: 'aws://z/vol-1/vol-2'}",
            "",
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://z/vol-1/vol-2)",
        ),
        (
            "azureDisk: {diskName: d, diskURI: u, kind: Dedicated}",
            "",
            "kind(Dedicated) is not supported in csi migration",
        ),
        (
            "azureFile: {shareName: s, secretName: s}",
            "",
            "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
        ),
        (
            "gcePersistentDisk: {pdName: pd}",
            "labels: {topology.kubernetes.io/zone: us-a__us-b}",
            "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: us-a",
        ),
        (
            "gcePersistentDisk: {pdName: pd}",
            "labels: {topology.kubernetes.io/zone: us-east1-a__us-west1-b}",
            "failed to get region from zones: multiple or no regions gotten from zones, got: us-east1-a us-west1-b",
        ),
    ];
    for (source, meta, expected) in cases {
        assert_eq!(persistent(&volume(source, meta)).unwrap_err(), expected);
    }
}

/// Upstream's TestBackwardCompatibleAccessModes.
#[test]
fn a_google_disk_is_where_its_labels_say_and_for_one_node() {
    let handle = |labels: &str| {
        let volume = volume(
            "gcePersistentDisk: {pdName: pd}",
            &format!("labels: {{{labels}}}"),
        );
        told(persistent(&volume).unwrap())
    };
    assert!(
        handle("topology.kubernetes.io/zone: us-east1-a").contains("/zones/us-east1-a/disks/pd")
    );
    assert!(handle("failure-domain.beta.kubernetes.io/zone: eu-b-c, topology.kubernetes.io/zone: us-east1-a").contains("/zones/eu-b-c/"));
    assert!(
        handle("topology.kubernetes.io/zone: us-east1-a__us-east1-c")
            .contains("/regions/us-east1/disks/pd")
    );
    let modes = |list: &str| {
        let source = format!("gcePersistentDisk: {{pdName: pd}}, accessModes: {list}");
        let made = persistent(&volume(&source, "")).unwrap().unwrap();
        made.volume.spec.unwrap().access_modes.unwrap().join(",")
    };
    assert_eq!(modes("[ReadOnlyMany]"), "ReadOnlyMany");
    assert_eq!(modes("[ReadWriteMany]"), "ReadWriteOnce");
    assert_eq!(modes("[ReadOnlyMany, ReadWriteOnce]"), "ReadWriteOnce");
    assert_eq!(modes("[]"), "ReadWriteOnce");
}

#[test]
fn a_portworx_volume_takes_its_secret_along() {
    let meta = "annotations: {openstorage.io/auth-secret-name: n, openstorage.io/auth-secret-namespace: ns}";
    let made = persistent(&volume("portworxVolume: {volumeID: p}", meta))
        .unwrap()
        .unwrap();
    let csi = made.volume.spec.unwrap().csi.unwrap();
    let secret = csi.node_publish_secret_ref.unwrap();
    assert_eq!(
        (secret.name.as_deref(), secret.namespace.as_deref()),
        (Some("n"), Some("ns"))
    );
    assert!(csi.node_stage_secret_ref.is_some() && csi.node_expand_secret_ref.is_some());
}

/// Upstream's TestTranslateInTreeInlineVolumeToCSI and TestTranslateInTreeInlineVolumeToCSINameUniqueness.
#[test]
fn a_pods_own_volume_becomes_the_drivers_under_a_name_of_its_disk() {
    let cases = [
        (
            "awsElasticBlockStore: {volumeID: vol-1}",
            "ebs.csi.aws.com-vol-1",
            "ReadWriteOnce",
        ),
        (
            "gcePersistentDisk: {pdName: pd, readOnly: true}",
            "pd.csi.storage.gke.io-pd",
            "ReadOnlyMany",
        ),
        (
            "cinder: {volumeID: c1}",
            "cinder.csi.openstack.org-c1",
            "ReadWriteOnce",
        ),
        (
            "portworxVolume: {volumeID: p}",
            "pxd.portworx.com-p",
            "ReadWriteOnce",
        ),
        (
            "vsphereVolume: {volumePath: '[ds] a.vmdk'}",
            "csi.vsphere.vmware.com-[ds] a.vmdk",
            "ReadWriteOnce",
        ),
        (
            "azureDisk: {diskName: d, diskURI: /s/d}",
            "/s/d",
            "ReadWriteOnce",
        ),
        (
            "azureFile: {shareName: share, secretName: plain}",
            "#plain#share#data#ns",
            "ReadWriteMany",
        ),
    ];
    for (source, name, mode) in cases {
        let made = inline(&pod_volume(source), "ns").unwrap().unwrap();
        assert_eq!(made.volume.metadata.name.as_deref(), Some(name));
        let modes = made.volume.spec.unwrap().access_modes.unwrap();
        assert_eq!(modes, [mode], "{source}");
    }
    assert!(inline(&pod_volume("emptyDir: {}"), "ns").unwrap().is_none());
}
