//! Volumes that the pod describes itself.

use super::*;
use crate::{EmptyDir, FsGroupChangePolicy, Medium, Ownership, VolumeKind};

#[test]
fn a_pods_own_volume_is_named_for_pod_and_volume() {
    let cases = [
        ("emptyDir: {}", "kubernetes.io/empty-dir/web-uid-data"),
        (
            "hostPath: {path: /etc}",
            "kubernetes.io/host-path/web-uid-data",
        ),
        (
            "nfs: {server: s, path: /p}",
            "kubernetes.io/nfs/web-uid-data",
        ),
        (
            "downwardAPI: {items: []}",
            "kubernetes.io/downward-api/web-uid-data",
        ),
        (
            "projected: {sources: []}",
            "kubernetes.io/projected/web-uid-data",
        ),
        (
            "image: {reference: localhost/a}",
            "kubernetes.io/image/web-uid-data",
        ),
    ];
    for (source, id) in cases {
        let volume = ResolveRig::of("").volume(&mounting(source));
        assert_eq!(volume.id.0, id);
        assert_eq!(
            (volume.name.as_str(), volume.folder.as_str()),
            ("data", "data")
        );
        assert_eq!(volume.mode, VolumeMode::FileSystem);
    }
}

#[test]
fn an_empty_dir_has_its_medium_and_the_pods_group() {
    let mut pod = mounting("emptyDir: {medium: Memory, sizeLimit: 1Mi}");
    let security = "{fsGroup: 2000, fsGroupChangePolicy: OnRootMismatch}";
    let spec = pod.spec.as_mut().unwrap();
    spec.security_context = Some(serde_saphyr::from_str(security).unwrap());
    let volume = ResolveRig::of("").volume(&pod);
    let expected = EmptyDir {
        medium: Medium::Memory,
        size_limit: Some(1 << 20),
    };
    assert_eq!(volume.source, VolumeSource::EmptyDir(expected));
    let ownership = Ownership {
        fs_group: 2000,
        policy: FsGroupChangePolicy::Always,
    };
    assert_eq!(volume.ownership, Some(ownership));
    assert_eq!(volume.access, VolumeAccess::ReadWrite);

    let spec = pod.spec.as_mut().unwrap();
    spec.volumes.as_mut().unwrap()[0] =
        serde_saphyr::from_str("{name: data, hostPath: {path: /var/lib, type: Directory}}")
            .unwrap();
    let volume = ResolveRig::of("").volume(&pod);
    let expected = VolumeSource::HostPath {
        path: "/var/lib".into(),
        r#type: "Directory".into(),
    };
    assert_eq!((volume.source, volume.ownership), (expected, None));
}

#[test]
fn files_are_only_read_and_what_they_are_made_of_is_told() {
    let node = ResolveRig::of(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}",
    );
    let mut pod = mounting("configMap: {name: settings}");
    let security = serde_saphyr::from_str("{fsGroup: 7}").unwrap();
    pod.spec.as_mut().unwrap().security_context = Some(security);
    let resolved = node.resolve(&pod).unwrap();
    assert_eq!(resolved.volume.kind, VolumeKind::ConfigMap);
    assert_eq!(resolved.volume.access, VolumeAccess::ReadOnly);
    assert_eq!(resolved.volume.ownership.unwrap().fs_group, 7);
    let uses: Vec<&str> = resolved
        .uses
        .iter()
        .map(|uses| uses.name.as_str())
        .collect();
    assert_eq!(uses, ["settings"]);

    let why = ResolveRig::of("").resolve(&pod).unwrap_err();
    assert_eq!(
        (why.reason, why.message.as_str(), why.until),
        (
            "FailedMount",
            "MountVolume.SetUp failed for volume \"data\" : configmap \"settings\" not found",
            RetryWhen::Changed
        )
    );
    assert_eq!(why.uses.len(), 1);
}

#[test]
fn what_no_plugin_takes_waits_for_another_definition() {
    const NONE: &str = "processing FailedMount: failed to get Plugin from volumeSpec for volume \"data\" err=no volume plugin matched";
    let setup = |cause: &str| {
        format!("mounting FailedMount: MountVolume.SetUp failed for volume \"data\" : {cause}")
    };
    let cases = [
        ("iscsi: {targetPortal: p, iqn: i, lun: 0}", NONE.to_owned()),
        ("fc: {wwids: [a]}", NONE.to_owned()),
        ("flexVolume: {driver: d}", NONE.to_owned()),
        ("rbd: {image: i, monitors: [m]}", NONE.to_owned()),
        ("cephfs: {monitors: [m]}", NONE.to_owned()),
        (
            "gitRepo: {repository: r}",
            setup("git-repo volume plugin has been disabled"),
        ),
        (
            "hostPath: {path: /a/../b}",
            setup("invalid HostPath `/a/../b`: must not contain '..'"),
        ),
        (
            "emptyDir: {medium: Paper}",
            setup("unknown storage medium \"Paper\""),
        ),
    ];
    for (source, expected) in cases {
        let (node, pod) = (ResolveRig::of(""), mounting(source));
        assert_eq!(node.refusal(&pod), expected);
        assert_eq!(
            node.resolve(&pod).unwrap_err().until,
            RetryWhen::Never,
            "{source}"
        );
    }
}

#[test]
fn a_name_that_is_no_folders_is_refused() {
    for name in ["", ".", "..", "a\0b"] {
        let mut pod = mounting("emptyDir: {}");
        let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
        volumes[0].name = name.into();
        let why = ResolveRig::of("").resolve(&pod).unwrap_err();
        assert!(
            why.message.contains("cannot be the name of a folder"),
            "{name}"
        );
    }
    let mut pod = mounting("emptyDir: {}");
    let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
    volumes[0].name = "../../etc".into();
    assert_eq!(ResolveRig::of("").volume(&pod).folder, "..~..~etc");
}
