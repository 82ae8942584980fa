//! The CSI driver of these tests does as CSI says, fails as ordered, and complains of callers that do not keep to the
//! protocol: else what other tests prove with it would be worth nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use integration::doubles::csi_driver::{
    CsiDriver, DriverFault, DriverFaultAction, FaultPoint, mount_table,
};
use integration::wait_until;
use proto::csi;
use proto::csi::node_client::NodeClient;
use proto::csi::volume_capability::access_mode::Mode;
use proto::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Generous: the machine may be busy.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// A driver, and a caller that makes the folders as an agent does. Dropped in this order.
struct Rig {
    driver: CsiDriver,
    _dir: TempDir,
    root: PathBuf,
}

impl Rig {
    async fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let own = dir.path().join("driver");
        let driver = CsiDriver::start("a.example.com", &own, &root, flags).await;
        let driver = driver.unwrap();
        fs::create_dir_all(root.join("staging")).unwrap();
        Self {
            driver,
            _dir: dir,
            root,
        }
    }

    fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.driver.channel())
    }

    fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }

    async fn stage(&self, volume: &str) -> Result<(), Status> {
        let request = csi::NodeStageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: text(&self.staging()),
            volume_capability: capability(Mode::SingleNodeMultiWriter),
            ..Default::default()
        };
        self.node().node_stage_volume(request).await.map(drop)
    }

    async fn unstage(&self, volume: &str) -> Result<(), Status> {
        let request = csi::NodeUnstageVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: text(&self.staging()),
        };
        self.node().node_unstage_volume(request).await.map(drop)
    }

    fn publish_request(&self, volume: &str, target: &Path) -> csi::NodePublishVolumeRequest {
        csi::NodePublishVolumeRequest {
            volume_id: volume.to_owned(),
            staging_target_path: text(&self.staging()),
            target_path: text(target),
            volume_capability: capability(Mode::SingleNodeMultiWriter),
            ..Default::default()
        }
    }

    async fn publish(&self, request: csi::NodePublishVolumeRequest) -> Result<(), Status> {
        self.node().node_publish_volume(request).await.map(drop)
    }

    async fn unpublish(&self, volume: &str, target: &Path) -> Result<(), Status> {
        let request = csi::NodeUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            target_path: text(target),
        };
        self.node().node_unpublish_volume(request).await.map(drop)
    }

    fn complaints(&self) -> Vec<String> {
        let complaints = self.driver.complaints().unwrap().into_iter();
        complaints.map(|complaint| complaint.text).collect()
    }

    fn assert_nothing_mounted(&self) {
        assert_eq!(self.driver.mounts(), []);
        assert_eq!(self.driver.in_use().unwrap(), Vec::<PathBuf>::new());
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn capability(mode: Mode) -> Option<csi::VolumeCapability> {
    Some(csi::VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    })
}

#[tokio::test]
async fn a_volume_goes_to_its_target_and_back_and_keeps_its_data() {
    let rig = Rig::start(&[]).await;
    let data = rig.driver.create_volume("v").unwrap();
    let target = rig.root.join("target");
    for turn in 0..2 {
        for _ in 0..2 {
            rig.stage("v").await.unwrap();
        }
        for _ in 0..2 {
            let request = rig.publish_request("v", &target);
            rig.publish(request).await.unwrap();
        }
        assert_eq!(mount_table::mounted_at(&target).len(), 1);
        let file = format!("file-{turn}");
        fs::write(target.join(&file), "kept").unwrap();
        assert_eq!(fs::read_to_string(data.join(&file)).unwrap(), "kept");
        for _ in 0..2 {
            rig.unpublish("v", &target).await.unwrap();
        }
        assert!(!target.exists());
        for _ in 0..2 {
            rig.unstage("v").await.unwrap();
        }
    }
    assert_eq!(fs::read_dir(&data).unwrap().count(), 2);
    rig.assert_nothing_mounted();
    assert_eq!(rig.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn a_block_volume_is_a_device_that_grows() {
    let rig = Rig::start(&[]).await;
    let file = rig.driver.create_block("b", 1 << 20).unwrap();
    let block = Some(csi::VolumeCapability {
        access_mode: capability(Mode::SingleNodeMultiWriter).unwrap().access_mode,
        access_type: Some(AccessType::Block(BlockVolume {})),
    });
    let stage = csi::NodeStageVolumeRequest {
        volume_id: "b".to_owned(),
        staging_target_path: text(&rig.staging()),
        volume_capability: block.clone(),
        ..Default::default()
    };
    rig.node().node_stage_volume(stage).await.unwrap();
    let target = rig.root.join("device");
    let mut publish = rig.publish_request("b", &target);
    publish.volume_capability = block;
    rig.publish(publish).await.unwrap();
    let size = |path: &Path| {
        use std::io::Seek;
        let mut opened = fs::File::open(path).unwrap();
        opened.seek(std::io::SeekFrom::End(0)).unwrap()
    };
    assert_eq!(size(&target), 1 << 20);
    let expand = csi::NodeExpandVolumeRequest {
        volume_id: "b".to_owned(),
        volume_path: text(&target),
        capacity_range: Some(csi::CapacityRange {
            required_bytes: 2 << 20,
            limit_bytes: 0,
        }),
        ..Default::default()
    };
    rig.node().node_expand_volume(expand).await.unwrap();
    assert_eq!(size(&target), 2 << 20);
    rig.unpublish("b", &target).await.unwrap();
    rig.unstage("b").await.unwrap();
    assert_eq!(
        mount_table::loop_devices(&file).unwrap(),
        Vec::<PathBuf>::new()
    );
    rig.assert_nothing_mounted();
}

#[tokio::test]
async fn a_caller_who_breaks_the_protocol_is_refused_and_complained_of() {
    let rig = Rig::start(&["--stage-secret=key=word"]).await;
    rig.driver.create_volume("v").unwrap();
    let target = rig.root.join("target");
    let early = rig.publish(rig.publish_request("v", &target)).await;
    assert_eq!(early.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(
        rig.stage("v").await.unwrap_err().code(),
        Code::Unauthenticated
    );
    let mut words = rig.complaints();
    assert!(
        words[0].starts_with("published before it was staged"),
        "{words:?}"
    );
    assert!(
        words[1].starts_with("the secret key is missing"),
        "{words:?}"
    );

    let rig = Rig::start(&[]).await;
    rig.driver.create_volume("v").unwrap();
    rig.stage("v").await.unwrap();
    let target = rig.root.join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("mine"), "precious").unwrap();
    let hidden = rig.publish(rig.publish_request("v", &target)).await;
    assert_eq!(hidden.unwrap_err().code(), Code::FailedPrecondition);
    rig.unpublish("v", &target).await.unwrap_err();
    assert!(target.join("mine").exists());
    fs::remove_file(target.join("mine")).unwrap();

    rig.publish(rig.publish_request("v", &target))
        .await
        .unwrap();
    let mut other = rig.publish_request("v", &target);
    other.readonly = true;
    let twice = rig.publish(other).await.unwrap_err();
    assert_eq!(twice.code(), Code::AlreadyExists);
    let early = rig.unstage("v").await.unwrap_err();
    assert_eq!(early.code(), Code::FailedPrecondition);
    let others = rig.unpublish("w", &target).await.unwrap_err();
    assert_eq!(others.code(), Code::InvalidArgument);
    nix::mount::umount(&target).unwrap();
    rig.unpublish("v", &target).await.unwrap();
    words = rig.complaints();
    let expected = [
        "holds data, and is no mount",
        "holds data beside the volume",
        "published at",
        "unstaged while it is published",
        "is another volume's",
        "was unmounted behind the driver's back",
    ];
    assert_eq!(words.len(), expected.len(), "{words:#?}");
    for (word, expected) in words.iter().zip(expected) {
        assert!(word.contains(expected), "{word}, expected {expected}");
    }
}

#[tokio::test]
async fn calls_beside_each_other_are_complained_of_and_calls_given_up_are_not() {
    let rig = Rig::start(&[]).await;
    rig.driver.create_volume("v").unwrap();
    let slow = DriverFault::at(
        "NodeStageVolume",
        FaultPoint::Before,
        DriverFaultAction::Delay(2_000),
    );
    rig.driver.set_faults(&[slow.times(1)]).unwrap();
    let (first, second) = tokio::join!(rig.stage("v"), async {
        wait_until(CONVERGENCE_TIMEOUT, "the first call has come", async || {
            let calls = rig.driver.journal().unwrap();
            calls.iter().any(|call| call.name == "NodeStageVolume")
        })
        .await
        .unwrap();
        rig.stage("v").await
    });
    assert!(first.is_ok(), "{first:?}");
    assert_eq!(second.unwrap_err().code(), Code::Aborted);
    assert_eq!(rig.complaints().len(), 1);

    let hang = DriverFault::at(
        "NodeUnstageVolume",
        FaultPoint::Before,
        DriverFaultAction::Hang,
    );
    rig.driver.set_faults(&[hang.times(1)]).unwrap();
    let given_up = tokio::time::timeout(Duration::from_millis(200), rig.unstage("v"));
    assert!(given_up.await.is_err());
    rig.unstage("v").await.unwrap();
    assert_eq!(rig.complaints().len(), 1);
    rig.assert_nothing_mounted();
}

#[tokio::test]
async fn faults_come_as_ordered_and_what_is_written_down_outlives_a_crash() {
    let mut rig = Rig::start(&[]).await;
    rig.driver.create_volume("v").unwrap();
    for when in [FaultPoint::Before, FaultPoint::Between, FaultPoint::After] {
        let fault = DriverFault::at("NodeStageVolume", when, DriverFaultAction::Crash)
            .of("v")
            .times(1);
        rig.driver.set_faults(&[fault]).unwrap();
        rig.stage("v").await.unwrap_err();
        wait_until(CONVERGENCE_TIMEOUT, "the crash is seen", async || {
            rig.driver.revive().unwrap()
        })
        .await
        .unwrap();
        wait_until(CONVERGENCE_TIMEOUT, "the driver serves again", async || {
            rig.stage("v").await.is_ok()
        })
        .await
        .unwrap();
        assert_eq!(mount_table::mounted_at(&rig.staging()).len(), 1);
        rig.unstage("v").await.unwrap();
    }
    let code = Code::ResourceExhausted;
    let refusal = DriverFaultAction::Error {
        code: code.into(),
        message: "no room".to_owned(),
    };
    for act in [
        refusal,
        DriverFaultAction::Garbage,
        DriverFaultAction::Noise,
    ] {
        let fault = DriverFault::at("NodeStageVolume", FaultPoint::After, act.clone());
        rig.driver.set_faults(&[fault]).unwrap();
        let refused = rig.stage("v").await.unwrap_err();
        let as_ordered = refused.code() == code && refused.message() == "no room";
        assert_eq!(
            as_ordered,
            matches!(act, DriverFaultAction::Error { .. }),
            "{refused:?}"
        );
        rig.unstage("v").await.unwrap();
    }
    rig.assert_nothing_mounted();
    assert_eq!(rig.complaints(), Vec::<String>::new());
}
