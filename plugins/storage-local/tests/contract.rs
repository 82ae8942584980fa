//! The contract that every storage plugin keeps.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use conformance::storage::{Names, Sample, Target, run};
use mounts::mount::{How, unmount_with};
use mounts::table::MountTable;
use proto::storage::volume::Source;
use proto::storage::{
    EmptyDir, File, FileSet, HostPath, Local, Medium, Mode, MountRequest, Pod, Volume,
};
use serde_json::json;

#[tokio::test]
async fn it_keeps_the_contract_of_storage_plugins() {
    let node = Node::new();
    let configuration = json!({ "rootDir": node.root() });
    let plugin = sdk::testing::start(
        node.folder.path(),
        storage_local::info("0"),
        configuration,
        storage_local::build,
    )
    .await
    .unwrap();
    run(Target {
        channel: plugin.channel.clone(),
        root: node.root(),
        samples: node.samples(),
    })
    .await
    .assert_kept();
}

/// A node of one test, with a folder and a disk of its own.
struct Node {
    folder: tempfile::TempDir,
    disk: PathBuf,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["kubelet/pods", "local", "host"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let image = folder.path().join("image");
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(8 << 20).unwrap();
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["--find", "--show"]).arg(&image).output();
        let device = String::from_utf8(made.unwrap().stdout).unwrap();
        Self {
            folder,
            disk: device.trim().into(),
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("kubelet")
    }

    fn samples(&self) -> Vec<Sample> {
        let local = |path: &Path| {
            Source::Local(Local {
                path: path.to_str().unwrap().to_owned(),
                ..Local::default()
            })
        };
        let host_path = HostPath {
            path: self.folder.path().join("host").display().to_string(),
            r#type: "Directory".to_owned(),
        };
        let files = |medium| {
            let file = |path: &str| File {
                path: path.to_owned(),
                data: path.as_bytes().to_vec(),
                mode: 0o644,
                owner: None,
            };
            Source::Files(FileSet {
                files: vec![file("plain"), file("folder/deep")],
                medium: i32::from(medium),
                ..FileSet::default()
            })
        };
        let (disk, memory) = (Medium::Default, Medium::Memory);
        let sample = |words, kind, source| sample(words, Mode::FileSystem, kind, source);
        vec![
            sample("emptyDir on disk", "empty-dir", empty_dir(disk)),
            sample("emptyDir in memory", "empty-dir", empty_dir(memory)),
            sample(
                "emptyDir in huge pages",
                "empty-dir",
                empty_dir(Medium::HugePages),
            ),
            sample("configMap", "configmap", files(disk)),
            sample("secret", "secret", files(memory)),
            sample("projected", "projected", files(memory)),
            sample("downwardAPI", "downward-api", files(memory)),
            sample("hostPath", "host-path", Source::HostPath(host_path)),
            sample(
                "local folder",
                "local-volume",
                local(&self.folder.path().join("local")),
            ),
            self::sample(
                "local disk, raw",
                Mode::Block,
                "local-volume",
                local(&self.disk),
            ),
        ]
    }
}

fn empty_dir(medium: Medium) -> Source {
    Source::EmptyDir(EmptyDir {
        medium: medium.into(),
        ..EmptyDir::default()
    })
}

fn sample(words: &'static str, mode: Mode, kind: &'static str, source: Source) -> Sample {
    let make = move |names: &Names| MountRequest {
        volume: Some(Volume {
            id: format!("kubernetes.io/{kind}/{}-{}", names.pod, names.volume),
            kind: kind.to_owned(),
            name: names.volume.clone(),
            source: Some(source.clone()),
        }),
        pod: Some(Pod {
            uid: names.pod.clone(),
            namespace: "default".to_owned(),
            name: "pod".to_owned(),
            service_account: "default".to_owned(),
        }),
        target: match mode {
            Mode::FileSystem => names.target(kind),
            Mode::Block => names.device(kind),
        },
        ..MountRequest::default()
    };
    Sample {
        words,
        mode,
        make: Arc::new(make),
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let table = MountTable::read().unwrap();
        for entry in table.below(self.folder.path()).into_iter().rev() {
            drop(unmount_with(&entry.mount_point, How::Detach));
        }
        let freed = Command::new("losetup").arg("-d").arg(&self.disk).status();
        assert!(freed.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
