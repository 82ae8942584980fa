//! Commands from a container's creation to its removal.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::rig::{Rig, wait_until};

#[test]
fn a_container_goes_from_created_to_running_to_stopped() {
    let rig = Rig::new("sleep 1000");
    drop(rig.try_create().unwrap());
    assert_eq!(rig.status(), "created");
    rig.succeed(&["start", &rig.id]);
    assert_eq!(rig.status(), "running");
    let text = rig.fail(&["start", &rig.id]);
    assert!(
        text.contains("cannot start a container in the running state"),
        "{text}"
    );
    let text = rig.fail(&["delete", &rig.id]);
    assert!(text.contains("that is not stopped"), "{text}");
    assert!(
        rig.succeed(&["ps", "--format", "json", &rig.id])
            .contains(&rig.pid())
    );
    rig.succeed(&["kill", &rig.id, "KILL"]);
    rig.wait_stopped();
    assert!(
        rig.fail(&["kill", &rig.id, "KILL"])
            .contains("is not running")
    );
    rig.succeed(&["delete", &rig.id]);
    rig.assert_nothing_left();
    assert!(rig.fail(&["state", &rig.id]).contains("does not exist"));
    assert!(rig.fail(&["delete", &rig.id]).contains("does not exist"));
    rig.succeed(&["delete", "--force", &rig.id]);
}

#[test]
fn a_container_that_was_never_started_can_be_deleted() {
    let rig = Rig::new("true");
    drop(rig.try_create().unwrap());
    rig.succeed(&["delete", &rig.id]);
    rig.assert_nothing_left();
}

#[test]
fn a_program_that_is_not_there_is_told_at_creation() {
    let mut rig = Rig::new("");
    rig.spec["process"]["args"] = json!(["nonexistent"]);
    let text = rig.refusal();
    let expected = "unable to start container process: exec: \"nonexistent\": executable file not found in $PATH";
    assert!(text.contains(expected), "{text}");
}

/// Killed at whatever moment, a creation leaves nothing that `delete --force` does not remove.
#[test]
fn a_creation_that_is_killed_leaves_nothing() {
    let rig = Rig::new("sleep 1000");
    for milliseconds in [0, 2, 4, 6, 8, 10, 12, 15, 20, 30, 50, 80] {
        let mut create = rig.create_command().spawn().unwrap();
        pause(Duration::from_millis(milliseconds));
        create.kill().unwrap();
        create.wait().unwrap();
        rig.succeed(&["delete", "--force", &rig.id]);
        rig.assert_nothing_left();
        let marker = rig.dir.path().display().to_string();
        wait_until(|| !is_running(&marker));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the moment of a kill is what is tried"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Whether there is a process with this text in its command line, beside this one.
fn is_running(text: &str) -> bool {
    let own = std::process::id().to_string();
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        entry.file_name() != *own && String::from_utf8_lossy(&line).contains(text)
    })
}

#[test]
fn hooks_run_at_their_time_where_they_belong() {
    let mut rig = Rig::new("echo program >> /hooks/order");
    let folder = rig.outside("hooks");
    let order = folder.join("order");
    rig.bind(&folder, "/hooks");
    let hook = |name: &str, file: &str, shell: &str| {
        let script = format!("echo {name} $(cat | grep -o '\"status\":\"[a-z]*\"') >> {file}");
        json!([{ "path": shell, "args": ["sh", "-c", script], "env": ["PATH=/bin:/usr/bin"] }])
    };
    let node = order.display().to_string();
    rig.spec["hooks"] = json!({
        "prestart": hook("prestart", &node, "/bin/sh"),
        "createRuntime": hook("createRuntime", &node, "/bin/sh"),
        "createContainer": hook("createContainer", &node, "/bin/sh"),
        "startContainer": hook("startContainer", "/hooks/order", "/bin/sh"),
        "poststart": hook("poststart", &node, "/bin/sh"),
        "poststop": hook("poststop", &node, "/bin/sh"),
    });
    rig.output();
    let text = fs::read_to_string(order).unwrap();
    let said: Vec<&str> = text.lines().collect();
    let status = |name: &str, status: &str| format!("{name} \"status\":\"{status}\"");
    let before =
        ["prestart", "createRuntime", "createContainer"].map(|name| status(name, "creating"));
    assert_eq!(said[..3], before);
    assert_eq!(said.last().unwrap(), &status("poststop", "stopped"));
    for one in [
        status("startContainer", "created"),
        status("poststart", "running"),
        "program".to_owned(),
    ] {
        assert!(said.contains(&one.as_str()), "{one}: {text}");
    }

    let mut failing = Rig::new("true");
    failing.spec["hooks"] = json!({ "createRuntime": [{ "path": "/bin/false" }] });
    let text = failing.refusal();
    assert!(
        text.contains("hook createRuntime /bin/false: exit status: 1"),
        "{text}"
    );
}

#[test]
fn a_private_mount_stays_private_where_the_root_is_shared() {
    let mut rig = Rig::new("cat /proc/self/mountinfo");
    let volume = rig.outside("volume");
    rig.bind(&volume, "/private");
    rig.spec["linux"]["rootfsPropagation"] = json!("rshared");
    let text = rig.output();
    let line = |point: &str| {
        text.lines()
            .find(|line| line.split(' ').nth(4) == Some(point))
            .unwrap()
    };
    assert!(line("/").contains("shared:"), "{text}");
    assert!(!line("/private").contains("shared:"), "{text}");
}

/// The mount namespace that containers' own are copied from, and not the node's with the mounts of all pods.
#[test]
fn containers_share_a_base_that_goes_with_the_last_one() {
    let (first, second) = (Rig::new("sleep 1000"), Rig::new("sleep 1000"));
    let folder = first.state_root().join(".mounts");
    // What a command that was killed has left.
    fs::create_dir_all(&folder).unwrap();
    drop(first.try_create().unwrap());
    let base = || fs::metadata(folder.join("base")).unwrap().ino();
    let made = base();
    let of_node = fs::metadata("/proc/self/ns/mnt").unwrap();
    assert_eq!(
        fs::metadata(folder.join("base")).unwrap().dev(),
        of_node.dev()
    );
    assert_ne!(made, of_node.ino());
    second.write();
    let bundle = second.dir.path().display().to_string();
    let created = first
        .command(&["create", "--bundle", &bundle, &second.id])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(created.unwrap().success());
    first.succeed(&["delete", "--force", &first.id]);
    assert_eq!(base(), made);
    first.succeed(&["delete", "--force", &second.id]);
    // A deletion that was killed just before it removed the base.
    fs::create_dir_all(&folder).unwrap();
    first.succeed(&["delete", "--force", "none"]);
    first.assert_nothing_left();
    assert!(second.groups().is_empty());
}

#[test]
fn a_container_whose_hooks_are_programs_of_the_node_takes_its_mounts_along() {
    let mut rig = Rig::new("sleep 1000");
    let made = rig.outside("hook").join("made");
    let script = format!("echo > {}", made.display());
    let hook = json!({ "path": "/bin/sh", "args": ["sh", "-c", script] });
    rig.spec["hooks"] = json!({ "createContainer": [hook] });
    drop(rig.try_create().unwrap());
    assert!(made.exists());
    assert!(!rig.state_root().join(".mounts").exists());
    rig.end();
}
