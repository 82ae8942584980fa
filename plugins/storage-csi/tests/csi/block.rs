//! Raw block volumes.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use proto::csi::volume_capability::AccessType;
use proto::storage::{
    MapBlockRequest, Mode, StageRequest, State, UnmapBlockRequest, UnstageRequest,
};
use tonic::{Code, Status};

use crate::double::{Call, Fault, Manner};
use crate::rig::{ID, Rig, is_mounted, rig, said, stage_request, volume, with};

/// Lets go of what a failed test holds.
pub(crate) struct Released(pub(crate) PathBuf);

impl Drop for Released {
    fn drop(&mut self) {
        for device in held(&self.0) {
            drop(Command::new("losetup").arg("-d").arg(device).status());
        }
    }
}

/// The loop devices over paths below a folder.
fn held(folder: &Path) -> Vec<PathBuf> {
    let folder = fs::canonicalize(folder).unwrap();
    let devices = fs::read_dir("/sys/block")
        .unwrap()
        .map(|device| device.unwrap());
    let over = devices.filter(|device| {
        let file = fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        file.starts_with(folder.as_os_str().as_bytes())
    });
    over.map(|device| Path::new("/dev").join(device.file_name()))
        .collect()
}

fn link(rig: &Rig, pod: &str) -> PathBuf {
    rig.root
        .join("pods")
        .join(pod)
        .join("volumeDevices/kubernetes.io~csi/pv-1")
}

fn devices(rig: &Rig) -> PathBuf {
    rig.root.join("plugins/kubernetes.io/csi/volumeDevices")
}

pub(crate) async fn stage(rig: &mut Rig) -> Result<PathBuf, Status> {
    let request = StageRequest {
        mode: Mode::Block.into(),
        ..stage_request()
    };
    let staged = rig.storage.stage(request).await?;
    Ok(PathBuf::from(staged.into_inner().path))
}

pub(crate) async fn map(rig: &mut Rig, pod: &str) -> Result<PathBuf, Status> {
    let request = MapBlockRequest {
        volume: Some(volume()),
        pod: rig.mount_request(pod).pod,
        target: link(rig, pod).display().to_string(),
        within_ms: 20_000,
        ..MapBlockRequest::default()
    };
    let mapped = rig.storage.map_block(request).await?;
    Ok(PathBuf::from(mapped.into_inner().device))
}

pub(crate) async fn unmap(rig: &mut Rig, pod: &str) -> Result<(), Status> {
    let request = UnmapBlockRequest {
        volume_id: ID.to_owned(),
        kind: "csi".to_owned(),
        name: "pv-1".to_owned(),
        pod_uid: pod.to_owned(),
        target: link(rig, pod).display().to_string(),
        within_ms: 20_000,
    };
    rig.storage.unmap_block(request).await.map(drop)
}

pub(crate) async fn unstage(rig: &mut Rig, path: &str) -> Result<(), Status> {
    let request = UnstageRequest {
        volume_id: ID.to_owned(),
        kind: "csi".to_owned(),
        path: path.to_owned(),
        volume: path.is_empty().then(volume),
        mode: Mode::Block.into(),
        within_ms: 20_000,
    };
    rig.storage.unstage(request).await.map(drop)
}

/// Upstream's TestBlockMapperSetupDevice, TestBlockMapperMapPodDevice, TestBlockMapperTearDownDevice,
/// TestVolumeSetupTeardown.
#[tokio::test]
async fn a_raw_volume_goes_its_whole_way_twice() {
    let mut rig = rig().await;
    let _released = Released(rig.home.path().to_owned());
    for _ in 0..2 {
        let staging = stage(&mut rig).await.unwrap();
        assert_eq!(staging, devices(&rig).join("staging/pv-1"));
        let device = map(&mut rig, "u1").await.unwrap();
        assert_eq!(device, link(&rig, "u1"));
        let published = devices(&rig).join("publish/pv-1/u1");
        assert_eq!(fs::read_link(&device).unwrap(), published);
        let bound = devices(&rig).join("pv-1/dev/u1");
        assert!(is_mounted(&published) && is_mounted(&bound));
        assert_eq!(held(&bound).len(), 1);
        let state = |state, pod: &str| (state, ID.to_owned(), pod.to_owned());
        assert_eq!(
            rig.list().await,
            [state(State::Mapped, "u1"), state(State::StagedBlock, "")]
        );
        unmap(&mut rig, "u1").await.unwrap();
        assert_eq!(held(rig.home.path()), Vec::<PathBuf>::new());
        unstage(&mut rig, "").await.unwrap();
        assert_eq!(
            rig.double.words(),
            ["stage", "publish", "unpublish", "unstage"]
        );
        assert_eq!(rig.list().await, []);
        rig.assert_clean();
    }
}

#[tokio::test]
async fn every_call_about_a_raw_volume_made_twice_changes_nothing() {
    let mut rig = rig().await;
    let _released = Released(rig.home.path().to_owned());
    for _ in 0..2 {
        stage(&mut rig).await.unwrap();
    }
    for _ in 0..2 {
        map(&mut rig, "u1").await.unwrap();
    }
    assert_eq!(rig.home.mounts().len(), 2);
    assert_eq!(held(rig.home.path()).len(), 1);
    for _ in 0..2 {
        unmap(&mut rig, "u1").await.unwrap();
    }
    for _ in 0..2 {
        unstage(&mut rig, "").await.unwrap();
    }
    rig.assert_clean();
}

#[tokio::test]
async fn a_driver_hears_that_a_volume_is_raw() {
    let mut rig = rig().await;
    let _released = Released(rig.home.path().to_owned());
    stage(&mut rig).await.unwrap();
    map(&mut rig, "u1").await.unwrap();
    let calls = rig.double.calls();
    let staging = devices(&rig).join("staging/pv-1").display().to_string();
    for call in calls.iter().filter(|call| call.word() != "info") {
        let (capability, path) = match call {
            Call::Stage(asked) => (&asked.volume_capability, &asked.staging_target_path),
            Call::Publish(asked) => (&asked.volume_capability, &asked.staging_target_path),
            Call::Unstage(_)
            | Call::Unpublish(_)
            | Call::Stats(_)
            | Call::Expand(_)
            | Call::Info => {
                panic!("{call:?}")
            }
        };
        let access = &capability.as_ref().unwrap().access_type;
        assert!(matches!(access, Some(AccessType::Block(_))), "{access:?}");
        assert_eq!(*path, staging);
    }
}

/// Upstream's TestBlockMapperSetupDeviceError.
#[tokio::test]
async fn a_raw_volume_that_cannot_be_staged_leaves_nothing() {
    let mut rig = rig().await;
    rig.double.fail("stage", Fault::Says(Code::Internal));
    let expected = "rpc error: code = Internal desc = boom".to_owned();
    assert_eq!(said(stage(&mut rig).await), (Code::Internal, expected));
    rig.assert_clean();
    rig.double
        .fail("stage", Fault::Says(Code::DeadlineExceeded));
    assert_eq!(said(stage(&mut rig).await).0, Code::DeadlineExceeded);
    // It may still be going on: what is written down stays.
    assert_eq!(
        rig.list().await,
        [(State::StagedBlock, ID.to_owned(), String::new())]
    );
    unstage(&mut rig, "").await.unwrap();
    rig.assert_clean();
}

#[tokio::test]
async fn a_raw_volume_is_not_unstaged_while_a_pod_has_it() {
    let mut rig = rig().await;
    let _released = Released(rig.home.path().to_owned());
    stage(&mut rig).await.unwrap();
    map(&mut rig, "u1").await.unwrap();
    let (code, message) = said(unstage(&mut rig, "").await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(
        message.ends_with("is still published for the pods [u1]"),
        "{message}"
    );
}

/// Upstream's TestBlockMapperMapPodDeviceNotSupportAttach and drivers without STAGE_UNSTAGE_VOLUME.
#[tokio::test]
async fn a_raw_volume_of_a_driver_that_does_not_stage_is_taken_away_by_its_path() {
    let manner = Manner {
        abilities: vec![],
        ..Manner::default()
    };
    let mut rig = with(manner).await;
    let _released = Released(rig.home.path().to_owned());
    let staging = stage(&mut rig).await.unwrap();
    map(&mut rig, "u1").await.unwrap();
    // The node was restarted in between: nothing is known but what is found.
    let found = rig.list().await;
    assert_eq!(found.len(), 2, "{found:?}");
    unmap(&mut rig, "u1").await.unwrap();
    unstage(&mut rig, staging.to_str().unwrap()).await.unwrap();
    assert_eq!(rig.double.words(), ["publish", "unpublish"]);
    rig.assert_clean();
}

/// Crashed after the driver had published, before anything was bound; and after the link was removed, before the driver
/// was asked.
#[tokio::test]
async fn a_raw_volume_that_is_half_mapped_is_listed_and_goes_both_ways() {
    let mut rig = rig().await;
    let _released = Released(rig.home.path().to_owned());
    stage(&mut rig).await.unwrap();
    map(&mut rig, "u1").await.unwrap();
    fs::remove_file(link(&rig, "u1")).unwrap();
    assert_eq!(rig.list().await[0].0, State::Mapped);
    map(&mut rig, "u1").await.unwrap();
    assert!(link(&rig, "u1").is_symlink());
    fs::remove_file(link(&rig, "u1")).unwrap();
    rig.double.fail("unpublish", Fault::Says(Code::Unavailable));
    assert_eq!(said(unmap(&mut rig, "u1").await).0, Code::Unavailable);
    assert_eq!(rig.list().await[0].0, State::Mapped);
    unmap(&mut rig, "u1").await.unwrap();
    unstage(&mut rig, "").await.unwrap();
    rig.assert_clean();
}
