//! What ordinary images and manifests do.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};

use serde_json::{Value, json};

use crate::rig::Rig;

fn as_user(process: &mut Value) {
    process["user"] = json!({ "uid": 1000, "gid": 1000 });
}

fn as_user_of(rig: &mut Rig) {
    as_user(&mut rig.spec["process"]);
}

#[test]
fn a_user_may_write_to_its_own_streams() {
    let mut rig = Rig::new("echo out > /dev/stdout; echo err > /dev/stderr; exec sleep 1000");
    as_user_of(&mut rig);
    let mut output = rig.start();
    let mut text = [0; 8];
    output.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"out\nerr\n");
    let out = rig.exec(as_user, "echo x > /dev/stdout");
    assert_eq!(out.stdout, b"x\n", "{out:?}");
    // The node's null stays the node's.
    assert_eq!(fs::metadata("/dev/null").unwrap().uid(), 0);
    rig.end();
}

#[test]
fn a_missing_working_directory_is_made_as_roots() {
    let mut rig = Rig::new("pwd; stat -c '%u %a' .");
    as_user_of(&mut rig);
    rig.spec["process"]["cwd"] = json!("/no/such/dir");
    assert_eq!(rig.output(), "/no/such/dir\n0 755\n");
    let mut file = Rig::new("true");
    file.spec["process"]["cwd"] = json!("/bin/busybox");
    assert!(file.refusal().contains("not a directory"));
}

#[test]
fn home_is_what_passwd_says_of_the_user() {
    let home = |user: u32, env: &[&str]| {
        let mut rig = Rig::new("echo $HOME; exec sleep 1000");
        fs::write(
            rig.rootfs().join("etc/passwd"),
            "root:x:0:0::/root:/bin/sh\nu:x:1000:0::/home/u:/bin/sh\n",
        )
        .unwrap();
        rig.spec["process"]["user"] = json!({ "uid": user, "gid": 0 });
        rig.spec["process"]["env"] = json!([&["PATH=/bin"][..], env].concat());
        let mut output = rig.start();
        let out = rig.exec(|_| (), "echo $HOME");
        rig.end();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(out.stdout, text.as_bytes());
        text
    };
    assert_eq!(home(0, &[]), "/root\n");
    assert_eq!(home(1000, &["HOME="]), "/home/u\n");
    assert_eq!(home(12345, &[]), "/\n");
    assert_eq!(home(1000, &["HOME=/x"]), "/x\n");
}

#[test]
fn a_file_is_bound_onto_a_link_that_leads_nowhere() {
    let mut rig = Rig::new("cat /etc/resolv.conf; readlink /etc/resolv.conf");
    let source = rig.outside("node").join("resolv.conf");
    fs::write(&source, "nameserver\n").unwrap();
    symlink(
        "../run/systemd/resolve/stub",
        rig.rootfs().join("etc/resolv.conf"),
    )
    .unwrap();
    rig.bind(&source, "/etc/resolv.conf");
    assert_eq!(rig.output(), "nameserver\n../run/systemd/resolve/stub\n");
}

#[test]
fn nothing_is_made_in_a_dev_that_the_pod_binds() {
    let mut rig = Rig::new("ls /dev");
    let dev = rig.outside("dev");
    fs::write(dev.join("ptmx"), "").unwrap();
    rig.spec["mounts"] = json!([{ "destination": "/proc", "type": "proc", "source": "proc" }]);
    rig.bind(&dev, "/dev");
    rig.spec["linux"]["devices"] =
        json!([{ "path": "/dev/x", "type": "c", "major": 1, "minor": 3 }]);
    // The second start is that of a container that is restarted.
    for _ in 0..2 {
        assert_eq!(rig.output(), "ptmx\n");
    }
}

#[test]
fn a_container_has_a_session_keyring_of_its_own() {
    let rig = Rig::new("cat /proc/keys; exec sleep 1000");
    let mut output = rig.start();
    let out = rig.exec(|_| (), "cat /proc/keys");
    rig.end();
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let name = format!("_ses.{}", rig.id);
    let keys_of = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|line| line.contains(&name))
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect()
    };
    // A kernel without keyrings has no such file.
    if std::path::Path::new("/proc/keys").exists() {
        let own = keys_of(&text);
        assert_eq!(own.len(), 1, "{text}");
        assert_eq!(keys_of(&String::from_utf8_lossy(&out.stdout)), own);
    }
}

#[test]
fn a_process_begins_as_the_kernel_has_it() {
    let rig = Rig::new(
        "umask; grep -E 'Sig(Blk|Ign)' /proc/self/status; echo $(($(cat /proc/self/stat | grep -o '^[0-9]*')))",
    );
    let text = rig.output();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "0022",
            "SigBlk:\t0000000000000000",
            "SigIgn:\t0000000000000000"
        ]
    );
    let mut masked = Rig::new("umask");
    masked.spec["process"]["user"] = json!({ "uid": 0, "gid": 0, "umask": 0o27 });
    assert_eq!(masked.output(), "0027\n");
}

/// Mode and owner of the node's `/dev/null` would be root's in the container to change.
#[test]
fn a_masked_file_is_the_null_of_the_container_and_not_the_nodes() {
    let mut rig = Rig::new("grep ' /proc/version ' /proc/self/mountinfo");
    rig.spec["linux"]["maskedPaths"] = json!(["/proc/version"]);
    let text = rig.output();
    assert!(
        text.contains(" /null /proc/version ") && text.contains(" - tmpfs "),
        "{text}"
    );
}

#[test]
fn limits_sysctls_and_names_are_the_specs() {
    let mut rig = Rig::new(
        "ulimit -n; cat /proc/sys/kernel/shmmax /proc/sys/kernel/hostname /proc/sys/kernel/domainname",
    );
    rig.spec["process"]["rlimits"] = json!([{ "type": "RLIMIT_NOFILE", "soft": 77, "hard": 99 }]);
    rig.spec["linux"]["sysctl"] = json!({ "kernel.shmmax": "4096" });
    rig.spec["hostname"] = json!("box");
    rig.spec["domainname"] = json!("of.boxes");
    assert_eq!(rig.output(), "77\n4096\nbox\nof.boxes\n");
    let mut node = Rig::new("true");
    node.spec["linux"]["sysctl"] = json!({ "vm.swappiness": "1" });
    assert!(
        node.refusal()
            .contains("is not in a separate kernel namespace")
    );
}
