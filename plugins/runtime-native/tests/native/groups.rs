//! A privileged container that manages its own cgroups, as systemd and container engines do it.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::rig::{Rig, wait_until};

/// Moves the container's processes into a group of their own, gives controllers to the groups beside it, and nests forty of
/// these with a process in the innermost.
const MANAGES: &str = "cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup) && mkdir init && echo 0 > init/cgroup.procs && \
    echo +pids > cgroup.subtree_control && \
    for n in $(seq 40); do mkdir n && cd n || exit 1; done; \
    sleep 3600 & echo $! > cgroup.procs && echo done; wait";

fn is_unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

async fn groups_are_managed(rig: &Rig) {
    let mut pod = rig.pod("managed");
    let linux = pod.linux.as_mut().unwrap();
    linux.security_context.as_mut().unwrap().privileged = true;
    let id = rig.run_pod(&pod).await;
    let mut config = rig.container("main", MANAGES);
    let linux = config.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().privileged = true;
    let container = rig.run((&id, &pod), config).await;
    wait_until("the container's groups", || {
        rig.log("managed", "main") == ["done"]
    })
    .await;
    // What an exec probe and `kubectl exec` do.
    let (group, code) = rig.exec(&container, "cat /proc/self/cgroup").await;
    assert!(code == 0 && group.trim_end().ends_with("/init"), "{group}");
    assert_eq!(rig.status(&container).await.exit_code, 0);
    let group = PathBuf::from(group.trim_start_matches("0::/").trim_end());
    let own = Path::new("/sys/fs/cgroup").join(group.parent().unwrap());
    assert!((0..40).fold(own.clone(), |path, _| path.join("n")).is_dir());
    rig.remove_pod(&id).await;
    wait_until("the end of the groups", || !own.exists()).await;
}

#[tokio::test]
async fn a_container_that_manages_its_groups_is_entered_and_leaves_none() {
    if !is_unified() {
        eprintln!("skipped: groups of version 1 take processes beside groups");
        return;
    }
    for rig in [Rig::start().await, Rig::start_own(json!({})).await] {
        groups_are_managed(&rig).await;
        rig.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_scope_of_systemd_is_entered_and_leaves_no_groups() {
    if !Path::new("/run/systemd/system").exists() || !is_unified() {
        eprintln!("skipped: scopes take systemd as the first process and cgroups of version 2");
        return;
    }
    let mut rig = Rig::start_own(json!({ "cgroupDriver": "systemd" })).await;
    rig.cgroup = "/oxletgroups.slice".to_owned();
    groups_are_managed(&rig).await;
    rig.assert_nothing_left().await;
}
