//! From claims to persistent volumes.

use super::*;
use crate::{FsGroupChangePolicy, VolumeKind};

const LOCAL: &str = "local: {path: /mnt/disk}";

/// Upstream's TestCreateVolumeSpec_* and TestFindAndAddNewPods_WithVolumeRetrievalError.
#[test]
fn a_claim_must_be_there_bound_and_bound_to_its_volume() {
    let good = bound(LOCAL);
    let about = |cause: &str| {
        format!("processing FailedMount: error processing PVC default/claim: {cause}")
    };
    let cases = [
        (
            String::new(),
            about("failed to fetch PVC from API server: persistentvolumeclaims \"claim\" not found"),
        ),
        (
            good.replace("uid: claim-uid}\nspec", "uid: claim-uid, deletionTimestamp: '2026-01-01T00:00:00Z'}\nspec"),
            about("PVC is being deleted"),
        ),
        (good.replace("phase: Bound", "phase: Pending"), about("PVC is not bound")),
        (good.replace("phase: Bound, ", ""), about("PVC is not bound")),
        (
            good.replace("volumeName: pv, ", ""),
            about("PVC has empty pvc.Spec.VolumeName"),
        ),
        (
            good.replace("volumeName: pv,", "volumeName: other,"),
            about("failed to fetch PV other from API server: persistentvolumes \"other\" not found"),
        ),
        (
            good.replace("  claimRef: {namespace: default, name: claim, uid: claim-uid}\n", ""),
            about("found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"),
        ),
        (
            good.replace("name: claim, uid: claim-uid}\n  local", "name: claim, uid: older}\n  local"),
            about("found PV object pv but its pv.Spec.ClaimRef.UID older does not point to claim.UID claim-uid"),
        ),
        (
            good.replace(LOCAL, "fc: {wwids: [a]}"),
            "processing FailedMount: failed to get Plugin from volumeSpec for volume \"pv\" err=no volume plugin matched".to_owned(),
        ),
    ];
    for (manifests, expected) in cases {
        assert_ne!(manifests, good, "{expected}");
        let node = ResolveRig::of(&manifests);
        assert_eq!(node.refusal(&mounting(CLAIMING)), expected);
    }
    assert!(ResolveRig::of(&good).resolve(&mounting(CLAIMING)).is_ok());
    let protected = "uid: claim-uid, finalizers: [kubernetes.io/pvc-protection], deletionTimestamp: '2026-01-01T00:00:00Z'}\nspec";
    let ending = good.replace("uid: claim-uid}\nspec", protected);
    assert!(ResolveRig::of(&ending).resolve(&mounting(CLAIMING)).is_ok());
}

#[test]
fn what_a_claim_waits_for_is_told() {
    let uses = |manifests: &str| -> Vec<String> {
        let result = ResolveRig::of(manifests).resolve(&mounting(CLAIMING));
        let uses = result.map_or_else(|why| why.uses, |resolved| resolved.uses);
        uses.into_iter()
            .map(|uses| format!("{} {}/{}", uses.kind, uses.namespace, uses.name))
            .collect()
    };
    assert_eq!(uses(""), ["PersistentVolumeClaim default/claim"]);
    assert_eq!(
        uses(&bound(LOCAL)),
        [
            "PersistentVolume /pv",
            "PersistentVolumeClaim default/claim"
        ]
    );
}

/// Upstream's TestCreateVolumeSpec_Invalid_File_VolumeDevices and TestCreateVolumeSpec_Invalid_Block_VolumeMounts.
#[test]
fn a_device_is_mapped_and_a_file_system_mounted() {
    let files = ResolveRig::of(&bound(LOCAL));
    let raw = ResolveRig::of(&bound(&format!("volumeMode: Block\n{LOCAL}")));
    assert_eq!(
        files.refusal(&mapping(CLAIMING)),
        "processing FailedMount: volume data has volumeMode Filesystem, but is specified in volumeDevices"
    );
    assert_eq!(
        raw.refusal(&mounting(CLAIMING)),
        "processing FailedMount: volume data has volumeMode Block, but is specified in volumeMounts"
    );
    assert_eq!(
        files.volume(&mounting(CLAIMING)).mode,
        VolumeMode::FileSystem
    );
    let volume = raw.volume(&mapping(CLAIMING));
    assert_eq!((volume.mode, volume.ownership), (VolumeMode::Block, None));
    let nfs = ResolveRig::of(&bound("volumeMode: Block\nnfs: {server: s, path: /p}"));
    assert!(
        nfs.refusal(&mapping(CLAIMING))
            .starts_with("mounting FailedMapVolume: MapVolume.")
    );
}

/// Upstream's TestVolumeIsForPod and TestEphemeralVolumeOwnerCheck.
#[test]
fn an_ephemeral_volumes_claim_is_the_pods_own() {
    let own = bound(LOCAL).replace("name: claim", "name: web-data");
    let with_owner = |uid: &str, controller: bool| {
        let owner = format!(
            "uid: claim-uid, ownerReferences: [{{apiVersion: v1, kind: Pod, name: web, uid: {uid}, controller: {controller}}}]}}\nspec"
        );
        own.replace("uid: claim-uid}\nspec", &owner)
    };
    let pod = mounting("ephemeral: {volumeClaimTemplate: {spec: {}}}");
    let refused = "processing FailedMount: PVC default/web-data was not created for pod default/web (pod is not owner)";
    for manifests in [
        own.clone(),
        with_owner("somebody", true),
        with_owner("web-uid", false),
    ] {
        assert_eq!(ResolveRig::of(&manifests).refusal(&pod), refused);
    }
    let node = ResolveRig::of(&with_owner("web-uid", true));
    assert_eq!(node.volume(&pod).id.0, "kubernetes.io/local-volume/pv");
    let missing = ResolveRig::of("").refusal(&pod);
    assert!(
        missing.contains("PVC default/web-data: failed to fetch PVC"),
        "{missing}"
    );
}

/// Upstream's TestMountOptionFromSpec.
#[test]
fn mount_options_come_from_the_annotation_or_else_the_definition() {
    let nfs = "mountOptions: [ro, nolock, ro, '']\nnfs: {server: s, path: /p}";
    let manifests = bound(nfs);
    let volume = ResolveRig::of(&manifests).volume(&mounting(CLAIMING));
    assert_eq!(volume.mount_options, ["nolock", "ro"]);
    assert_eq!(volume.id.0, "kubernetes.io/nfs/web-uid-pv");
    let annotated = manifests.replace(
        "metadata: {name: pv}",
        "metadata: {name: pv, annotations: {volume.beta.kubernetes.io/mount-options: 'soft,,hard,soft'}}",
    );
    let volume = ResolveRig::of(&annotated).volume(&mounting(CLAIMING));
    assert_eq!(volume.mount_options, ["hard", "soft"]);
    let path = ResolveRig::of(&bound("mountOptions: [ro]\nhostPath: {path: /p}"));
    assert_eq!(
        path.refusal(&mounting(CLAIMING)),
        "mounting FailedMount: MountVolume.MountOptionSupport check failed for volume \"pv\" : mount options are not supported for this volume type"
    );
}

/// Upstream's TestInvalidLocalPath, TestFSGroupMount and TestPersistentClaimReadOnlyFlag.
#[test]
fn a_local_volume_has_a_path_the_pods_group_and_the_claims_access() {
    let grouped = |claiming: &str| {
        let mut pod = mounting(claiming);
        let security = "{fsGroup: 3, fsGroupChangePolicy: OnRootMismatch}";
        let security = serde_saphyr::from_str(security).unwrap();
        pod.spec.as_mut().unwrap().security_context = Some(security);
        pod
    };
    let node = ResolveRig::of(&bound("local: {path: /mnt/disk, fsType: xfs}"));
    let volume = node.volume(&grouped(CLAIMING));
    assert_eq!(
        (volume.kind, volume.folder.as_str()),
        (VolumeKind::Local, "pv")
    );
    let expected = VolumeSource::Local {
        path: "/mnt/disk".into(),
        fs_type: "xfs".into(),
    };
    assert_eq!(volume.source, expected);
    assert_eq!(
        volume.ownership.unwrap().policy,
        FsGroupChangePolicy::OnRootMismatch
    );
    let read = node.volume(&grouped(
        "persistentVolumeClaim: {claimName: claim, readOnly: true}",
    ));
    assert_eq!(
        (read.access, read.ownership),
        (VolumeAccess::ReadOnly, None)
    );
    let cases = [
        (
            "local: {path: /a/../b}",
            "MountVolume.SetUp failed for volume \"pv\" : invalid path: /a/../b must not contain '..'",
        ),
        (
            "local: {path: ''}",
            "MountVolume.NewMounter initialization failed for volume \"pv\" : local volume source is nil or local path is not set",
        ),
    ];
    for (source, expected) in cases {
        let refusal = ResolveRig::of(&bound(source)).refusal(&mounting(CLAIMING));
        assert_eq!(refusal, format!("mounting FailedMount: {expected}"));
    }
}

/// Upstream's TestCheckNodeAffinity.
#[test]
fn a_volume_is_mounted_only_where_it_may_be() {
    let affinity = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}";
    let mut node = ResolveRig::of(&bound(&format!("{affinity}\n{LOCAL}")));
    assert!(node.resolve(&mounting(CLAIMING)).is_ok());
    node.labels = string_map(&[("zone", "b")]);
    assert_eq!(
        node.refusal(&mounting(CLAIMING)),
        "mounting FailedMount: MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms"
    );
    node.labels = string_map(&[("zone", "a")]);
    assert!(node.resolve(&mounting(CLAIMING)).is_ok());
    node.labels = string_map(&[("disk", "ssd")]);
    let mut node = node.driver("csi.example.com", &[]);
    let backend = node.backends.get_mut("csi.example.com").unwrap();
    backend.topology = string_map(&[("zone", "a")]);
    assert!(node.resolve(&mounting(CLAIMING)).is_ok());
}

/// Upstream's TestGetExtraSupplementalGroupsForPod.
#[test]
fn a_volumes_own_group_is_told_where_the_pod_lacks_it() {
    let of = |group: &str, own: &str| {
        let meta = format!(
            "metadata: {{name: pv, annotations: {{pv.beta.kubernetes.io/gid: '{group}'}}}}"
        );
        let manifests = bound(LOCAL).replace("metadata: {name: pv}", &meta);
        let mut pod = mounting(CLAIMING);
        let security = format!("{{supplementalGroups: [{own}]}}");
        let security = serde_saphyr::from_str(&security).unwrap();
        pod.spec.as_mut().unwrap().security_context = Some(security);
        crate::groups::groups(&pod, &ResolveRig::of(&manifests).objects)
    };
    assert_eq!(of("777", ""), [777]);
    assert_eq!(of("777", "1, 777"), Vec::<i64>::new());
    assert_eq!(of("many", ""), Vec::<i64>::new());
    assert_eq!(of("", ""), Vec::<i64>::new());
}

#[test]
fn a_volume_whose_name_leads_elsewhere_is_refused() {
    let manifests = bound(LOCAL);
    let mut node = ResolveRig::of(&manifests);
    for name in ["..", "."] {
        let claim = node.objects.claims.values_mut().next().unwrap();
        let claim = std::sync::Arc::make_mut(claim);
        claim.spec.as_mut().unwrap().volume_name = Some(name.into());
        let mut volume = node.objects.persistent_volumes["pv"].as_ref().clone();
        volume.metadata.name = Some(name.into());
        let volumes = &mut node.objects.persistent_volumes;
        volumes.insert(name.into(), volume.into());
        let refusal = node.refusal(&mounting(CLAIMING));
        assert!(
            refusal.contains("cannot be the name of a folder"),
            "{refusal}"
        );
    }
}
