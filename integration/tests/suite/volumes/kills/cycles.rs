//! A volume's life, from its first call to its last, while plugin or driver are killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use integration::chaos::Chaos;
use integration::doubles::csi_driver::mount_table;
use integration::wait_until;
use proto::storage::storage_client::StorageClient;
use proto::storage::volume::Source;
use proto::storage::{
    AccessMode, Csi, EmptyDir, File, FileSet, Local, MapBlockRequest, Medium, Mode, MountRequest,
    Pod, StageRequest, UnmapBlockRequest, UnmountRequest, UnstageRequest, Volume,
};
use tonic::transport::Channel;

use super::rig::{CALL_MS, DRIVER, KillRig};

const DETACH_TIMEOUT: Duration = Duration::from_secs(10);

/// One volume of one pod.
pub(super) struct PodVolume {
    pub(super) volume: Volume,
    pub(super) uid: String,
    pub(super) target: PathBuf,
}

impl PodVolume {
    fn new(lane: &KillRig, uid: &str, volume: Volume) -> Self {
        let folder = format!("kubernetes.io~{}", volume.kind);
        let pod = lane.root.join("pods").join(uid);
        let mut target = pod.join("volumes").join(folder).join(&volume.name);
        if volume.kind == "csi" {
            target.push("mount");
        }
        Self {
            volume,
            uid: uid.to_owned(),
            target,
        }
    }

    fn client(&self, lane: &KillRig) -> StorageClient<Channel> {
        match self.volume.kind.as_str() {
            "csi" => lane.to_csi.clone(),
            _ => lane.to_local.clone(),
        }
    }

    fn pod(&self) -> Pod {
        Pod {
            uid: self.uid.clone(),
            namespace: "default".to_owned(),
            name: format!("pod-{}", self.uid),
            service_account: "default".to_owned(),
        }
    }

    fn mount_request(&self) -> MountRequest {
        MountRequest {
            volume: Some(self.volume.clone()),
            pod: Some(self.pod()),
            target: self.target.display().to_string(),
            within_ms: CALL_MS,
            ..Default::default()
        }
    }

    /// Mounts it, or gives up at the first failure, as for a pod that is gone by then.
    async fn mount(&self, lane: &KillRig, chaos: &mut Chaos) -> Option<PathBuf> {
        let what = format!("mount {}", self.volume.id);
        let request = self.mount_request();
        let call = async || {
            let answer = self.client(lane).mount(request.clone()).await;
            answer.map(|answer| PathBuf::from(answer.into_inner().path))
        };
        match chaos.below(4) {
            0 => lane.once(&what, call).await.ok(),
            _ => Some(lane.persist(&what, call).await),
        }
    }

    async fn unmount(&self, lane: &KillRig) {
        let what = format!("unmount {}", self.volume.id);
        let request = UnmountRequest {
            volume_id: self.volume.id.clone(),
            kind: self.volume.kind.clone(),
            name: self.volume.name.clone(),
            pod_uid: self.uid.clone(),
            target: self.target.display().to_string(),
            within_ms: CALL_MS,
        };
        lane.persist(&what, async || {
            self.client(lane).unmount(request.clone()).await
        })
        .await;
        assert!(!self.target.exists(), "{} is left", self.target.display());
    }

    fn assert_mounted_once(&self, path: &Path) {
        let mounts = mount_table::mounted_at(path);
        assert_eq!(mounts.len(), 1, "{}: {mounts:?}", self.volume.id);
    }
}

fn csi(handle: &str) -> Csi {
    Csi {
        driver: DRIVER.to_owned(),
        volume_handle: handle.to_owned(),
        access_mode: AccessMode::ReadWriteOnce.into(),
        ..Default::default()
    }
}

fn claim(handle: &str) -> Volume {
    Volume {
        id: format!("kubernetes.io/csi/{DRIVER}^{handle}"),
        kind: "csi".to_owned(),
        name: format!("pv-{handle}"),
        source: Some(Source::Csi(csi(handle))),
    }
}

async fn stage(lane: &KillRig, volume: &Volume, mode: Mode, chaos: &mut Chaos) -> bool {
    let what = format!("stage {}", volume.id);
    let request = StageRequest {
        volume: Some(volume.clone()),
        within_ms: CALL_MS,
        mode: mode.into(),
        ..Default::default()
    };
    let call = async || lane.to_csi.clone().stage(request.clone()).await;
    match chaos.below(6) {
        0 => lane.once(&what, call).await.is_ok(),
        _ => {
            lane.persist(&what, call).await;
            true
        }
    }
}

async fn unstage(lane: &KillRig, volume: &Volume, mode: Mode) {
    let what = format!("unstage {}", volume.id);
    let request = UnstageRequest {
        volume_id: volume.id.clone(),
        kind: volume.kind.clone(),
        within_ms: CALL_MS,
        mode: mode.into(),
        volume: Some(volume.clone()),
        ..Default::default()
    };
    lane.persist(&what, async || {
        lane.to_csi.clone().unstage(request.clone()).await
    })
    .await;
}

/// A persistent volume with two pods, one after the other: what the first writes, the second reads.
pub(super) async fn claimed(lane: Rc<KillRig>, run: u64, number: u64, mut chaos: Chaos) {
    let lane = &*lane;
    let handle = format!("h-{run}-{number}");
    let data = lane.with_driver(|driver| driver.create_volume(&handle).unwrap());
    let data = data.await;
    let volume = claim(&handle);
    let mut written = 0;
    if stage(lane, &volume, Mode::FileSystem, &mut chaos).await {
        for pod in 0..2 {
            let uid = format!("claim-{run}-{number}-{pod}");
            let place = PodVolume::new(lane, &uid, volume.clone());
            if let Some(path) = place.mount(lane, &mut chaos).await {
                place.assert_mounted_once(&path);
                fs::write(path.join(format!("file-{pod}")), &handle).unwrap();
                written += 1;
                // A pod that still has a volume keeps its folder.
                let kept = lane.remove_pod(&uid).await;
                assert!(!kept.is_empty(), "{uid}");
                assert_eq!(fs::read_dir(&path).unwrap().count(), written);
            }
            place.unmount(lane).await;
            assert_eq!(fs::read_dir(&data).unwrap().count(), written, "{handle}");
            assert_eq!(lane.remove_pod(&uid).await, Vec::<String>::new());
        }
    }
    unstage(lane, &volume, Mode::FileSystem).await;
    assert_eq!(fs::read_dir(&data).unwrap().count(), written, "{handle}");
}

/// A volume of the pod's own: it ends with its pod, and not before.
pub(super) async fn inline(lane: Rc<KillRig>, run: u64, mut chaos: Chaos) {
    let lane = &*lane;
    let uid = format!("inline-{run}");
    let handle = format!("csi-{run}");
    let mut volume = claim(&handle);
    volume.name = "scratch".to_owned();
    volume.source = Some(Source::Csi(Csi {
        ephemeral: true,
        // By which the driver learns that it is.
        pod_info: true,
        ..csi(&handle)
    }));
    let place = PodVolume::new(lane, &uid, volume);
    if let Some(path) = place.mount(lane, &mut chaos).await {
        place.assert_mounted_once(&path);
        fs::write(path.join("file"), &handle).unwrap();
        if let Some(again) = place.mount(lane, &mut chaos).await {
            place.assert_mounted_once(&again);
        }
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), handle);
    }
    place.unmount(lane).await;
    assert_eq!(lane.remove_pod(&uid).await, Vec::<String>::new());
    let data = lane.with_driver(|driver| driver.data(&handle)).await;
    assert!(!data.exists(), "{}", data.display());
}

/// The life of a raw block volume.
pub(super) async fn block(lane: Rc<KillRig>, run: u64, mut chaos: Chaos) {
    let lane = &*lane;
    use std::io::{Read, Write};
    let handle = format!("b-{run}");
    let file = lane.with_driver(|driver| driver.create_block(&handle, 1 << 16).unwrap());
    let file = file.await;
    let volume = claim(&handle);
    let uid = format!("block-{run}");
    let pod = lane.root.join("pods").join(&uid);
    let target = pod
        .join("volumeDevices/kubernetes.io~csi")
        .join(&volume.name);
    let place = PodVolume {
        volume: volume.clone(),
        uid: uid.clone(),
        target,
    };
    let mut written = false;
    if stage(lane, &volume, Mode::Block, &mut chaos).await {
        let request = MapBlockRequest {
            volume: Some(volume.clone()),
            pod: Some(place.pod()),
            target: place.target.display().to_string(),
            within_ms: CALL_MS,
            ..Default::default()
        };
        let what = format!("map {handle}");
        let device = lane.persist(&what, async || {
            lane.to_csi.clone().map_block(request.clone()).await
        });
        let device = device.await.into_inner().device;
        let mut opened = fs::File::options().write(true).open(&device).unwrap();
        opened.write_all(&[7; 4096]).unwrap();
        opened.sync_all().unwrap();
        drop(opened);
        written = true;
        let request = UnmapBlockRequest {
            volume_id: volume.id.clone(),
            kind: volume.kind.clone(),
            name: volume.name.clone(),
            pod_uid: uid.clone(),
            target: place.target.display().to_string(),
            within_ms: CALL_MS,
        };
        lane.persist(&format!("unmap {handle}"), async || {
            lane.to_csi.clone().unmap_block(request.clone()).await
        })
        .await;
    }
    unstage(lane, &volume, Mode::Block).await;
    assert_eq!(lane.remove_pod(&uid).await, Vec::<String>::new());
    // The kernel detaches a device when the last that looks at it, such as udev, has closed it.
    let is_detached = async || mount_table::loop_devices(&file).unwrap().is_empty();
    let detached = wait_until(DETACH_TIMEOUT, "the loop device is detached", is_detached);
    detached.await.unwrap();
    let mut first = [0; 4096];
    fs::File::open(&file)
        .unwrap()
        .read_exact(&mut first)
        .unwrap();
    assert_eq!(first == [7; 4096], written, "{handle}");
}

/// An emptyDir: what is in it outlives everything but its pod.
pub(super) async fn empty_dir(lane: Rc<KillRig>, run: u64, medium: Medium, mut chaos: Chaos) {
    let lane = &*lane;
    let uid = format!("empty-{}-{run}", medium.as_str_name().to_lowercase());
    let volume = Volume {
        id: format!("kubernetes.io/empty-dir/{uid}-scratch"),
        kind: "empty-dir".to_owned(),
        name: "scratch".to_owned(),
        source: Some(Source::EmptyDir(EmptyDir {
            medium: medium.into(),
            size_limit: 1 << 20,
            ..Default::default()
        })),
    };
    let place = PodVolume::new(lane, &uid, volume);
    if let Some(path) = place.mount(lane, &mut chaos).await {
        fs::create_dir(path.join("deep")).unwrap();
        fs::write(path.join("deep/file"), &uid).unwrap();
        // An agent that comes back mounts again what is mounted.
        place.mount(lane, &mut chaos).await;
        let kept = lane.remove_pod(&uid).await;
        assert_eq!(
            fs::read_to_string(path.join("deep/file")).unwrap(),
            uid,
            "{kept:?}"
        );
        if medium == Medium::Memory {
            place.assert_mounted_once(&path);
        }
    }
    place.unmount(lane).await;
    assert_eq!(lane.remove_pod(&uid).await, Vec::<String>::new());
}

/// The files of a configMap or a secret: always of one version.
pub(super) async fn files(lane: Rc<KillRig>, run: u64, kind: &str, mut chaos: Chaos) {
    let lane = &*lane;
    let uid = format!("{kind}-{run}");
    let medium = match kind {
        "configmap" => Medium::Default,
        _ => Medium::Memory,
    };
    let of_version = |version: u64| {
        let file = |name: &str| File {
            path: name.to_owned(),
            data: version.to_string().into_bytes(),
            mode: 0o644,
            owner: None,
        };
        Volume {
            id: format!("kubernetes.io/{kind}/{uid}-files"),
            kind: kind.to_owned(),
            name: "files".to_owned(),
            source: Some(Source::Files(FileSet {
                files: vec![file("a"), file("b/c")],
                medium: medium.into(),
                ..Default::default()
            })),
        }
    };
    let mut last = None;
    for version in 1..=3 {
        let place = PodVolume::new(lane, &uid, of_version(version));
        let path = place.mount(lane, &mut chaos).await;
        let there = path.as_ref().or(last.as_ref());
        if let Some(there) = there {
            let read = |name: &str| fs::read_to_string(there.join(name)).unwrap();
            let (a, c) = (read("a"), read("b/c"));
            assert!(path.is_none() || a == version.to_string(), "{a}");
            assert_eq!(a, c, "{uid}: two versions at once");
        }
        last = path.or(last);
    }
    let place = PodVolume::new(lane, &uid, of_version(3));
    place.unmount(lane).await;
    assert_eq!(lane.remove_pod(&uid).await, Vec::<String>::new());
}

/// A folder of the node as a persistent volume.
pub(super) async fn local(lane: Rc<KillRig>, run: u64, mut chaos: Chaos) {
    let lane = &*lane;
    let folder = lane.root.join(format!("disk-{run}"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("precious"), "data").unwrap();
    let uid = format!("local-{run}");
    let volume = Volume {
        id: format!("kubernetes.io/local-volume/pv-{run}"),
        kind: "local-volume".to_owned(),
        name: format!("pv-{run}"),
        source: Some(Source::Local(Local {
            path: folder.display().to_string(),
            fs_type: String::new(),
        })),
    };
    let place = PodVolume::new(lane, &uid, volume);
    if let Some(path) = place.mount(lane, &mut chaos).await {
        place.assert_mounted_once(&path);
        assert_eq!(fs::read_to_string(path.join("precious")).unwrap(), "data");
        let kept = lane.remove_pod(&uid).await;
        assert!(!kept.is_empty());
    }
    place.unmount(lane).await;
    assert_eq!(lane.remove_pod(&uid).await, Vec::<String>::new());
    let kept = fs::read_to_string(folder.join("precious")).unwrap();
    assert_eq!(kept, "data");
    fs::remove_dir_all(&folder).unwrap();
}
