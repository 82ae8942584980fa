//! The package: what is in it, that it works where nothing else is, and that it comes out the same each time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use integration::agent::program;
use integration::wait_until;
use serde_json::json;

use super::bare_root::{BareRoot, said, words};

/// Debug builds on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
pub(super) const PROGRAMS: [&str; 7] = [
    "oxctl",
    "oxlet",
    "oxlet-cni",
    "oxlet-confine",
    "oxlet-monitor",
    "oxlet-oci",
    "oxlet-plugins",
];
/// Where an ELF file says for which machine it is, and the number of 64-bit ARM.
const ELF_MACHINE: usize = 18;
const ARM: u8 = 183;

pub(super) fn packed(verb: &str, environment: &[(&str, &Path)]) -> Output {
    packed_from(Path::new(WORKSPACE), verb, environment)
}

/// Packs by the script and with the settings of a folder of sources.
pub(super) fn packed_from(sources: &Path, verb: &str, environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(sources.join(".ci/package"));
    command.arg(verb).env("SOURCE_DATE_EPOCH", "1767225600");
    command.envs(environment.iter().copied()).output().unwrap()
}

/// The programs of this build as a package, not compressed.
fn package(out: &Path) -> PathBuf {
    let programs = program("oxlet").unwrap();
    let done = packed(
        "deb",
        &[
            ("PROGRAMS", programs.parent().unwrap()),
            ("OUT", out),
            ("COMPRESSION", Path::new("none")),
        ],
    );
    assert!(done.status.success(), "{}", words(&done));
    PathBuf::from(String::from_utf8(done.stdout).unwrap().trim())
}

/// Programs that are quickly packed: the beginning of one by the name of each.
pub(super) fn small_programs(folder: &Path, machine: Option<u8>) {
    let mut bytes = fs::read(program("oxlet-confine").unwrap()).unwrap();
    bytes.truncate(4096);
    if let Some(machine) = machine {
        bytes[ELF_MACHINE] = machine;
    }
    fs::create_dir_all(folder).unwrap();
    for name in PROGRAMS {
        let file = folder.join(name);
        fs::write(&file, &bytes).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// The command line of the installed unit, without what the operator adds.
fn command_line(root: &BareRoot) -> String {
    let unit = fs::read_to_string(root.path("usr/lib/systemd/system/oxlet.service")).unwrap();
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    line.unwrap().replace("$OXLET_ARGS", "")
}

/// The fake runtime instead of a real one, no cgroups, and whatever this machine is like.
fn settings_for_simulated_pods(root: &BareRoot) {
    fs::write(root.path("etc/resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    root.add_program("runtime-fake");
    let images = ["localhost/oxlet/pause:1", "localhost/busybox:latest"];
    let plugins = json!({
        "apiVersion": "oxlet.dev/v1alpha1",
        "kind": "PluginConfiguration",
        "runtime": "fake",
        "plugins": [{
            "name": "fake",
            "kind": "runtime",
            "command": "/opt/runtime-fake",
            "configuration": { "images": images },
        }],
    });
    fs::write(root.path("etc/oxlet/plugins.yaml"), format!("{plugins:#}")).unwrap();
    let settings = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "evictionHard": { "memory.available": "1Mi" },
        "imageGCHighThresholdPercent": 100,
    });
    let file = root.path("etc/oxlet/config.d/10-test.conf");
    fs::write(file, format!("{settings:#}")).unwrap();
}

/// Receives what the agent tells its service manager until it is ready.
async fn until_ready(socket: UnixDatagram, root: &BareRoot) {
    socket.set_nonblocking(true).unwrap();
    let socket = tokio::net::UnixDatagram::from_std(socket).unwrap();
    let mut text = [0; 4096];
    let ready = async {
        loop {
            let length = socket.recv(&mut text).await.unwrap();
            if String::from_utf8_lossy(&text[..length]).contains("READY=1") {
                return;
            }
        }
    };
    let done = tokio::time::timeout(CONVERGENCE_TIMEOUT, ready).await;
    assert!(done.is_ok(), "it is not ready: {}", root.log());
}

#[tokio::test]
async fn it_runs_pods_in_a_bare_root_and_leaves_only_what_the_operator_owns() {
    let out = tempfile::tempdir().unwrap();
    let root = BareRoot::new();
    let package = package(out.path());
    root.install(&package);
    said(Command::new("systemd-tmpfiles").args([
        &format!("--root={}", root.path("").display()),
        "--create",
        "oxlet.conf",
    ]));
    let version = said(&mut root.command(&["oxlet", "--version"]));
    assert!(version.starts_with("Kubernetes v1."), "{version}");

    settings_for_simulated_pods(&root);
    let sample = Path::new(WORKSPACE).join("config/sample-pod.yaml");
    fs::copy(sample, root.path("etc/kubernetes/manifests/sample.yaml")).unwrap();
    let socket = UnixDatagram::bind(root.path("run/notify")).unwrap();
    let agent = root.serve(&command_line(&root), "/run/notify");
    until_ready(socket, &root).await;
    let mut pods = String::new();
    wait_until(CONVERGENCE_TIMEOUT, "the sample pod runs", async || {
        pods = words(&root.command(&["oxctl", "pods"]).output().unwrap());
        pods.contains("hello-") && pods.contains("1/1")
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}: {pods}\n{}", root.log()));

    // The new version of a package comes while the old one runs; settings stay as they are.
    root.install(&package);
    assert!(
        fs::read_to_string(root.path("etc/oxlet/plugins.yaml"))
            .unwrap()
            .contains("runtime-fake")
    );
    drop(agent);
    let own = root.path("etc/oxlet/manifests/web.yaml");
    fs::write(&own, "").unwrap();
    let gone = root.dpkg(&["--purge", "oxlet"]);
    assert!(gone.status.success(), "{}", words(&gone));
    for path in [
        "usr/bin/oxlet",
        "usr/lib/oxlet",
        "usr/share/oxlet",
        "etc/oxlet/config.yaml",
        "etc/oxlet/config.d",
        "etc/oxlet/plugins.yaml",
        "etc/oxlet/net.d",
    ] {
        assert!(!root.path(path).exists(), "{path}");
    }
    assert!(own.exists());
    assert!(root.path("etc/kubernetes/manifests/sample.yaml").exists());
    assert!(root.path("var/lib/kubelet/oxlet").exists());
}

#[tokio::test]
async fn a_half_installed_package_says_which_program_is_missing() {
    let out = tempfile::tempdir().unwrap();
    let package = package(out.path());
    let root = BareRoot::new();
    // Only a part of it has arrived: nothing is installed.
    let part = out.path().join("part.deb");
    let bytes = fs::read(&package).unwrap();
    fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    assert!(
        !root
            .dpkg(&["--install", &part.display().to_string()])
            .status
            .success()
    );
    assert!(!root.path("usr/bin/oxlet").exists());

    root.install(&package);
    settings_for_simulated_pods(&root);
    for missing in ["oxlet-confine", "oxlet-plugins"] {
        let (program, aside) = (root.path("usr/lib/oxlet").join(missing), root.path("aside"));
        fs::rename(&program, &aside).unwrap();
        let mut agent = root.serve(&command_line(&root), "");
        let ended = tokio::time::timeout(CONVERGENCE_TIMEOUT, agent.wait()).await;
        let code = ended.unwrap().unwrap().code();
        let log = root.log();
        assert_eq!(code, Some(1), "{log}");
        assert!(
            log.contains(&format!("/usr/lib/oxlet/{missing} is not there")),
            "{log}"
        );
        fs::rename(&aside, &program).unwrap();
    }
}

#[test]
fn the_same_programs_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let build = |name: &str, verb: &str| {
        let (programs, out) = (
            dir.path().join(name),
            dir.path().join(format!("{name}-out")),
        );
        small_programs(&programs, None);
        let done = packed(verb, &[("PROGRAMS", &programs), ("OUT", &out)]);
        assert!(done.status.success(), "{}", words(&done));
        fs::read(String::from_utf8(done.stdout).unwrap().trim()).unwrap()
    };
    for verb in ["deb", "rpm"] {
        assert!(build("one", verb) == build("two", verb), "{verb}");
    }
}

#[test]
fn it_is_named_for_the_machine_of_its_programs() {
    let dir = tempfile::tempdir().unwrap();
    let programs = dir.path().join("programs");
    small_programs(&programs, Some(ARM));
    for (verb, end) in [("deb", "_arm64.deb"), ("rpm", ".aarch64.rpm")] {
        let done = packed(verb, &[("PROGRAMS", &programs), ("OUT", dir.path())]);
        assert!(done.status.success(), "{}", words(&done));
        let name = String::from_utf8(done.stdout).unwrap();
        assert!(name.trim().ends_with(end), "{name}");
    }
    small_programs(&programs, Some(0));
    let refused = packed("deb", &[("PROGRAMS", &programs), ("OUT", dir.path())]);
    assert!(words(&refused).contains("is for a machine that has no package"));
    assert!(!refused.status.success());
}

/// Every file and link below a folder.
pub(super) fn files(folder: &Path) -> BTreeSet<String> {
    let list = said(
        Command::new("find")
            .arg(folder)
            .args(["!", "-type", "d", "-printf", "%P\n"]),
    );
    list.lines().map(str::to_owned).collect()
}

#[test]
fn it_is_installed_below_any_prefix_and_the_operators_settings_stay() {
    let dir = tempfile::tempdir().unwrap();
    let (programs, root) = (dir.path().join("programs"), dir.path().join("root"));
    let install = || {
        let prefix = Path::new("/opt/oxlet");
        packed(
            "install",
            &[
                ("PROGRAMS", &programs),
                ("DESTDIR", &root),
                ("PREFIX", prefix),
            ],
        )
    };
    let refused = install();
    assert!(
        words(&refused).contains("run `make build` first"),
        "{}",
        words(&refused)
    );
    small_programs(&programs, None);
    assert!(install().status.success());
    let settings = root.join("etc/oxlet/config.yaml");
    fs::write(&settings, "mine").unwrap();
    assert!(install().status.success());
    assert_eq!(fs::read_to_string(settings).unwrap(), "mine");
    assert!(root.join("opt/oxlet/bin/oxlet").exists());
    let unit = fs::read_to_string(root.join("opt/oxlet/lib/systemd/system/oxlet.service")).unwrap();
    assert!(unit.contains("\nExecStart=/opt/oxlet/bin/oxlet "), "{unit}");
    let found = files(&root);
    for file in [
        "etc/oxlet/net.d/10-oxlet.conflist",
        "etc/oxlet/plugins.yaml",
        "opt/oxlet/lib/tmpfiles.d/oxlet.conf",
        "opt/oxlet/share/bash-completion/completions/oxctl",
        "opt/oxlet/share/fish/vendor_completions.d/oxlet.fish",
        "opt/oxlet/share/man/man8/oxctl.8.gz",
        "opt/oxlet/share/man/man8/oxlet.8.gz",
        "opt/oxlet/share/oxlet/90-alone.conf",
        "opt/oxlet/share/oxlet/90-kubeadm.conf",
        "opt/oxlet/share/zsh/site-functions/_oxlet",
    ] {
        assert!(found.contains(file), "{file} in {found:?}");
    }
}

/// What systemd says of the unit in this root, and whether it would start it.
fn verified(root: &Path) -> (bool, String) {
    let root = format!("--root={}", root.display());
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no", &root, "oxlet.service"]);
    let done = command.output().unwrap();
    (done.status.success(), words(&done))
}

#[test]
fn systemd_understands_the_unit_with_and_without_the_drop_ins_that_ship() {
    let dir = tempfile::tempdir().unwrap();
    let (programs, root) = (dir.path().join("programs"), dir.path().join("root"));
    small_programs(&programs, None);
    let prefix = Path::new("/usr");
    let environment = [
        ("PROGRAMS", &*programs),
        ("DESTDIR", &*root),
        ("PREFIX", prefix),
    ];
    assert!(packed("install", &environment).status.success());
    // The units of a machine that this one waits for.
    let copy = format!(
        "cp -a /lib/systemd/system/*.target {}",
        root.join("usr/lib/systemd/system").display()
    );
    said(Command::new("sh").args(["-c", &copy]));
    assert_eq!(verified(&root), (true, String::new()));

    let folder = root.join("etc/systemd/system/oxlet.service.d");
    fs::create_dir_all(&folder).unwrap();
    for name in ["90-alone.conf", "90-kubeadm.conf"] {
        let drop_in = folder.join(name);
        fs::copy(root.join("usr/share/oxlet").join(name), &drop_in).unwrap();
        assert_eq!(verified(&root), (true, String::new()), "{name}");
        let text = fs::read_to_string(&drop_in).unwrap();
        let elsewhere = text.replace("/usr/bin/oxlet", "/usr/bin/not-there");
        fs::write(&drop_in, elsewhere).unwrap();
        let (well, said) = verified(&root);
        assert!(
            !well && said.contains("/usr/bin/not-there is not executable"),
            "{name}: {said}"
        );
        fs::remove_file(drop_in).unwrap();
    }
}
