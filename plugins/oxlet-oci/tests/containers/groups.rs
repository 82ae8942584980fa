//! Groups of version 2 that a container makes in its own, as systemd and container engines do it.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::rig::{Rig, is_unified, wait_until};

/// A container with the hierarchy to write to.
fn with_groups(script: &str) -> Rig {
    let mut rig = Rig::new(script);
    rig.spec["linux"]["namespaces"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "type": "cgroup" }));
    let options = ["rw", "nosuid", "noexec", "nodev"];
    rig.mount(json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": options }));
    rig
}

/// The container moves all of its processes into a group and has controllers for those in it: its own takes none any more.
const MOVES: &str = "cd /sys/fs/cgroup; mkdir init && echo 1 > init/cgroup.procs && \
    echo +pids > cgroup.subtree_control && echo moved; exec sleep 1000";

#[test]
fn a_process_joins_the_group_that_the_first_process_has_moved_to() {
    if !is_unified() {
        eprintln!("skipped: groups of version 1 take processes beside groups");
        return;
    }
    let rig = with_groups(MOVES);
    let output = rig.start();
    assert_eq!(crate::rig::first_line(output), "moved\n");
    let out = rig.exec(
        |_| (),
        "cat /proc/self/cgroup; cat /sys/fs/cgroup/cgroup.procs",
    );
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(text, "0::/init\n", "{out:?}");
    let listed = rig.succeed(&["ps", "--format", "json", &rig.id]);
    assert!(listed.contains(&rig.pid()), "{listed}");
    rig.end();
}

#[test]
fn a_full_group_takes_a_process_that_is_run_in_the_container() {
    let mut rig = Rig::new("exec sleep 1000");
    rig.spec["linux"]["resources"]["pids"] = json!({ "limit": 1 });
    drop(rig.start());
    let out = rig.exec(|_| (), "echo in");
    assert_eq!(out.stdout, b"in\n", "{out:?}");
    rig.end();
}

#[test]
fn threaded_groups_keep_nothing_from_being_listed_or_ended() {
    if !is_unified() {
        eprintln!("skipped: groups of version 1 are not threaded");
        return;
    }
    let rig = with_groups(
        "cd /sys/fs/cgroup; mkdir threads && echo threaded > threads/cgroup.type && echo made; exec sleep 1000",
    );
    let output = rig.start();
    assert_eq!(crate::rig::first_line(output), "made\n");
    let listed = rig.succeed(&["ps", "--format", "json", &rig.id]);
    assert!(listed.contains(&rig.pid()), "{listed}");
    rig.end();
}

#[test]
fn groups_go_with_the_container_whatever_their_depth() {
    if !is_unified() {
        eprintln!("skipped: containers mount groups of version 1 read-only");
        return;
    }
    let rig = with_groups(
        "cd /sys/fs/cgroup; n=0; while [ $n -lt 40 ]; do mkdir n && cd n; n=$((n+1)); done; \
         sleep 1000 & echo $! > cgroup.procs; echo made; wait",
    );
    let output = rig.start();
    assert_eq!(crate::rig::first_line(output), "made\n");
    let group = Path::new("/sys/fs/cgroup").join(&rig.id);
    let deepest = (0..40).fold(group.clone(), |path, _| path.join("n"));
    let has_process =
        || fs::read_to_string(deepest.join("cgroup.procs")).is_ok_and(|text| !text.is_empty());
    wait_until(has_process);
    rig.end();
    assert!(!group.exists());
}
