//! Files of the plugin's folder damaged while it is away: each costs its own subject at most, and nothing runs twice or
//! without an owner.

use std::fs;
use std::path::{Path, PathBuf};

use proto::cri::*;

use crate::rig::{Rig, wait_until};

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Emptied,
    Cut,
    Longer,
}

fn damage(path: &Path, how: Damage) {
    let whole = fs::read(path).unwrap();
    let damaged = match how {
        Damage::Emptied => Vec::new(),
        Damage::Cut => whole[..whole.len() / 2].to_vec(),
        Damage::Longer => [&whole[..], b"\0tail"].concat(),
    };
    fs::write(path, damaged).unwrap();
}

/// What becomes of the subject.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aftermath {
    /// It runs on.
    Kept,
    /// It is ended, and may be made again.
    ContainerEnded,
    /// With all its containers.
    PodEnded,
}

/// Regular files below a folder of a container or a sandbox that are the plugin's own, not the pod's or the image's.
fn own_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name();
            let is_others = ["rootfs", "upper", "work", "volumes", "ns", "shm"]
                .iter()
                .any(|other| name == *other);
            if entry.file_type().unwrap().is_dir() && !is_others {
                folders.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files
}

fn fate(path: &Path) -> Aftermath {
    let is_in = |folder: &str| path.components().any(|part| part.as_os_str() == folder);
    match path.file_name().unwrap().to_str().unwrap() {
        "record.json" if is_in("containers") => Aftermath::ContainerEnded,
        "record.json" => Aftermath::PodEnded,
        _ => Aftermath::Kept,
    }
}

async fn listed(rig: &Rig) -> Vec<Container> {
    let mut runtime = rig.runtime();
    let listed = runtime.list_containers(ListContainersRequest::default());
    listed.await.unwrap().into_inner().containers
}

/// One pod with a container, besides another.
struct Pods {
    damaged: PodSandboxConfig,
    healthy: (PodSandboxConfig, String, String),
}

async fn check(rig: &mut Rig, pods: &Pods, (file, how): (&str, Damage)) {
    let name = format!("{file} {how:?}");
    let id = rig.run_pod(&pods.damaged).await;
    let container = rig
        .run(
            (&id, &pods.damaged),
            rig.container("main", "echo once; sleep 3600"),
        )
        .await;
    let processes = rig.processes_of(&container);
    let (folder, file) = file.split_once('/').unwrap();
    let subject = if folder == "containers" {
        &container
    } else {
        &id
    };
    let path = rig.root().join(folder).join(subject).join(file);
    rig.kill();
    damage(&path, how);
    rig.restart().await;
    // The other pod has noticed nothing.
    let (.., healthy) = &pods.healthy;
    assert_eq!(rig.exec(healthy, "echo on").await.0, "on\n", "{name}");
    let listed = listed(rig).await;
    let shown = listed.iter().filter(|one| one.id == container).count();
    let is_alive = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    match fate(&path) {
        Aftermath::Kept => {
            assert_eq!(shown, 1, "{name}");
            assert_eq!(rig.processes_of(&container), processes, "{name}");
            assert_eq!(
                rig.status(&container).await.state(),
                ContainerState::ContainerRunning
            );
        }
        Aftermath::ContainerEnded | Aftermath::PodEnded => {
            assert_eq!(shown, 0, "{name}");
            wait_until(&name, || !processes.iter().any(is_alive)).await;
            let log = fs::read_to_string(rig.home.path().join("log")).unwrap();
            assert!(
                log.contains(&format!("{subject}/record.json")),
                "{name}: {log}"
            );
        }
    }
    // The same container is made again, under its own name.
    let again = match fate(&path) {
        Aftermath::Kept => None,
        Aftermath::ContainerEnded => Some(id.clone()),
        Aftermath::PodEnded => Some(rig.run_pod(&pods.damaged).await),
    };
    if let Some(again) = &again {
        let made = rig
            .run((again, &pods.damaged), rig.container("main", "sleep 3600"))
            .await;
        assert_eq!(rig.exec(&made, "echo again").await.0, "again\n", "{name}");
    }
    rig.remove_pod(again.as_ref().unwrap_or(&id)).await;
    let damaged = rig.root().join("damaged");
    for entry in fs::read_dir(damaged).unwrap().flatten() {
        fs::remove_file(entry.path()).unwrap();
    }
}

#[tokio::test]
async fn a_damaged_file_costs_its_own_subject_at_most() {
    let mut rig = Rig::start_own(serde_json::json!({})).await;
    let mut damaged = rig.pod("damaged");
    // A process of its own: there is more to damage, and more to end.
    let linux = damaged.linux.as_mut().unwrap();
    let context = linux.security_context.as_mut().unwrap();
    context
        .namespace_options
        .as_mut()
        .unwrap()
        .set_pid(NamespaceMode::Pod);
    let other = rig.pod("healthy");
    let healthy = rig.run_pod(&other).await;
    let container = rig
        .run((&healthy, &other), rig.container("main", "sleep 3600"))
        .await;
    let pods = Pods {
        damaged,
        healthy: (other, healthy, container),
    };
    let id = rig.run_pod(&pods.damaged).await;
    let sample = rig
        .run((&id, &pods.damaged), rig.container("main", "sleep 3600"))
        .await;
    let files = |folder: &str, id: &str| {
        let folder = (folder.to_owned(), rig.root().join(folder).join(id));
        own_files(&folder.1).into_iter().map(move |path| {
            format!(
                "{}/{}",
                folder.0,
                path.strip_prefix(&folder.1).unwrap().display()
            )
        })
    };
    let all: Vec<_> = files("sandboxes", &id)
        .chain(files("containers", &sample))
        .collect();
    rig.remove_pod(&id).await;
    for known in [
        "sandboxes/record.json",
        "containers/record.json",
        "containers/bundle/config.json",
        "containers/started",
    ] {
        assert!(
            all.iter().any(|file| file == known),
            "{known} is not among {all:?}"
        );
    }
    for file in &all {
        for how in [Damage::Emptied, Damage::Cut, Damage::Longer] {
            check(&mut rig, &pods, (file, how)).await;
        }
    }
    let (_, healthy, _) = &pods.healthy;
    rig.remove_pod(healthy).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn what_has_lost_its_folder_is_ended() {
    let mut rig = Rig::start().await;
    let (one, two) = (rig.pod("a"), rig.pod("b"));
    let ids = [rig.run_pod(&one).await, rig.run_pod(&two).await];
    let first = rig
        .run((&ids[0], &one), rig.container("main", "sleep 3600"))
        .await;
    let second = rig
        .run((&ids[1], &two), rig.container("main", "sleep 3600"))
        .await;
    let processes = [rig.processes_of(&first), rig.processes_of(&second)].concat();
    rig.kill();
    // Of one pod only its monitor is left; of the other one its container has no record.
    let aside = rig.home.path().join("aside");
    fs::create_dir(&aside).unwrap();
    fs::rename(
        rig.root().join("sandboxes").join(&ids[0]),
        aside.join("sandbox"),
    )
    .unwrap();
    fs::remove_file(
        rig.root()
            .join("containers")
            .join(&second)
            .join("record.json"),
    )
    .unwrap();
    rig.restart().await;
    let is_alive = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    wait_until("the end of the processes", || {
        !processes.iter().any(is_alive)
    })
    .await;
    assert_eq!(listed(&rig).await, []);
    rig.remove_pod(&ids[1]).await;
    let pins = aside.join("sandbox");
    for name in ["ns/ipc", "shm"] {
        drop(
            std::process::Command::new("umount")
                .arg(pins.join(name))
                .status(),
        );
    }
    rig.assert_nothing_left().await;
}
