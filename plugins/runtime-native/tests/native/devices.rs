//! What containers are given beside their own words: devices by CDI files, options of mounts; by both OCI runtimes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proto::cri::*;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::json;

use crate::rig::{Rig, wait_until};

/// A node with each OCI runtime, in turn.
async fn rig(own: bool, more: serde_json::Value) -> Rig {
    match own {
        true => Rig::start_own(more).await,
        false => Rig::start_with(more).await,
    }
}

/// A program of the node that writes what it reads into a file.
fn hook(home: &Path, name: &str) -> String {
    let path = home.join(name);
    let script = format!(
        "#!/bin/sh\nread -r state || true\necho \"$state\" > {}.state\n",
        path.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn write_cdi(home: &Path) {
    let folder = home.join("cdi");
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(home.join("library")).unwrap();
    fs::write(home.join("library/file"), "of the node").unwrap();
    let hooks = ["createRuntime", "createContainer", "poststart", "poststop"];
    let hooks = hooks.map(|kind| {
        let path = home.join(kind).display().to_string();
        assert_eq!(hook(home, kind), path);
        json!({ "hookName": kind, "path": path })
    });
    // Of the numbers that are for local use: no driver answers, which is another error than that it may not be asked.
    let device = home.join("device");
    let (mode, number) = (Mode::from_raw_mode(0o666), makedev(240, 7));
    mknodat(CWD, &device, FileType::CharacterDevice, mode, number).unwrap();
    let failing = json!({ "hookName": "createRuntime", "path": "/bin/false" });
    let file = json!({
        "cdiVersion": "0.7.0",
        "kind": "vendor.com/device",
        "devices": [
            { "name": "one", "containerEdits": { "deviceNodes": [{ "path": "/dev/vendor", "hostPath": device, "permissions": "r" }] } },
            { "name": "hooked", "containerEdits": { "hooks": hooks } },
            { "name": "broken", "containerEdits": { "hooks": [failing] } },
        ],
        "containerEdits": {
            "env": ["VENDOR=yes"],
            "additionalGids": [777],
            "mounts": [{ "hostPath": home.join("library"), "containerPath": "/library", "options": ["ro", "rbind", "rprivate"] }],
        },
    });
    fs::write(folder.join("vendor.json"), file.to_string()).unwrap();
}

fn with_devices(mut config: ContainerConfig, names: &[&str]) -> ContainerConfig {
    config.cdi_devices = names
        .iter()
        .map(|name| CdiDevice {
            name: format!("vendor.com/device={name}"),
        })
        .collect();
    config
}

#[tokio::test]
async fn a_container_has_what_its_cdi_devices_say() {
    for own in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        write_cdi(folder.path());
        let rig = rig(own, json!({ "cdiSpecDirs": [folder.path().join("cdi")] })).await;
        let pod = rig.pod("a");
        let id = rig.run_pod(&pod).await;
        let mut config = with_devices(rig.container("main", "sleep 3600"), &["one"]);
        let annotation = (
            "cdi.k8s.io/hooks".to_owned(),
            "vendor.com/device=hooked".to_owned(),
        );
        config.annotations = [annotation].into();
        let container = rig.run((&id, &pod), config).await;
        let script = "echo $VENDOR; id -G; cat /library/file; echo; touch /library/x || echo read-only; \
            (: < /dev/vendor) 2>&1; (: > /dev/vendor) 2>&1";
        let (seen, _) = rig.exec(&container, script).await;
        let lines: Vec<_> = seen.lines().collect();
        let expected = ["yes", "0 777", "of the node", "read-only"];
        assert_eq!(lines[..4], expected, "{seen}");
        let forbidden = "/dev/vendor: Operation not permitted";
        assert!(lines[lines.len() - 1].ends_with(forbidden), "{seen}");
        assert_eq!(seen.matches(forbidden).count(), 1, "{seen}");
        let user = rig.status(&container).await.user.unwrap().linux.unwrap();
        assert_eq!(user.supplemental_groups, [0, 777]);
        // Each hook was told of the container; the last one when it is deleted.
        let state = |kind: &str| {
            let text = fs::read_to_string(folder.path().join(format!("{kind}.state")));
            let text = text.unwrap_or_default();
            serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default()
        };
        for kind in ["createRuntime", "createContainer", "poststart"] {
            assert_eq!(state(kind)["id"], container.as_str(), "{kind}");
        }
        assert!(
            state("createRuntime")["pid"]
                .as_i64()
                .is_some_and(|pid| pid > 0)
        );
        assert_eq!(state("poststop")["id"], serde_json::Value::Null);
        rig.remove_pod(&id).await;
        wait_until("the last hook", || {
            state("poststop")["id"] == container.as_str()
        })
        .await;
        rig.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_device_that_is_unknown_or_whose_hook_fails_starts_no_container() {
    for own in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        write_cdi(folder.path());
        let rig = rig(own, json!({ "cdiSpecDirs": [folder.path().join("cdi")] })).await;
        let pod = rig.pod("a");
        let id = rig.run_pod(&pod).await;
        let unknown = with_devices(rig.container("unknown", "true"), &["one", "two"]);
        let refusal = rig.create((&id, &pod), unknown).await.unwrap_err();
        assert_eq!(
            refusal.message(),
            "CDI device injection failed: unresolvable CDI devices vendor.com/device=two"
        );
        let broken = with_devices(rig.container("broken", "true"), &["broken"]);
        let container = rig.create((&id, &pod), broken).await.unwrap();
        let request = StartContainerRequest {
            container_id: container.clone(),
        };
        let refusal = rig.runtime().start_container(request).await.unwrap_err();
        assert!(refusal.message().contains("hook"), "{refusal:?}");
        assert_eq!(rig.status(&container).await.exit_code, 128);
        rig.remove_pod(&id).await;
        rig.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_mount_forbids_what_its_options_say() {
    for own in [true, false] {
        let rig = rig(own, json!({})).await;
        let status = rig
            .runtime()
            .status(StatusRequest::default())
            .await
            .unwrap();
        assert!(status.into_inner().features.unwrap().mount_options);
        let pod = rig.pod("a");
        let id = rig.run_pod(&pod).await;
        let folder = rig.home.path().join("volume");
        fs::create_dir(&folder).unwrap();
        let mut config = rig.container("main", "sleep 3600");
        for (path, options) in [
            ("/plain", &[][..]),
            ("/bound", &["noexec", "nodev", "nosuid"][..]),
        ] {
            config.mounts.push(Mount {
                container_path: path.to_owned(),
                host_path: folder.display().to_string(),
                mount_options: options.iter().map(|option| (*option).to_owned()).collect(),
                ..Default::default()
            });
        }
        let container = rig.run((&id, &pod), config).await;
        let script = "cp $(which busybox) /plain/busybox; /plain/busybox true && echo runs; /bound/busybox true || echo forbidden; \
            busybox grep ' /bound ' /proc/self/mountinfo";
        let (seen, _) = rig.exec(&container, script).await;
        let lines: Vec<_> = seen.lines().collect();
        assert_eq!(lines[..2], ["runs", "forbidden"]);
        let options = lines[2].split(' ').nth(5).unwrap();
        for option in ["rw", "noexec", "nodev", "nosuid"] {
            assert!(options.split(',').any(|one| one == option), "{options}");
        }
        rig.remove_pod(&id).await;
        rig.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_container_is_stopped_by_a_real_time_signal() {
    for own in [true, false] {
        let rig = rig(own, json!({})).await;
        let pod = rig.pod("a");
        let id = rig.run_pod(&pod).await;
        let script =
            "trap 'echo caught; exit 7' 37; echo ready; while true; do busybox sleep 0.1; done";
        let mut config = rig.container("main", script);
        config.set_stop_signal(Signal::Sigrtminplus3);
        let container = rig.run((&id, &pod), config).await;
        let said = |word: &str| rig.log("a", "main").iter().any(|line| line == word);
        wait_until("the trap", || said("ready")).await;
        let request = StopContainerRequest {
            container_id: container.clone(),
            timeout: 60,
        };
        rig.runtime().stop_container(request).await.unwrap();
        let status = rig.status(&container).await;
        assert_eq!(status.exit_code, 7);
        assert_eq!(status.stop_signal(), Signal::Sigrtminplus3);
        assert!(said("caught"));
        rig.remove_pod(&id).await;
        rig.assert_nothing_left().await;
    }
}
