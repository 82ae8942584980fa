//! Volumes with files: staged, mounted, unmounted, unstaged.

use std::fs;
use std::os::unix::fs::MetadataExt;

use proto::csi::volume_capability::AccessType;
use proto::csi::volume_capability::access_mode::Mode as CsiAccess;
use proto::csi::{NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest};
use proto::storage::volume::Source;
use proto::storage::{
    Access, Csi, ExpandRequest, MountRequest, Ownership, Secrets, StageRequest, State,
    StatsRequest, Volume,
};
use tonic::Code;

use crate::double::{Ability, Call, Manner};
use crate::rig::{ID, Rig, csi, is_mounted, rig, said, stage_request, volume, with};

fn of(csi: Csi) -> Option<Volume> {
    Some(Volume {
        source: Some(Source::Csi(csi)),
        ..volume()
    })
}

fn secret(value: &str) -> Option<Secrets> {
    Some(Secrets {
        values: [("key".to_owned(), value.to_owned())].into(),
    })
}

fn able(abilities: &[Ability]) -> Manner {
    Manner {
        abilities: abilities.to_vec(),
        ..Manner::default()
    }
}

async fn published(rig: &mut Rig, request: MountRequest) -> NodePublishVolumeRequest {
    rig.storage.mount(request).await.unwrap();
    match rig.double.calls().pop() {
        Some(Call::Publish(asked)) => asked,
        other => panic!("{other:?}"),
    }
}

async fn staged(rig: &mut Rig, request: StageRequest) -> NodeStageVolumeRequest {
    rig.storage.stage(request).await.unwrap();
    match rig.double.calls().pop() {
        Some(Call::Stage(asked)) => asked,
        other => panic!("{other:?}"),
    }
}

/// Upstream's TestAttacherMountDevice, TestMounterSetUp, TestUnmounterTeardown and TestAttacherUnmountDevice.
#[tokio::test]
async fn a_volume_goes_its_whole_way_twice_and_keeps_its_data() {
    let mut rig = rig().await;
    for round in 0..2 {
        let staging = rig.stage().await.unwrap();
        assert_eq!(staging, rig.staging());
        let path = rig.mount("u1").await.unwrap();
        assert_eq!(path, rig.target("u1"));
        assert!(is_mounted(&staging) && is_mounted(&path));
        assert_eq!(fs::exists(path.join("file")).unwrap(), round == 1);
        fs::write(path.join("file"), "data").unwrap();
        let state = |state, pod: &str| (state, ID.to_owned(), pod.to_owned());
        assert_eq!(
            rig.list().await,
            [state(State::Mounted, "u1"), state(State::Staged, "")]
        );
        rig.unmount("u1").await.unwrap();
        rig.unstage().await.unwrap();
        assert_eq!(
            rig.double.words(),
            ["stage", "publish", "unpublish", "unstage"]
        );
        assert_eq!(rig.list().await, []);
        rig.assert_clean();
    }
}

/// Every call may come again.
#[tokio::test]
async fn every_call_made_twice_changes_nothing() {
    let mut rig = rig().await;
    for _ in 0..2 {
        rig.stage().await.unwrap();
    }
    for _ in 0..2 {
        rig.mount("u1").await.unwrap();
    }
    assert_eq!(rig.home.mounts().len(), 2);
    for _ in 0..2 {
        rig.unmount("u1").await.unwrap();
    }
    for _ in 0..2 {
        rig.unstage().await.unwrap();
    }
    // What is gone needs no driver any more.
    assert_eq!(
        rig.double.words(),
        [
            "stage",
            "stage",
            "publish",
            "publish",
            "unpublish",
            "unstage"
        ]
    );
    rig.assert_clean();
}

/// Upstream's TestAttacherMountDevice: what is sent.
#[tokio::test]
async fn staging_tells_the_driver_what_it_needs_and_no_more() {
    let mut rig = rig().await;
    let asked = staged(
        &mut rig,
        StageRequest {
            volume: of(Csi {
                stage_secrets: secret("stage"),
                publish_secrets: secret("publish"),
                ..csi()
            }),
            mount_options: vec!["noatime".to_owned()],
            ownership: Some(Ownership {
                fs_group: 3000,
                policy: 0,
            }),
            ..stage_request()
        },
    )
    .await;
    assert_eq!(asked.volume_id, "vol-1");
    assert_eq!(
        asked.staging_target_path,
        rig.staging().display().to_string()
    );
    assert_eq!(
        asked.publish_context,
        [("device".to_owned(), "sdx".to_owned())].into()
    );
    assert_eq!(
        asked.volume_context,
        [("context".to_owned(), "c".to_owned())].into()
    );
    assert_eq!(
        asked.secrets,
        [("key".to_owned(), "stage".to_owned())].into()
    );
    let capability = asked.volume_capability.unwrap();
    assert_eq!(
        capability.access_mode.unwrap().mode(),
        CsiAccess::SingleNodeWriter
    );
    let Some(AccessType::Mount(mount)) = capability.access_type else {
        panic!("{:?}", capability.access_type);
    };
    assert_eq!(
        (mount.fs_type.as_str(), mount.mount_flags),
        ("ext4", vec!["noatime".to_owned()])
    );
    assert_eq!(mount.volume_mount_group, "");
}

/// Upstream's TestMounterSetUp: what is sent.
#[tokio::test]
async fn publishing_tells_the_driver_where_it_was_staged() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    let request = MountRequest {
        volume: of(Csi {
            publish_secrets: secret("publish"),
            pod_info: true,
            ..csi()
        }),
        access: Access::ReadOnly.into(),
        ..rig.mount_request("u1")
    };
    let asked = published(&mut rig, request).await;
    assert_eq!(
        asked.staging_target_path,
        rig.staging().display().to_string()
    );
    assert_eq!(asked.target_path, rig.target("u1").display().to_string());
    assert_eq!(
        asked.secrets,
        [("key".to_owned(), "publish".to_owned())].into()
    );
    assert_eq!(asked.volume_context["csi.storage.k8s.io/pod.name"], "web");
    assert!(asked.readonly);
    let written = fs::write(rig.target("u1").join("file"), "");
    assert_eq!(written.unwrap_err().raw_os_error(), Some(30));
}

/// Upstream's TestAttacherMountDevice and TestAttacherUnmountDevice without STAGE_UNSTAGE_VOLUME.
#[tokio::test]
async fn a_driver_that_does_not_stage_is_not_asked_to() {
    let mut rig = with(able(&[])).await;
    let staging = rig.stage().await.unwrap();
    assert!(staging.parent().unwrap().join("vol_data.json").exists());
    let request = rig.mount_request("u1");
    let asked = published(&mut rig, request).await;
    assert_eq!(asked.staging_target_path, "");
    rig.unmount("u1").await.unwrap();
    rig.unstage().await.unwrap();
    assert_eq!(rig.double.words(), ["unpublish"]);
    rig.assert_clean();
}

/// Upstream's TestMounterSetUpWithInline.
#[tokio::test]
async fn an_inline_volume_is_published_without_being_staged() {
    let mut rig = rig().await;
    let inline = Csi {
        volume_handle: "csi-0123".to_owned(),
        ephemeral: true,
        pod_info: true,
        publish_context: [].into(),
        ..csi()
    };
    let request = MountRequest {
        volume: of(inline.clone()),
        ..rig.mount_request("u1")
    };
    let asked = published(&mut rig, request).await;
    assert_eq!(
        (asked.volume_id.as_str(), asked.staging_target_path.as_str()),
        ("csi-0123", "")
    );
    assert_eq!(asked.volume_context["csi.storage.k8s.io/ephemeral"], "true");
    let listed = rig.list().await;
    assert_eq!(
        listed,
        [(
            State::Mounted,
            "kubernetes.io/csi/u1-pv-1".to_owned(),
            "u1".to_owned()
        )]
    );
    let stage = StageRequest {
        volume: of(inline),
        ..stage_request()
    };
    assert_eq!(
        said(rig.storage.stage(stage).await).0,
        Code::InvalidArgument
    );
    rig.unmount("u1").await.unwrap();
    rig.assert_clean();
}

/// Upstream's TestMounterSetUpWithFSGroup.
#[tokio::test]
async fn the_pod_s_group_gets_the_files_unless_the_driver_sets_it() {
    let group = Some(Ownership {
        fs_group: 3000,
        policy: 0,
    });
    for (abilities, access, set, told) in [
        (&[][..], Access::ReadWrite, true, ""),
        (&[], Access::ReadOnly, false, ""),
        (
            &[Ability::VolumeMountGroup],
            Access::ReadWrite,
            false,
            "3000",
        ),
    ] {
        let mut rig = with(able(abilities)).await;
        fs::create_dir_all(rig.double.kept("vol-1").join("folder")).unwrap();
        let request = MountRequest {
            ownership: group,
            access: access.into(),
            ..rig.mount_request("u1")
        };
        let asked = published(&mut rig, request).await;
        let Some(AccessType::Mount(mount)) = asked.volume_capability.unwrap().access_type else {
            panic!("no mount");
        };
        assert_eq!(mount.volume_mount_group, told);
        let folder = fs::metadata(rig.double.kept("vol-1").join("folder")).unwrap();
        assert_eq!(folder.gid() == 3000, set, "{abilities:?} {access:?}");
    }
}

/// Upstream's TestMounterSetUp with SELinux: the label is on the mount only if the driver can have it there.
#[tokio::test]
async fn a_label_goes_to_the_driver_only_if_it_can_have_it() {
    let mut rig = rig().await;
    for (selinux_mount, flags) in [
        (false, vec![]),
        (true, vec!["context=\"a:b:c:s0:c1,c2\"".to_owned()]),
    ] {
        let volume = of(Csi {
            selinux_mount,
            ..csi()
        });
        let label = "a:b:c:s0:c1,c2".to_owned();
        let stage = StageRequest {
            volume: volume.clone(),
            selinux_label: label.clone(),
            ..stage_request()
        };
        let asked = staged(&mut rig, stage).await;
        let Some(AccessType::Mount(mount)) = asked.volume_capability.unwrap().access_type else {
            panic!("no mount");
        };
        assert_eq!(mount.mount_flags, flags);
        let request = MountRequest {
            volume,
            selinux_label: label,
            ..rig.mount_request("u1")
        };
        let mounted = rig.storage.mount(request).await.unwrap().into_inner();
        assert_eq!(mounted.selinux_mounted, selinux_mount);
        let data = fs::read_to_string(rig.target("u1").with_file_name("vol_data.json")).unwrap();
        assert_eq!(
            data.contains("\"seLinuxMountContext\":\"a:b:c:s0:c1,c2\""),
            selinux_mount
        );
    }
}

#[tokio::test]
async fn a_volume_is_not_unstaged_while_a_pod_has_it() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    rig.mount("u1").await.unwrap();
    let (code, message) = said(rig.unstage().await);
    assert_eq!(code, Code::FailedPrecondition);
    let expected = format!(
        "is still mounted by other references [{}]",
        rig.target("u1").display()
    );
    assert!(message.ends_with(&expected), "{message}");
    assert!(is_mounted(&rig.target("u1")) && is_mounted(&rig.staging()));
    assert_eq!(rig.double.words(), ["stage", "publish"]);
}

#[tokio::test]
async fn one_volume_is_not_published_over_another() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    rig.mount("u1").await.unwrap();
    let request = MountRequest {
        volume: of(Csi {
            volume_handle: "vol-2".to_owned(),
            ..csi()
        }),
        ..rig.mount_request("u1")
    };
    let (code, message) = said(rig.storage.mount(request).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(
        message.ends_with("has volume vol-1 of driver d.example.com mounted already"),
        "{message}"
    );
}

/// Upstream's TestNodeExpand.
#[tokio::test]
async fn a_volume_is_grown_where_it_is_published_or_else_where_it_is_staged() {
    let mut rig = rig().await;
    let staging = rig.stage().await.unwrap().display().to_string();
    let target = rig.mount("u1").await.unwrap().display().to_string();
    rig.double.calls();
    for (path, expected) in [(target.as_str(), target.as_str()), ("", &staging)] {
        let request = ExpandRequest {
            volume: of(Csi {
                expand_secrets: secret("expand"),
                ..csi()
            }),
            path: path.to_owned(),
            size: 2000,
            within_ms: 20_000,
            ..ExpandRequest::default()
        };
        let grown = rig.storage.expand(request).await.unwrap();
        assert_eq!(grown.into_inner().size, 2000);
        let asked = rig.double.calls();
        let [
            Call::Expand(NodeExpandVolumeRequest {
                volume_path,
                staging_target_path,
                secrets,
                ..
            }),
        ] = asked.as_slice()
        else {
            panic!("{asked:?}");
        };
        assert_eq!(
            (volume_path.as_str(), staging_target_path),
            (expected, &staging)
        );
        assert_eq!(secrets["key"], "expand");
    }
}

/// Upstream's TestNodeExpand: not supported.
#[tokio::test]
async fn what_a_driver_cannot_it_is_not_asked() {
    let mut rig = with(able(&[])).await;
    let request = ExpandRequest {
        volume: Some(volume()),
        path: rig.target("u1").display().to_string(),
        size: 1,
        within_ms: 20_000,
        ..ExpandRequest::default()
    };
    let expected = "NodeExpand is not supported by the CSI driver d.example.com".to_owned();
    assert_eq!(
        said(rig.storage.expand(request).await),
        (Code::Unimplemented, expected)
    );
    let stats = stats(&rig);
    let expected = "metrics are not supported for d.example.com volumes".to_owned();
    assert_eq!(
        said(rig.storage.stats(stats).await),
        (Code::Unimplemented, expected)
    );
    assert_eq!(rig.double.words(), Vec::<&str>::new());
}

fn stats(rig: &Rig) -> StatsRequest {
    StatsRequest {
        volume_id: ID.to_owned(),
        kind: "csi".to_owned(),
        name: "pv-1".to_owned(),
        path: rig.target("u1").display().to_string(),
        driver: "d.example.com".to_owned(),
        volume_handle: "vol-1".to_owned(),
        within_ms: 20_000,
        staged: String::new(),
    }
}

/// Upstream's TestGetMetrics.
#[tokio::test]
async fn a_driver_tells_how_full_its_volume_is() {
    let mut rig = rig().await;
    rig.stage().await.unwrap();
    rig.mount("u1").await.unwrap();
    // `vol_data.json` names the driver that is to be called.
    let found = StatsRequest {
        driver: String::new(),
        volume_handle: String::new(),
        ..stats(&rig)
    };
    for request in [stats(&rig), found] {
        let figures = rig.storage.stats(request).await.unwrap().into_inner();
        assert_eq!((figures.capacity, figures.used), (Some(100), Some(40)));
        assert_eq!(figures.health.unwrap().message, "fine");
    }
}

#[tokio::test]
async fn a_volume_that_was_only_found_is_unstaged_by_its_path() {
    let mut rig = rig().await;
    let staging = rig.stage().await.unwrap();
    let request = proto::storage::UnstageRequest {
        kind: "csi".to_owned(),
        path: staging.display().to_string(),
        within_ms: 20_000,
        ..proto::storage::UnstageRequest::default()
    };
    rig.storage.unstage(request).await.unwrap();
    assert_eq!(rig.double.words(), ["stage", "unstage"]);
    rig.assert_clean();
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let mut rig = rig().await;
    let wrong = [
        of(Csi {
            driver: "../x".to_owned(),
            ..csi()
        }),
        of(Csi {
            volume_handle: String::new(),
            ..csi()
        }),
        Some(Volume {
            kind: "nfs".to_owned(),
            ..volume()
        }),
        Some(Volume {
            name: "../pv".to_owned(),
            ..volume()
        }),
        None,
    ];
    for volume in wrong {
        let request = MountRequest {
            volume: volume.clone(),
            ..rig.mount_request("u1")
        };
        assert_eq!(
            said(rig.storage.mount(request).await).0,
            Code::InvalidArgument,
            "{volume:?}"
        );
    }
    let outside = MountRequest {
        target: "/etc/x/mount".to_owned(),
        ..rig.mount_request("u1")
    };
    assert_eq!(
        said(rig.storage.mount(outside).await).0,
        Code::InvalidArgument
    );
    assert_eq!(rig.double.words(), Vec::<&str>::new());
}
