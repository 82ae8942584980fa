//! Images and volumes that lead out of a container's root, and containers that are looked into.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use serde_json::json;

use crate::rig::{Rig, first_line, is_unified, listing};

/// An image's links at every path that something is made at: nothing of the node is touched (CVE-2026-41579 and its kind).
#[test]
fn links_of_an_image_never_lead_to_the_node() {
    let mut rig = Rig::new("ls /dev; echo x > /dev/null; echo y > /vol/written; echo end");
    let node = rig.outside("node");
    for folder in ["dev", "vol", "cwd"] {
        fs::create_dir(node.join(folder)).unwrap();
        fs::write(node.join(folder).join("ptmx"), "the node's").unwrap();
    }
    let rootfs = rig.rootfs();
    fs::remove_dir(rootfs.join("dev")).unwrap();
    symlink(node.join("dev"), rootfs.join("dev")).unwrap();
    symlink(node.join("vol"), rootfs.join("vol")).unwrap();
    symlink(node.join("cwd"), rootfs.join("cwd")).unwrap();
    symlink(
        "../../../../../../../../../tmp/oci-no-such",
        rootfs.join("etc/hosts"),
    )
    .unwrap();
    // No tmpfs hides the image's /dev: links and devices are made through the link itself.
    rig.spec["mounts"] = json!([{ "destination": "/proc", "type": "proc", "source": "proc" }]);
    let volume = rig.outside("volume");
    rig.bind(&volume, "/vol");
    let file = volume.join("hosts");
    fs::write(&file, "hosts").unwrap();
    rig.bind(&file, "/etc/hosts");
    rig.spec["process"]["cwd"] = json!("/cwd/below");
    rig.spec["linux"]["devices"] =
        json!([{ "path": "/vol/node", "type": "c", "major": 1, "minor": 3 }]);
    let before = listing(&node);
    let text = rig.output();
    assert!(text.contains("ptmx") && text.ends_with("end\n"), "{text}");
    assert_eq!(listing(&node), before);
    assert!(!Path::new("/tmp/oci-no-such").exists());
    assert_eq!(fs::read_to_string(volume.join("written")).unwrap(), "y\n");
    // Made where the link leads inside the root.
    let inside = rootfs.join(node.strip_prefix("/").unwrap());
    assert!(inside.join("cwd/below").is_dir());
    assert!(inside.join("dev/ptmx").is_symlink());
}

#[test]
fn kernel_file_systems_are_mounted_on_ordinary_folders_alone() {
    for name in ["proc", "sys"] {
        let mut rig = Rig::new("true");
        let node = rig.outside("node");
        fs::remove_dir(rig.rootfs().join(name)).unwrap();
        symlink(&node, rig.rootfs().join(name)).unwrap();
        rig.mount(json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs" }));
        let text = rig.refusal();
        assert!(
            text.contains("must be mounted on ordinary directory"),
            "{text}"
        );
        assert!(listing(&node).is_empty());
    }
}

#[test]
fn nothing_but_procfs_is_mounted_at_proc_or_below_it() {
    for (destination, link, why) in [
        ("/proc", "", "not of type proc"),
        ("/proc/sys", "", "inside /proc"),
        ("/elsewhere", "/proc/sys", "inside /proc"),
        ("/", "", "on the top of rootfs"),
    ] {
        let mut rig = Rig::new("true");
        let volume = rig.outside("volume");
        if !link.is_empty() {
            symlink(link, rig.rootfs().join("elsewhere")).unwrap();
        }
        rig.bind(&volume, destination);
        let text = rig.refusal();
        assert!(text.contains(why), "{destination}: {text}");
    }
    let mut emulated = Rig::new("cat /proc/uptime");
    let file = emulated.outside("volume").join("uptime");
    fs::write(&file, "ours\n").unwrap();
    emulated.bind(&file, "/proc/uptime");
    assert_eq!(emulated.output(), "ours\n");
}

/// A process that is not dumpable has files of root's in procfs, whoever it is (CVE-2016-9962).
#[test]
fn an_init_that_waits_cannot_be_looked_into() {
    let mut rig = Rig::new("sleep 1000");
    rig.spec["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
    drop(rig.try_create().unwrap());
    let environ = format!("/proc/{}/environ", rig.pid());
    assert_eq!(fs::metadata(&environ).unwrap().uid(), 0);
    rig.succeed(&["start", &rig.id]);
    // Its program is dumpable again.
    crate::rig::wait_until(|| fs::metadata(&environ).is_ok_and(|found| found.uid() == 1000));
    rig.end();
}

#[test]
fn a_working_directory_outside_of_the_root_is_refused() {
    let rig = Rig::new("sleep 1000");
    drop(rig.start());
    for fd in 3..12 {
        let cwd = json!(format!("/proc/self/fd/{fd}"));
        let out = rig.exec(
            |process| process["cwd"] = cwd.clone(),
            "ls ../../../etc/passwd",
        );
        assert!(!out.status.success(), "{fd}: {out:?}");
    }
    rig.end();
}

/// Neither descriptors of the command nor the node's own `/dev/null` are left in a container.
#[test]
fn a_container_has_three_streams_and_its_own_null() {
    let rig = Rig::new(
        "ls -l /proc/self/fd; grep -c . /proc/self/mountinfo; stat -c %d /dev/null /proc/self/fd/0 -L",
    );
    let text = rig.output();
    // `ls` has one more, for the folder itself, which is gone when its link is read.
    let streams = text.lines().filter(|line| line.contains(" -> ")).count();
    assert_eq!(
        (streams, text.matches("/proc/self/fd/").count()),
        (3, 1),
        "{text}"
    );
    let devices: Vec<&str> = text.lines().rev().take(2).collect();
    assert_eq!(devices[0], devices[1], "{text}");
}

#[test]
fn without_mount_setattr_mounts_are_made_by_other_means() {
    let mut rig =
        Rig::new("echo x > /ro/x; echo y > /proc/sys/kernel/hostname; echo z > /rw/z; echo end");
    let (closed, open) = (rig.outside("closed"), rig.outside("open"));
    rig.mount(json!({ "destination": "/ro", "type": "bind", "source": closed, "options": ["rbind", "ro", "rprivate", "nosuid"] }));
    rig.bind(&open, "/rw");
    rig.write();
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["mount_setattr"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 }],
    });
    let profile: kernel_filters::Profile = serde_json::from_value(profile).unwrap();
    let filter = kernel_filters::Filter::compile(&profile).unwrap();
    // A filter is its thread's and that of what the thread starts.
    let text = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            kernel_filters::install(&filter).unwrap();
            rig.output()
        });
        run.join().unwrap()
    });
    assert_eq!(text.matches("Read-only file system").count(), 2, "{text}");
    assert!(text.ends_with("end\n"), "{text}");
    assert_eq!(fs::read_to_string(open.join("z")).unwrap(), "z\n");
}

/// A container with CAP_SYS_PTRACE follows the root of every process that it sees. One that comes with `exec` is among the
/// container's processes only when its root is the container's.
#[test]
fn exec_shows_no_root_of_the_node_to_a_container_that_may_trace() {
    let mut rig = Rig::new(
        "echo looking; p=2; while :; do test -e /proc/$p/root$MARK && echo $p >> /tmp/found; \
         test -e /proc/$((p+1)) && p=$((p+1)); done",
    );
    let mark = rig.outside("mark").display().to_string();
    rig.spec["process"]["env"] = json!([format!("MARK={mark}"), "PATH=/bin"]);
    for set in ["bounding", "effective", "permitted"] {
        let all = rig.spec["process"]["capabilities"][set].as_array_mut();
        all.unwrap().push("CAP_SYS_PTRACE".into());
    }
    let output = rig.start();
    assert_eq!(first_line(output), "looking\n");
    for _ in 0..100 {
        let done = rig.exec(|_| {}, "true");
        assert!(done.status.success(), "{done:?}");
    }
    let found = fs::read_to_string(rig.rootfs().join("tmp/found")).unwrap_or_default();
    assert_eq!(found, "");
    rig.end();
}

/// Version 1 lets a container with a writable group freeze itself; what is frozen does not die.
#[test]
fn a_container_that_froze_itself_is_killed() {
    if is_unified() {
        return;
    }
    let rig = Rig::new("sleep 1000");
    let output = rig.start();
    let mut groups = rig.groups().into_iter();
    let freezer = groups
        .find(|group| group.join("freezer.state").exists())
        .unwrap();
    fs::create_dir(freezer.join("below")).unwrap();
    fs::write(freezer.join("below/cgroup.procs"), rig.pid()).unwrap();
    for group in [freezer.join("below"), freezer] {
        fs::write(group.join("freezer.state"), "FROZEN").unwrap();
    }
    rig.succeed(&["kill", &rig.id, "KILL"]);
    rig.wait_stopped();
    rig.end();
    drop(output);
}
