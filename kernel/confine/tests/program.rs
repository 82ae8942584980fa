//! The program, before `cat`, `sh` and others in the plugin's place.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::{Command, Output};

use confine::{Capabilities, Order, SystemCalls, Word};

const PROGRAM: &str = env!("CARGO_BIN_EXE_oxlet-confine");

fn order(names: &[&str]) -> Order {
    Order {
        groups: Vec::new(),
        private_tmp: false,
        capabilities: Capabilities::named(names.iter().copied()).unwrap(),
        no_new_privileges: true,
        system_calls: SystemCalls::All,
    }
}

/// Runs a program below the order. Its standard error is what it says: the output is the confinement's.
fn run(order: &Order, program: &[&str]) -> Output {
    let order = serde_json::to_string(order).unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg(order).args(program).output().unwrap()
}

fn shell(order: &Order, script: &str) -> (Vec<Word>, String) {
    let output = run(order, &["sh", "-c", &format!("exec >&2; {script}")]);
    (words(&output), String::from_utf8(output.stderr).unwrap())
}

fn words(output: &Output) -> Vec<Word> {
    let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim()
}

#[test]
fn process_has_the_ordered_capabilities_and_no_others() {
    let (words, status) = shell(&order(&["CHOWN", "NET_ADMIN"]), "cat /proc/self/status");
    assert_eq!(words, []);
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(field(&status, set), "0000000000001001", "{set}");
    }
    for set in ["CapInh:", "CapAmb:"] {
        assert_eq!(field(&status, set), "0000000000000000", "{set}");
    }
    assert_eq!(field(&status, "NoNewPrivs:"), "1");
    assert_eq!(field(&status, "Seccomp:"), "0");
}

#[test]
fn an_order_of_everything_changes_nothing() {
    let free = Order {
        capabilities: Capabilities::ALL,
        no_new_privileges: false,
        ..order(&[])
    };
    let (words, status) = shell(&free, "cat /proc/self/status");
    assert_eq!(words, []);
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    for name in ["CapPrm:", "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:"] {
        assert_eq!(field(&status, name), field(&own, name), "{name}");
    }
}

#[test]
fn root_without_the_capability_is_refused() {
    let mount = "mount -t tmpfs none /mnt 2>/dev/null || echo refused";
    assert_eq!(
        shell(&order(&["NET_ADMIN"]), mount),
        (vec![], "refused\n".to_owned())
    );
    let mut other = Command::new("setpriv")
        .args(["--reuid=65534", "sleep", "3600"])
        .spawn()
        .unwrap();
    // It has its user when it is no longer setpriv.
    let exe = format!("/proc/{}/exe", other.id());
    let begun = std::iter::repeat_with(|| std::fs::read_link(&exe));
    assert!(
        begun
            .take(1_000_000)
            .any(|exe| exe.is_ok_and(|exe| !exe.ends_with("setpriv")))
    );
    let end = format!("kill -KILL {} 2>/dev/null || echo refused", other.id());
    assert_eq!(
        shell(&order(&["NET_ADMIN"]), &end),
        (vec![], "refused\n".to_owned())
    );
    assert_eq!(shell(&order(&["KILL"]), &end), (vec![], String::new()));
    other.wait().unwrap();
    let others = "setpriv --reuid=65534 true 2>/dev/null || echo refused";
    assert_eq!(shell(&order(&[]), others), (vec![], "refused\n".to_owned()));
}

#[test]
fn filter_refuses_what_capabilities_would_allow() {
    let client = Order {
        capabilities: Capabilities::ALL,
        system_calls: SystemCalls::Client,
        ..order(&[])
    };
    let script = "grep Seccomp: /proc/self/status; unshare -n true 2>/dev/null || echo refused";
    assert_eq!(
        shell(&client, script),
        (vec![], "Seccomp:\t2\nrefused\n".to_owned())
    );
    let network = Order {
        system_calls: SystemCalls::Network,
        ..client
    };
    let script = "unshare -n true && echo allowed";
    assert_eq!(shell(&network, script), (vec![], "allowed\n".to_owned()));
}

/// The first tells of faults of the kernel itself, the second of the process's own.
#[test]
fn faults_of_the_kernel_are_held_up_by_no_plugin() {
    let network = Order {
        capabilities: Capabilities::ALL,
        system_calls: SystemCalls::Network,
        ..order(&[])
    };
    let number = nix::libc::SYS_userfaultfd;
    let script = format!(
        r"perl -e 'for (0, 1) {{ print syscall({number}, $_) < 0 ? qq(refused\n) : qq(allowed\n) }}'"
    );
    assert_eq!(
        shell(&network, &script),
        (vec![], "refused\nallowed\n".to_owned())
    );
}

#[test]
fn what_the_machine_refuses_is_told_and_the_program_runs() {
    let elsewhere = Order {
        groups: vec!["/nonexistent/group".into()],
        ..order(&[])
    };
    let (words, said) = shell(&elsewhere, "echo here");
    let refused = "cgroup /nonexistent/group: No such file or directory (os error 2)";
    assert_eq!(words, [Word::Refused(refused.to_owned())]);
    assert_eq!(said, "here\n");
}

#[test]
fn program_that_is_not_there_is_named_by_its_error() {
    let output = run(&order(&[]), &["/nonexistent/plugin"]);
    let failed = "No such file or directory (os error 2)";
    assert_eq!(words(&output), [Word::Failed(failed.to_owned())]);
    assert_eq!(output.status.code(), Some(126));
    let garbage = Command::new(PROGRAM).args(["{", "true"]).output().unwrap();
    let said = words(&garbage);
    assert!(
        matches!(said.as_slice(), [Word::Failed(why)] if why.starts_with("order: ")),
        "{said:?}"
    );
}

/// Below a root that is shared, as systemd makes it: mounts of the machine reach the plugin, and its `/tmp` goes nowhere. The
/// machine's own may be a mount already.
#[test]
fn private_tmp_is_seen_by_nobody_else() {
    let private = Order {
        private_tmp: true,
        ..order(&["SYS_ADMIN"])
    };
    let private = serde_json::to_string(&private).unwrap();
    let script = format!(
        "set -e; exec >&2; F=/tmp/$(basename $(mktemp -u)); touch $F; mount --make-rshared /
        mounts() {{ grep \" /tmp \" /proc/self/mountinfo || true; }}; before=$(mounts)
        {PROGRAM} '{private}' sh -c 'exec >&2; ls -A /tmp; touch /tmp/inside; stat -c %a /tmp'
        test -e $F && test ! -e /tmp/inside && echo apart
        test \"$(mounts)\" = \"$before\" && echo unmounted; rm $F"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let output = unshare.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "700\napart\nunmounted\n");
}
