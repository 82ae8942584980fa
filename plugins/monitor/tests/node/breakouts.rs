//! What a container must not reach, and what confines it: the known ways out are tried.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;

use monitor::{Exit, MonitorError};
use serde_json::{Value, json};

use crate::rig::{Rig, process, sh, with_each_runtime, within};

fn with_profile(spec: &mut Value) {
    spec["linux"]["seccomp"] = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [{"names": ["mkdir", "mkdirat", "not_a_call"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}],
    });
}

#[tokio::test]
async fn a_seccomp_profile_confines_the_init_and_what_is_run_beside_it() {
    with_each_runtime(|rig| async move {
        for (id, no_new_privileges, uid) in [
            ("a", true, 0),
            ("b", false, 0),
            ("c", false, 1000),
            ("d", true, 1000),
        ] {
            let mut confined = sh(id, "mkdir /tmp/x; sleep 1000");
            confined.spec = with_profile;
            let mut create = rig.bundle(&confined);
            let path = create.bundle.join("config.json");
            let mut spec: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            spec["process"]["noNewPrivileges"] = json!(no_new_privileges);
            spec["process"]["user"] = json!({"uid": uid, "gid": uid});
            fs::write(&path, spec.to_string()).unwrap();
            create.log = None;
            within(rig.monitor.create(create)).await.unwrap();
            let mut session = rig.attach(id, false).await;
            within(rig.monitor.start(id)).await.unwrap();
            let said = crate::rig::read_until(&mut session, "\n").await;
            assert!(said.contains("not supported"), "{id}: {said}");
            let mut exec = rig.exec(id, "mkdir /tmp/y; grep Seccomp: /proc/self/status");
            exec.process["noNewPrivileges"] = json!(no_new_privileges);
            exec.process["user"] = json!({"uid": uid, "gid": uid});
            let output = within(rig.monitor.exec_sync(exec, 1000)).await.unwrap();
            assert!(
                String::from_utf8_lossy(&output.stderr).contains("not supported"),
                "{id}: {output:?}"
            );
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                "Seccomp:\t2\n",
                "{id}"
            );
        }
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn capabilities_are_those_of_the_spec_and_no_others() {
    with_each_runtime(|rig| async move {
        let mut few = sh("few", "grep Cap /proc/self/status");
        few.spec = |spec| {
            let one = json!(["CAP_CHOWN", "CAP_KILL"]);
            spec["process"]["capabilities"] =
                json!({"bounding": one, "effective": one, "permitted": one});
        };
        rig.exit(&few).await;
        let log = rig.log("few").replace("stdout F ", "");
        let expected = [
            "CapInh:\t0000000000000000",
            "CapPrm:\t0000000000000021",
            "CapEff:\t0000000000000021",
            "CapBnd:\t0000000000000021",
            "CapAmb:\t0000000000000000",
        ];
        assert_eq!(log.lines().collect::<Vec<_>>(), expected);
        let mut other = sh("other", "grep CapEff /proc/self/status; id -u");
        other.spec = |spec| spec["process"]["user"] = json!({"uid": 1000, "gid": 1000});
        rig.exit(&other).await;
        assert_eq!(
            rig.log("other"),
            "stdout F CapEff:\t0000000000000000\nstdout F 1000\n"
        );
        let mut none = sh("none", "grep -e CapPrm -e CapBnd /proc/self/status");
        none.spec = |spec| spec["process"]["capabilities"] = Value::Null;
        rig.exit(&none).await;
        assert_eq!(
            rig.log("none").matches("0000000000000000").count(),
            2,
            "{}",
            rig.log("none")
        );
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_device_that_is_not_allowed_cannot_be_opened() {
    with_each_runtime(|rig| async move {
        let mut device = sh("device", "mknod /tmp/mem c 1 1; head -c 1 /tmp/mem; mknod /tmp/zero c 1 5 && head -c 1 /tmp/zero >/dev/null && echo fine");
        device.spec = |spec| {
            let set = json!(["CAP_MKNOD", "CAP_DAC_OVERRIDE"]);
            spec["process"]["capabilities"] = json!({"bounding": set, "effective": set, "permitted": set});
        };
        rig.exit(&device).await;
        let log = rig.log("device");
        assert!(log.contains("Operation not permitted") && log.contains("stdout F fine"), "{log}");
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_working_directory_by_a_leaked_descriptor_leads_nowhere() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("box", "sleep 1000")).await;
        for fd in 3..16 {
            let mut exec = rig.exec(
                "box",
                "ls ../../../../../../etc/passwd ../../../../../../tmp",
            );
            exec.process["cwd"] = json!(format!("/proc/self/fd/{fd}"));
            let out = within(rig.monitor.exec_sync(exec, 1000)).await;
            // It may be refused, or its own process's; the host's files must not be there.
            if let Ok(output) = out {
                assert!(
                    !String::from_utf8_lossy(&output.stdout).contains("passwd"),
                    "fd {fd}: {output:?}"
                );
            }
        }
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn the_runtimes_program_cannot_be_written_from_a_container() {
    with_each_runtime(|rig| async move {
        // Created and not started, its init is the runtime itself: what /proc/PID/exe shows, a container can get.
        let pid = rig.create(&sh("box", "sleep 1000")).await.pid.unwrap();
        let exe = format!("/proc/{pid}/exe");
        let original = rig.handler.program.canonicalize().unwrap();
        assert_ne!(
            fs::read_link(&exe).unwrap(),
            original,
            "the container has the runtime's own file"
        );
        let held = File::open(&exe).unwrap();
        within(rig.monitor.kill("box", 9)).await.unwrap();
        within(rig.monitor.wait("box")).await.unwrap();
        // Not busy any more: only its seals, or a mount that is read-only, protect it.
        let again = File::options()
            .write(true)
            .open(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let written = again.and_then(|mut file| file.write_all(b"overwritten"));
        assert!(written.is_err(), "the runtime's program was overwritten");
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn what_oxlet_oci_does_not_enforce_is_refused_by_name_and_leaves_nothing() {
    let rig = Rig::with(&crate::rig::oxlet_oci()).await;
    let mut labelled = sh("labelled", "true");
    labelled.spec = |spec| spec["process"]["selinuxLabel"] = json!("a:b:c:d");
    match within(rig.monitor.create(rig.bundle(&labelled))).await {
        Err(MonitorError::Refused(refusal)) => {
            assert!(refusal.message.contains("selinuxLabel"), "{refusal:?}")
        }
        other => panic!("{other:?}"),
    }
    rig.run(&sh("box", "sleep 1000")).await;
    let error = within(rig.monitor.kill("box", 65)).await.unwrap_err();
    assert!(error.to_string().contains("65"), "{error}");
    rig.end().await;
}

#[tokio::test]
async fn the_root_can_be_read_only_and_masked_paths_are_empty() {
    with_each_runtime(|rig| async move {
        let mut closed = sh(
            "closed",
            "echo x > /data/x; echo y > /proc/sys/kernel/hostname; head -c 1 /proc/kcore; echo end",
        );
        closed.spec = |spec| spec["root"]["readonly"] = json!(true);
        let end = rig.exit(&closed).await.end.unwrap();
        let log = rig.log("closed");
        assert_eq!(end.exit, Exit::Code(0));
        assert_eq!(log.matches("Read-only file system").count(), 2, "{log}");
        assert!(log.contains("stdout F end"), "{log}");
        rig.end().await;
    })
    .await;
}

/// The monitor's own memory and descriptors are out of reach of a container in its own PID namespace.
#[tokio::test]
async fn a_container_sees_neither_the_monitor_nor_its_folder() {
    with_each_runtime(|rig| async move {
        rig.run(&sh("box", "sleep 1000")).await;
        let mut exec = rig.exec("box", "");
        exec.process = process(
            "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; cat /proc/self/mountinfo",
            false,
        );
        let output = within(rig.monitor.exec_sync(exec, 1 << 20)).await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!text.contains("oxlet-monitor"), "{text}");
        assert!(!text.contains(&*rig.folder().to_string_lossy()), "{text}");
        rig.end().await;
    })
    .await;
}
