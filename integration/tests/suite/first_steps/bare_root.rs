//! A root with nothing but a C library and a shell, made from packages of this machine, in which the package is
//! installed and the agent started.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use integration::agent::program;
use tempfile::TempDir;
use tokio::process::Child;

/// What the programs of the package need, and a shell for its scripts.
const PACKAGES: [&str; 3] = ["busybox-static", "libc6", "libgcc-s1"];
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Where a root's failing systemd notes its calls.
const CALLS: &str = "/run/systemd-calls";

/// A root of its own, removed at the end.
#[derive(Debug)]
pub(super) struct BareRoot {
    dir: TempDir,
}

impl BareRoot {
    /// Copies the files of the packages, and what dpkg knows of them.
    pub(super) fn new() -> Self {
        let root = BareRoot {
            dir: tempfile::Builder::new()
                .prefix("oxlet-root-")
                .tempdir()
                .unwrap(),
        };
        for folder in [
            "usr/bin",
            "usr/sbin",
            "usr/lib",
            "usr/lib64",
            "proc",
            "sys",
            "dev",
            "tmp",
            "run",
        ] {
            fs::create_dir_all(root.path(folder)).unwrap();
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), root.path(name)).unwrap();
        }
        for folder in ["info", "updates", "triggers"] {
            fs::create_dir_all(root.path("var/lib/dpkg").join(folder)).unwrap();
        }
        let mut status = String::new();
        for package in &with_dependencies(&PACKAGES) {
            status.push_str(&said(
                Command::new("dpkg-query").args(["--status", package]),
            ));
            status.push('\n');
            root.copy_files(package);
        }
        fs::write(root.path("var/lib/dpkg/status"), status).unwrap();
        said(&mut root.command(&["/bin/busybox", "--install", "-s", "/bin"]));
        root
    }

    fn copy_files(&self, package: &str) {
        let list = said(Command::new("dpkg-query").args(["--listfiles", package]));
        let files: String = list
            .lines()
            .filter(|file| {
                let is_file = fs::symlink_metadata(file).is_ok_and(|found| !found.is_dir());
                is_file && !file.starts_with("/usr/share")
            })
            .map(|file| format!("{}\n", file.trim_start_matches('/')))
            .collect();
        let names = self.path("tmp/files");
        fs::write(&names, files).unwrap();
        let archive = self.path("tmp/files.tar");
        let mut pack = Command::new("tar");
        said(
            pack.args(["-C", "/", "-cf"])
                .arg(&archive)
                .arg("-T")
                .arg(&names),
        );
        said(
            Command::new("tar")
                .arg("-C")
                .arg(self.dir.path())
                .arg("-xf")
                .arg(&archive),
        );
        fs::remove_file(names).unwrap();
        fs::remove_file(archive).unwrap();
    }

    /// The place of a path of the root in this machine.
    pub(super) fn path(&self, within: impl AsRef<Path>) -> PathBuf {
        let within = within.as_ref();
        self.dir
            .path()
            .join(within.strip_prefix("/").unwrap_or(within))
    }

    /// A command that runs in the root.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command
            .arg(self.dir.path())
            .args(words)
            .env_clear()
            .env("PATH", PATH);
        command
    }

    /// dpkg of this machine, working on the root.
    pub(super) fn dpkg(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", self.dir.path().display()));
        command.args(arguments).env("PATH", PATH).output().unwrap()
    }

    /// Installs a package; dpkg's words if it does not.
    pub(super) fn install(&self, package: &Path) {
        let done = self.dpkg(&["--install", &package.display().to_string()]);
        assert!(done.status.success(), "{}", words(&done));
    }

    /// rpm of this machine, working on the root.
    pub(super) fn rpm(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("rpm");
        command.arg(format!("--root={}", self.dir.path().display()));
        command.args(["--dbpath", "/var/lib/rpm"]).args(arguments);
        command.env("PATH", PATH).output().unwrap()
    }

    /// Makes it a root that systemd runs, whose programs fail and do nothing but note how they are called.
    pub(super) fn add_failing_systemd(&self) {
        fs::create_dir_all(self.path("run/systemd/system")).unwrap();
        for name in ["systemctl", "systemd-tmpfiles"] {
            let script = format!("#!/bin/sh\necho \"{name} $*\" >>{CALLS}\nexit 1\n");
            let program = self.path("usr/bin").join(name);
            fs::write(&program, script).unwrap();
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// How systemd's programs were called since they were last asked for.
    pub(super) fn systemd_calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path(CALLS)).unwrap_or_default();
        drop(fs::remove_file(self.path(CALLS)));
        calls.lines().map(str::to_owned).collect()
    }

    /// Starts a command line as a service manager does: in a root of its own, with the machine's devices and a network
    /// that no other process uses.
    pub(super) fn serve(&self, line: &str, notify: &str) -> Child {
        let root = self.dir.path().display();
        let script = format!(
            "for folder in dev sys; do mount --rbind /$folder {root}/$folder || exit 1; done
            mount -t proc proc {root}/proc && busybox ip link set lo up || exit 1
            exec env -i PATH={PATH} NOTIFY_SOCKET={notify} chroot {root} {line}"
        );
        let log = fs::File::create(self.path("var/oxlet.log")).unwrap();
        let mut command = tokio::process::Command::new("unshare");
        command
            .args([
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                &script,
            ])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true);
        command.spawn().unwrap()
    }

    /// What the service has logged.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path("var/oxlet.log")).unwrap_or_default()
    }

    /// Puts a program of this workspace into the root.
    pub(super) fn add_program(&self, name: &str) {
        fs::create_dir_all(self.path("opt")).unwrap();
        fs::copy(program(name).unwrap(), self.path("opt").join(name)).unwrap();
    }
}

/// Packages, and those that they depend on.
fn with_dependencies(packages: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<String> = packages.iter().map(|name| (*name).to_owned()).collect();
    while let Some(package) = open.pop() {
        let list = said(Command::new("dpkg-query").args(["-W", "-f", "${Depends}", &package]));
        // `name (>= version)`, with commas between them.
        let names = list
            .split(',')
            .filter_map(|name| name.split_whitespace().next());
        open.extend(
            names
                .map(str::to_owned)
                .filter(|name| !found.contains(name)),
        );
        found.insert(package);
    }
    found
}

/// The output of a command that succeeds.
pub(super) fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", words(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What a command said, whatever its end.
pub(super) fn words(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}
