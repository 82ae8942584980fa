//! CheckpointContainer, with CRIU where it is installed and the kernel is one that it knows.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use proto::cri::{CheckpointContainerRequest, ContainerState};
use tonic::{Code, Status};

use crate::rig::Rig;

#[tokio::test]
async fn a_running_container_is_written_to_an_archive_by_runc_and_runs_on() {
    is_checkpointed(&Rig::start().await).await;
}

#[tokio::test]
async fn a_running_container_is_written_to_an_archive_by_the_runtime_that_we_bring() {
    is_checkpointed(&Rig::start_own(serde_json::json!({})).await).await;
}

/// What CRIU is on this machine.
fn criu() -> Result<(), Code> {
    match Command::new("criu").arg("check").output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err(Code::Internal),
        Err(_) => Err(Code::Unimplemented),
    }
}

async fn checkpoint(rig: &Rig, container: &str, location: &Path) -> Result<(), Status> {
    let request = CheckpointContainerRequest {
        container_id: container.to_owned(),
        location: location.display().to_string(),
        // The most that can be asked for.
        timeout: i64::MAX,
    };
    let answer = rig.runtime().checkpoint_container(request).await;
    answer.map(|_| ())
}

async fn is_checkpointed(rig: &Rig) {
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let script = "echo begun; echo mine > /written; exec sleep 3600";
    let container = rig.run((&id, &pod), rig.container("main", script)).await;
    rig.exec(&container, "until [ -s /written ]; do :; done")
        .await;
    let location = rig.root().join("checkpoint.tar");
    let relative = checkpoint(rig, &container, Path::new("x.tar")).await;
    assert_eq!(relative.unwrap_err().code(), Code::InvalidArgument);
    // The second replaces the first.
    for _ in 0..2 {
        let taken = checkpoint(rig, &container, &location).await;
        match (criu(), taken) {
            (Ok(()), taken) => {
                taken.unwrap();
                assert_whole(&location);
            }
            (Err(code), taken) => {
                let status = taken.unwrap_err();
                assert_eq!(status.code(), code, "{status}");
                assert!(status.message().contains("criu"), "{status}");
                assert!(!location.exists());
            }
        }
    }
    assert_eq!(
        rig.status(&container).await.state(),
        ContainerState::ContainerRunning
    );
    assert_eq!(rig.exec(&container, "cat /written").await.0, "mine\n");
    let left = rig
        .root()
        .join("containers")
        .join(&container)
        .join("checkpoint");
    assert!(!left.exists());
    rig.remove_pod(&id).await;
    let gone = checkpoint(rig, &container, &location).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
}

fn assert_whole(location: &Path) {
    let mut archive = tar::Archive::new(File::open(location).unwrap());
    let mut found = Vec::new();
    let mut written = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().into_owned();
        if path == Path::new("rootfs-diff.tar") {
            let mut layer = tar::Archive::new(&mut entry);
            let paths = layer.entries().unwrap();
            written = paths
                .map(|entry| entry.unwrap().path().unwrap().into_owned())
                .collect();
        }
        found.push(path);
    }
    for part in [
        "checkpoint/inventory.img",
        "config.dump",
        "container.log",
        "dump.log",
        "rootfs-diff.tar",
        "spec.dump",
    ] {
        assert!(found.contains(&PathBuf::from(part)), "{part}: {found:?}");
    }
    assert!(written.contains(&PathBuf::from("written")), "{written:?}");
    assert!(
        !found.iter().any(|path| path.starts_with(".criu")),
        "{found:?}"
    );
    let private = fs::metadata(location).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&private.permissions()) & 0o777,
        0o600
    );
}
