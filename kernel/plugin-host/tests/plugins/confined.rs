//! Plugins that confine themselves, by what the kernel says of their processes: as root, on the machine's own cgroups.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use plugin_host::{
    Capabilities, Confinement, Confiner, Declaration, MountVisibility, PluginState, SystemCalls,
    group_usage,
};
use serde_json::json;

use crate::process::{Manner, plugin};
use crate::rig::{Rig, exists, run, until};

/// The program, and a cgroup for one test alone.
fn confiner(test: &str) -> Confiner {
    let own = std::env::current_exe().unwrap();
    let program = own.ancestors().nth(2).unwrap().join("oxlet-confine");
    assert!(
        program.exists(),
        "cargo build --package confine makes {}",
        program.display()
    );
    Confiner {
        program,
        group: format!("/oxlet-test/{test}-{}", std::process::id()),
    }
}

fn declared(confinement: Confinement) -> Declaration {
    Declaration {
        confinement,
        ..plugin("a", Manner::Well)
    }
}

fn limited() -> Confinement {
    Confinement {
        memory_limit: Some(64 << 20),
        pids_limit: Some(16),
        ..Confinement::default()
    }
}

fn status(pid: Pid, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

fn variable(pid: Pid, name: &str) -> PathBuf {
    let variables = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let value = variables
        .split('\0')
        .find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
    value.unwrap().into()
}

#[test]
fn plugin_is_confined_as_declared_and_shown_as_it_is() {
    run(async {
        let declaration = declared(Confinement {
            capabilities: Capabilities::named(["CHOWN", "NET_ADMIN"]).unwrap(),
            no_new_privileges: true,
            system_calls: SystemCalls::Client,
            mounts: MountVisibility::Own,
            ..limited()
        });
        let rig = Rig::confined(&declaration, confiner("declared"));
        rig.reach(PluginState::Ready).await;
        let pid = rig.pid().await;
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(status(pid, set), "0000000000001001", "{set}");
        }
        assert_eq!(
            (status(pid, "NoNewPrivs"), status(pid, "Seccomp")),
            ("1".into(), "2".into())
        );

        let shown = rig.snapshot().await.confined.unwrap();
        assert_eq!(shown.capabilities, ["CHOWN", "NET_ADMIN"]);
        assert!(shown.no_new_privileges && shown.seccomp);
        assert_eq!(
            (shown.memory_limit, shown.pids_limit),
            (Some(64 << 20), Some(16))
        );
        assert_eq!(shown.not_enforced, [""; 0]);
        // The test's folder is in /tmp, which a namespace of its own would hide.
        assert_eq!(variable(pid, "TMPDIR"), shown.tmp);
        let mode = fs::metadata(&shown.tmp).unwrap().permissions().mode();
        assert_eq!(
            (shown.tmp, mode & 0o777),
            (rig.folder.path().join("test.tmp"), 0o700)
        );

        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(!shown.groups.is_empty());
        for folder in &shown.groups {
            let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap();
            assert_eq!(listed.trim(), pid.to_string(), "{}", folder.display());
            let [generation, name] = [0, 1].map(|above| {
                folder
                    .ancestors()
                    .nth(above)
                    .unwrap()
                    .file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
            });
            assert!(
                groups.contains(&format!("/{name}/{generation}")),
                "{groups}"
            );
        }
        let usage = group_usage(&shown.groups);
        assert!(
            usage
                .memory
                .is_some_and(|memory| (1..64 << 20).contains(&memory)),
            "{usage:?}"
        );
        assert!(
            usage.pids.is_some_and(|pids| (1..=16).contains(&pids)),
            "{usage:?}"
        );
        rig.end().await;
        for folder in &shown.groups {
            assert!(!folder.exists(), "{} is left", folder.display());
        }
    });
}

#[test]
fn plugin_over_its_memory_is_restarted_alone_and_the_reason_is_named() {
    run(async {
        let confiner = confiner("memory");
        let mut greedy = declared(limited());
        greedy.configuration = json!({ "label": "a", "greed": "memory" });
        let rig = Rig::confined(&greedy, confiner.clone());
        let neighbour = Declaration {
            name: "neighbour".to_owned(),
            ..declared(limited())
        };
        let beside = Rig::confined(&neighbour, confiner);
        rig.reach(PluginState::Ready).await;
        beside.reach(PluginState::Ready).await;
        let (before, other) = (rig.pid().await, beside.pid().await);
        let first = rig.snapshot().await.confined.unwrap().groups;

        rig.create().await.unwrap_err();
        rig.see(|view| view.generation == 2 && view.state == PluginState::Ready)
            .await;
        let shown = rig.snapshot().await;
        let exit = "out of memory, limit 64 MiB (signal: 9 (SIGKILL))";
        assert_eq!(
            (shown.last_exit.as_deref(), shown.restarts),
            (Some(exit), 1)
        );
        assert!(!exists(before));
        assert_eq!(beside.pid().await, other);
        assert_eq!(beside.snapshot().await.restarts, 0);
        // The successor begins with limits of its own: what the first one left counts for nobody.
        let second = shown.confined.unwrap().groups;
        assert!(second.iter().all(|folder| !first.contains(folder)));
        assert_eq!(group_usage(&second).oom_kills, 0);
        assert!(first.iter().all(|folder| !folder.exists()), "{first:?}");
        rig.end().await;
        beside.end().await;
    });
}

#[test]
fn processes_beyond_the_limit_are_refused_and_named_at_the_end() {
    run(async {
        let mut greedy = declared(limited());
        greedy.configuration = json!({ "label": "a", "greed": "processes" });
        let rig = Rig::confined(&greedy, confiner("pids"));
        rig.reach(PluginState::Ready).await;
        let refused = rig.create().await.unwrap_err();
        let words = std::error::Error::source(&refused).unwrap().to_string();
        assert!(words.contains("processes: WouldBlock"), "{words}");
        let pid = rig.pid().await;
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        rig.see(|view| view.generation == 2 && view.state == PluginState::Ready)
            .await;
        let exit = rig.snapshot().await.last_exit;
        let expected = "out of processes, limit 16 (signal: 9 (SIGKILL))";
        assert_eq!(exit.as_deref(), Some(expected));
        rig.end().await;
    });
}

#[test]
fn program_that_is_not_there_is_named_as_without_confinement() {
    run(async {
        let mut declaration = declared(Confinement::default());
        declaration.intensity.restarts = 0;
        declaration.start = plugin_host::LaunchMethod::Managed {
            command: "/nonexistent/plugin".into(),
            args: Vec::new(),
        };
        let rig = Rig::confined(&declaration, confiner("absent"));
        let failed = rig.reach(PluginState::Failed).await;
        let why =
            "cannot start plugin test: /nonexistent/plugin: No such file or directory (os error 2)";
        assert_eq!(failed.reason, why);
        rig.end().await;
    });
}

#[test]
fn limits_that_the_machine_has_no_place_for_are_shown_and_the_plugin_runs() {
    run(async {
        // No group can be made below a file.
        let confiner = Confiner {
            group: "/cgroup.procs/none".to_owned(),
            ..confiner("refused")
        };
        let rig = Rig::confined(&declared(limited()), confiner);
        rig.reach(PluginState::Ready).await;
        let shown = rig.snapshot().await.confined.unwrap();
        let [memory, pids] = shown.not_enforced.as_slice() else {
            panic!("{:?}", shown.not_enforced)
        };
        assert!(memory.starts_with("memory limit: ") && pids.starts_with("pids limit: "));
        assert_eq!(shown.groups, [""; 0].map(Path::new));
        rig.end().await;
    });
}

#[test]
fn what_outlives_a_process_takes_nothing_of_its_successors_limits() {
    run(async {
        let rig = Rig::confined(&declared(limited()), confiner("outlives"));
        rig.reach(PluginState::Ready).await;
        let first = rig.snapshot().await.confined.unwrap().groups;
        let alone = group_usage(&first).pids;
        let mut left = std::process::Command::new("sleep")
            .arg("3600")
            .spawn()
            .unwrap();
        for folder in &first {
            fs::write(folder.join("cgroup.procs"), left.id().to_string()).unwrap();
        }
        assert_eq!(rig.restart().await, Ok(2));
        let second = rig.snapshot().await.confined.unwrap().groups;
        assert_eq!(group_usage(&second).pids, alone);
        assert_eq!(group_usage(&first).pids, Some(1));
        left.kill().unwrap();
        left.wait().unwrap();
        // The next start takes away what the end could not.
        assert_eq!(rig.restart().await, Ok(3));
        until("the first group is gone", || {
            first.iter().all(|folder| !folder.exists())
        })
        .await;
        rig.end().await;
    });
}
