//! Systemd's cgroup driver, where systemd is the first process and cgroups are v2.

use std::fs;
use std::path::Path;

use crate::rig::{Rig, kill, processes_with, wait_until};

#[tokio::test]
async fn a_pods_containers_and_its_monitor_are_scopes_in_its_slice() {
    let group = Path::new("/sys/fs/cgroup");
    if !Path::new("/run/systemd/system").exists() || !group.join("cgroup.controllers").exists() {
        eprintln!("skipped: scopes take systemd as the first process and cgroups of version 2");
        return;
    }
    let mut rig = Rig::start_own(serde_json::json!({ "cgroupDriver": "systemd" })).await;
    rig.cgroup = "/oxlettest.slice".to_owned();
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let container = rig
        .run((&id, &pod), rig.container("main", "sleep 3600"))
        .await;
    let slice = group.join("oxlettest.slice");
    assert!(slice.join(format!("oxlet-{container}.scope")).is_dir());
    let monitors = || processes_with(&format!("{}/m/", rig.root().display()));
    let [monitor] = monitors()[..] else {
        panic!("{:?}", monitors())
    };
    let of = fs::read_to_string(format!("/proc/{monitor}/cgroup")).unwrap();
    assert!(of.starts_with("0::/oxlettest.slice/oxlet-monitor-"), "{of}");
    // A successor has a scope of its own.
    kill(monitor);
    wait_until("the monitor's end", || !monitors().contains(&monitor)).await;
    assert_eq!(rig.exec(&container, "echo in").await.0, "in\n");
    rig.remove_pod(&id).await;
    let is_empty = || {
        let entries = fs::read_dir(&slice).into_iter().flatten().flatten();
        !entries.into_iter().any(|entry| entry.path().is_dir())
    };
    wait_until("the scopes' end", is_empty).await;
}
