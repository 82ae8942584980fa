//! Drivers: what they must be, have attached, and are asked for.

use super::*;
use crate::{AccessMode, Attachment, VolumeKind};

const DRIVER: &str = "csi.example.com";
const ID: &str = "kubernetes.io/csi/csi.example.com^vol-1";
const ATTACHMENT: &str = "csi-ATTACH";

fn driver_says(spec: &str) -> String {
    format!(
        "
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {{name: {DRIVER}}}
spec: {{{spec}}}
"
    )
}

fn volume(more: &str) -> String {
    bound(&format!(
        "accessModes: [ReadWriteOnce]\nmountOptions: [noatime]\ncsi: {{driver: {DRIVER}, volumeHandle: vol-1, fsType: ext4, volumeAttributes: {{pool: fast}}}}\n{more}"
    ))
}

fn attachment(status: &str) -> String {
    format!(
        "
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {{name: {ATTACHMENT}}}
spec: {{attacher: {DRIVER}, nodeName: edge, source: {{persistentVolumeName: pv}}}}
status: {{{status}}}
"
    )
}

/// A node whose driver needs no attaching.
fn ready(volume: &str, says: &str) -> ResolveRig {
    let says = driver_says(&format!("attachRequired: false, {says}"));
    ResolveRig::of(&format!("{volume}{says}")).driver(DRIVER, &["STAGE_UNSTAGE_VOLUME"])
}

/// Upstream's TestPluginGetVolumeName and TestMounterGetPath.
#[test]
fn a_drivers_volume_is_named_for_driver_and_handle() {
    let node = ready(
        &volume(""),
        "podInfoOnMount: true, requiresRepublish: false",
    );
    let resolved = node.resolve(&mounting(CLAIMING)).unwrap();
    let found = resolved.volume;
    assert_eq!(found.id.0, ID);
    assert_eq!((found.kind, found.folder.as_str()), (VolumeKind::Csi, "pv"));
    assert_eq!(found.mount_options, ["noatime"]);
    assert_eq!(found.attachment, Attachment::NotNeeded);
    let expected = CsiVolume {
        driver: DRIVER.into(),
        volume_handle: "vol-1".into(),
        fs_type: "ext4".into(),
        access_mode: Some(AccessMode::ReadWriteOnce),
        volume_context: string_map(&[("pool", "fast")]),
        pod_info: true,
        size: 1 << 30,
        ..CsiVolume::default()
    };
    assert_eq!(csi(&found), expected);
    assert_eq!(resolved.refresh_at, None);
}

/// Upstream's TestBlockMapperSetupDeviceNoClientError.
#[test]
fn a_driver_must_have_registered() {
    let says = driver_says("attachRequired: false");
    let node = ResolveRig::of(&format!("{}{says}", volume("")));
    const WHO: &str = "driver name csi.example.com not found in the list of registered CSI drivers";
    assert_eq!(
        node.refusal(&mounting(CLAIMING)),
        format!(
            "mounting FailedMount: MountVolume.MountDevice failed for volume \"pv\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: {WHO}"
        )
    );
    let raw = ResolveRig::of(&format!("{}{says}", volume("volumeMode: Block")));
    assert_eq!(
        raw.refusal(&mapping(CLAIMING)),
        format!(
            "mounting FailedMapVolume: MapVolume.SetUpDevice failed for volume \"pv\" : kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: {WHO}"
        )
    );
    let inline = mounting("csi: {driver: csi.example.com}");
    assert_eq!(
        node.refusal(&inline),
        format!(
            "mounting FailedMount: MountVolume.SetUp failed for volume \"data\" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {WHO}"
        )
    );
    assert_eq!(node.resolve(&inline).unwrap_err().until, RetryWhen::Changed);
}

/// Upstream's TestAttacherWaitForAttach.
#[test]
fn a_volume_waits_until_a_controller_has_attached_it() {
    let name = attachment_name("vol-1", DRIVER, "edge");
    let of = |status: Option<&str>| {
        let attachment = status.map(attachment).unwrap_or_default();
        let manifests = format!("{}{attachment}", volume("")).replace(ATTACHMENT, &name);
        ResolveRig::of(&manifests).driver(DRIVER, &[])
    };
    let waits = |cause: String| {
        format!(
            "attaching FailedMount: MountVolume.WaitForAttach failed for volume \"pv\" : {cause}"
        )
    };
    assert_eq!(
        of(None).refusal(&mounting(CLAIMING)),
        waits(format!(
            "volume vol-1 has GET error for volume attachment {name}: volumeattachments.storage.k8s.io \"{name}\" not found"
        ))
    );
    assert_eq!(
        of(Some("attached: false")).refusal(&mounting(CLAIMING)),
        waits(format!(
            "volume vol-1 is not attached for volume attachment {name}"
        ))
    );
    let failed = of(Some(
        "attached: false, attachError: {message: no such disk}",
    ));
    assert_eq!(
        failed.refusal(&mounting(CLAIMING)),
        waits("no such disk".into())
    );
    let done = of(Some("attached: true, attachmentMetadata: {device: sdb}"));
    let found = done.volume(&mounting(CLAIMING));
    assert_eq!(found.attachment, Attachment::Attached);
    assert_eq!(
        csi(&found).publish_context,
        string_map(&[("device", "sdb")])
    );
    let ending = attachment("attached: true").replace(
        "metadata: {",
        "metadata: {deletionTimestamp: '2026-01-01T00:00:00Z', ",
    );
    let ending = format!("{}{ending}", volume("")).replace(ATTACHMENT, &name);
    let ending = ResolveRig::of(&ending).driver(DRIVER, &[]);
    assert_eq!(
        ending.refusal(&mounting(CLAIMING)),
        waits("volume attachment is being deleted".into())
    );
    let uses = ending.resolve(&mounting(CLAIMING)).unwrap_err().uses;
    assert!(
        uses.iter()
            .any(|uses| uses.kind == "VolumeAttachment" && uses.name == name)
    );
}

/// Upstream's Test_Run_Positive_VolumeAttachAndMount of the reconciler, with a controller.
#[test]
fn a_volume_waits_until_the_nodes_object_says_that_it_is_attached() {
    let name = attachment_name("vol-1", DRIVER, "edge");
    let manifests = format!("{}{}", volume(""), attachment("attached: true"));
    let node = || ResolveRig::of(&manifests.replace(ATTACHMENT, &name)).driver(DRIVER, &[]);
    let id = node().volume(&mounting(CLAIMING)).id.0;
    let waits = "attaching FailedMount: MountVolume.WaitForAttach failed for volume \"pv\" : Volume not attached according to node status";
    assert_eq!(node().attached(&[]).refusal(&mounting(CLAIMING)), waits);
    let listed = node().attached(&[&id]).volume(&mounting(CLAIMING));
    assert_eq!(listed.attachment, Attachment::Attached);
    // What is mounted stays so, whatever the object says.
    let held = node().attached(&[]).taken(&id, &["web-uid"]);
    assert_eq!(
        held.volume(&mounting(CLAIMING)).attachment,
        Attachment::Attached
    );
    let unneeded = format!("{manifests}{}", driver_says("attachRequired: false"));
    let unneeded = ResolveRig::of(&unneeded).driver(DRIVER, &[]).attached(&[]);
    assert_eq!(
        unneeded.volume(&mounting(CLAIMING)).attachment,
        Attachment::NotNeeded
    );
}

/// Upstream's `PluginIsAttachable` of the desired state: reported whatever else is missing.
#[test]
fn a_volume_that_a_controller_is_to_attach_is_known_before_it_is_there() {
    let name = attachment_name("vol-1", DRIVER, "edge");
    let awaited = |node: ResolveRig| node.resolve(&mounting(CLAIMING)).unwrap_err().attachable;
    let id = Some(VolumeId(ID.into()));
    assert_eq!(awaited(ResolveRig::of(&volume(""))), id, "no attachment");
    let attached = format!("{}{}", volume(""), attachment("attached: true"));
    let attached = attached.replace(ATTACHMENT, &name);
    let unlisted = ResolveRig::of(&attached).driver(DRIVER, &[]).attached(&[]);
    assert_eq!(awaited(unlisted), id, "not attached says the node's object");
    assert_eq!(awaited(ResolveRig::of(&attached)), id, "no driver");
    let unneeded = format!("{attached}{}", driver_says("attachRequired: false"));
    assert_eq!(awaited(ResolveRig::of(&unneeded)), None);
    assert_eq!(
        awaited(ResolveRig::of("")),
        None,
        "which volume is not known"
    );
}

/// Upstream's TestWaitForAttachAndMountVolumeAttachLimitExceededError.
#[test]
fn a_full_node_is_told_apart_where_the_driver_tells_of_its_room() {
    let name = attachment_name("vol-1", DRIVER, "edge");
    let status = "attached: false, attachError: {message: full, errorCode: 8}";
    let of = |says: &str| {
        let manifests = format!("{}{}{}", volume(""), attachment(status), driver_says(says));
        let node = ResolveRig::of(&manifests.replace(ATTACHMENT, &name));
        node.resolve(&mounting(CLAIMING)).unwrap_err().reason
    };
    assert_eq!(
        of("nodeAllocatableUpdatePeriodSeconds: 60"),
        event_reasons::ATTACH_LIMIT
    );
    assert_eq!(of("nodeAllocatableUpdatePeriodSeconds: 0"), "FailedMount");
    assert_eq!(of(""), "FailedMount");
}

#[test]
fn names_are_upstreams() {
    assert_eq!(
        attachment_name("vol-1", DRIVER, "edge"),
        "csi-840f5d3f5eee44f084412410c78feadac9a557f7bd294d03222d3b89e548cc28"
    );
    let node = ready("", "volumeLifecycleModes: [Ephemeral]");
    let found = node.volume(&mounting("csi: {driver: csi.example.com}"));
    assert_eq!(
        csi(&found).volume_handle,
        "csi-320c2a3ac34db070de4c3ef9646697cc3392dd522cb32c54d98db0a45bcaf455"
    );
}

/// Upstream's TestMounterSetUpWithInline and TestMounterSetUpSimple.
#[test]
fn an_inline_volume_lives_with_its_pod() {
    let inline =
        "csi: {driver: csi.example.com, readOnly: true, fsType: ext4, volumeAttributes: {a: b}}";
    let node = ready("", "volumeLifecycleModes: [Persistent, Ephemeral]");
    let mut pod = mounting(inline);
    let security = serde_saphyr::from_str("{fsGroup: 3}").unwrap();
    pod.spec.as_mut().unwrap().security_context = Some(security);
    let found = node.volume(&pod);
    assert_eq!(found.id.0, "kubernetes.io/csi/web-uid-data");
    assert_eq!(
        (found.access, found.ownership),
        (VolumeAccess::ReadOnly, None)
    );
    let made = csi(&found);
    assert!(made.ephemeral);
    assert_eq!(made.access_mode, Some(AccessMode::ReadWriteOnce));
    assert_eq!(made.volume_context, string_map(&[("a", "b")]));
    let write = mounting(&inline.replace("true", "false"));
    assert_eq!(node.volume(&write).access, VolumeAccess::ReadWrite);
}

/// Upstream's TestMounterSetUp, as far as it is of lifecycle modes.
#[test]
fn a_driver_takes_volumes_of_the_lives_that_it_names() {
    const CHECK: &str =
        "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode";
    let inline = mounting("csi: {driver: csi.example.com}");
    let none = ResolveRig::of("").driver(DRIVER, &[]);
    assert_eq!(
        none.refusal(&inline),
        format!(
            "mounting FailedMount: MountVolume.SetUp failed for volume \"data\" : {CHECK} \"Ephemeral\" not supported by driver {DRIVER} (no CSIDriver object)"
        )
    );
    let persistent = ready(&volume(""), "volumeLifecycleModes: [Persistent]");
    assert_eq!(
        persistent.refusal(&inline),
        format!(
            "mounting FailedMount: MountVolume.SetUp failed for volume \"data\" : {CHECK} \"Ephemeral\" not supported by driver {DRIVER} (only supports [\"Persistent\"])"
        )
    );
    let ephemeral = ready(&volume(""), "volumeLifecycleModes: [Ephemeral]");
    assert_eq!(
        ephemeral.refusal(&mounting(CLAIMING)),
        format!(
            "mounting FailedMount: MountVolume.SetUp failed for volume \"pv\" : {CHECK} \"Persistent\" not supported by driver {DRIVER} (only supports [\"Ephemeral\"])"
        )
    );
    let default = ready(&volume(""), "");
    assert!(default.resolve(&mounting(CLAIMING)).is_ok());
    assert!(default.resolve(&inline).is_err());
}

#[test]
fn a_volume_for_one_pod_is_no_other_pods() {
    let single = volume("").replace(
        "accessModes: [ReadWriteOnce]\n  mount",
        "accessModes: [ReadWriteOncePod]\n  mount",
    );
    let node = ready(&single, "");
    assert!(node.resolve(&mounting(CLAIMING)).is_ok());
    let own = ready(&single, "").taken(ID, &["web-uid"]);
    let found = own.volume(&mounting(CLAIMING));
    assert_eq!(csi(&found).access_mode, Some(AccessMode::ReadWriteOncePod));
    let other = ready(&single, "").taken(ID, &["db-uid", "web-uid"]);
    assert_eq!(
        other.refusal(&mounting(CLAIMING)),
        "mounting FailedMount: MountVolume.SetUp failed for volume \"pv\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod"
    );
    let shared = ready(&volume(""), "").taken(ID, &["db-uid"]);
    assert!(shared.resolve(&mounting(CLAIMING)).is_ok());
    let both = single.replace("[ReadWriteOncePod]", "[ReadWriteOncePod, ReadWriteOnce]");
    let both = ready(&both, "").taken(ID, &["db-uid"]);
    assert!(both.resolve(&mounting(CLAIMING)).is_ok());
}

#[test]
fn a_node_takes_no_more_volumes_of_a_driver_than_it_says() {
    let limited = |most, taken: &[&str]| {
        let mut node = ready(&volume(""), "");
        node.backends.get_mut(DRIVER).unwrap().max_volumes = Some(most);
        taken.iter().fold(node, |node, id| {
            node.taken(&format!("kubernetes.io/csi/{id}"), &["db-uid"])
        })
    };
    let other = "other.example.com^x";
    let ok = |node: ResolveRig| node.resolve(&mounting(CLAIMING)).is_ok();
    assert!(ok(limited(2, &["csi.example.com^a", other])));
    assert!(ok(limited(0, &["csi.example.com^a"])));
    assert!(ok(limited(1, &["csi.example.com^vol-1"])));
    let full = limited(2, &["csi.example.com^a", "csi.example.com^b", other]);
    assert_eq!(
        full.refusal(&mounting(CLAIMING)),
        "mounting FailedMount: MountVolume.MountDevice failed for volume \"pv\" : node exceeds max volume count: driver csi.example.com takes at most 2 volumes on a node, and 2 are in use"
    );
}

/// Upstream's TestGetMountSELinuxLabel.
#[test]
fn a_label_is_on_the_mount_where_driver_volume_and_pod_allow() {
    let single = volume("").replace("[ReadWriteOnce]\n  mount", "[ReadWriteOncePod]\n  mount");
    let pod = |options: &str| {
        pod_of(&format!(
            "
securityContext: {{{options}}}
containers: [{{name: c, volumeMounts: [{{name: data, mountPath: /d}}]}}]
volumes: [{{name: data, {CLAIMING}}}]
"
        ))
    };
    let level = "seLinuxOptions: {level: 's0:c1,c2'}";
    let label = |volume: &str, says: &str, selinux, options: &str| {
        let node = ResolveRig {
            selinux,
            ..ready(volume, says)
        };
        node.volume(&pod(options)).selinux_label
    };
    const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";
    let says = "seLinuxMount: true";
    assert_eq!(label(&single, says, SeLinuxMountPolicy::On, level), LABEL);
    assert_eq!(label(&single, says, SeLinuxMountPolicy::Off, level), "");
    assert_eq!(label(&single, "", SeLinuxMountPolicy::On, level), "");
    assert_eq!(label(&volume(""), says, SeLinuxMountPolicy::On, level), "");
    assert_eq!(
        label(&volume(""), says, SeLinuxMountPolicy::OnForAll, level),
        LABEL
    );
    assert_eq!(label(&single, says, SeLinuxMountPolicy::On, ""), "");
    let recursive = format!("{level}, seLinuxChangePolicy: Recursive");
    assert_eq!(label(&single, says, SeLinuxMountPolicy::On, &recursive), "");
    let user = "seLinuxOptions: {user: u, role: r, type: spc_t, level: s0}";
    assert_eq!(
        label(&single, says, SeLinuxMountPolicy::On, user),
        "u:object_r:container_file_t:s0"
    );
    let mut two = pod(level);
    let other = "{name: d, securityContext: {seLinuxOptions: {level: 's0:c3'}}, volumeMounts: [{name: data, mountPath: /d}]}";
    let containers = &mut two.spec.as_mut().unwrap().containers;
    containers.push(serde_saphyr::from_str(other).unwrap());
    let node = ResolveRig {
        selinux: SeLinuxMountPolicy::On,
        ..ready(&single, says)
    };
    assert_eq!(
        node.refusal(&two),
        "processing FailedMount: multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,c2,system_u:object_r:container_file_t:s0:c3"
    );
}
