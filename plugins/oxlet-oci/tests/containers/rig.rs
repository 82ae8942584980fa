//! A bundle in a folder of its own, and the runtime's commands on it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_oxlet-oci");
/// How long anything may take on a busy machine, times `OXLET_PATIENCE`.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A container to be.
pub(crate) struct Rig {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) id: String,
    pub(crate) spec: Value,
}

impl Rig {
    /// A container that runs a shell script.
    pub(crate) fn new(script: &str) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let rootfs = dir.path().join("rootfs");
        for folder in ["bin", "proc", "dev", "tmp", "sys", "etc"] {
            fs::create_dir_all(rootfs.join(folder)).unwrap();
        }
        fs::copy("/bin/busybox", rootfs.join("bin/busybox")).unwrap();
        for applet in [
            "sh", "cat", "ls", "sleep", "id", "pwd", "stat", "echo", "grep", "readlink", "env",
            "test", "mkdir",
        ] {
            symlink("busybox", rootfs.join("bin").join(applet)).unwrap();
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = format!("oci-test-{}-{number}", std::process::id());
        let spec = spec(&id, script);
        Rig { dir, id, spec }
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.dir.path().join("rootfs")
    }

    pub(crate) fn state_root(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// A folder of the node, beside the bundle.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join("outside").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn mount(&mut self, mount: Value) {
        self.spec["mounts"].as_array_mut().unwrap().push(mount);
    }

    /// Binds a folder or file of the node.
    pub(crate) fn bind(&mut self, source: &Path, destination: &str) {
        self.mount(json!({ "destination": destination, "type": "bind", "source": source, "options": ["rbind", "rprivate"] }));
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("--root")
            .arg(self.state_root())
            .args(args)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn write(&self) {
        fs::write(self.dir.path().join("config.json"), self.spec.to_string()).unwrap();
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.dir.path().join("pid")
    }

    pub(crate) fn create_command(&self) -> Command {
        self.write();
        let mut command = self.command(&["create", "--bundle"]);
        command
            .arg(self.dir.path())
            .arg("--pid-file")
            .arg(self.pid_file())
            .arg(&self.id);
        command
    }

    /// Creates the container; what it says comes out of the pipe. Its words are the runtime's if it cannot be made.
    pub(crate) fn try_create(&self) -> Result<impl Read + use<>, String> {
        let (output, input) = std::io::pipe().unwrap();
        let status = self
            .create_command()
            .stdout(input.try_clone().unwrap())
            .stderr(input)
            .status()
            .unwrap();
        if status.success() {
            return Ok(output);
        }
        let mut text = String::new();
        { output }.read_to_string(&mut text).unwrap();
        Err(text)
    }

    /// Runs the container to its end and returns what it said.
    pub(crate) fn output(&self) -> String {
        let mut output = self
            .try_create()
            .unwrap_or_else(|text| panic!("{}: {text}", self.id));
        self.succeed(&["start", &self.id]);
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        self.wait_stopped();
        self.succeed(&["delete", &self.id]);
        self.assert_nothing_left();
        text
    }

    /// The words with which it is refused; nothing of it is left.
    pub(crate) fn refusal(&self) -> String {
        let text = self.try_create().map(drop).unwrap_err();
        self.assert_nothing_left();
        text
    }

    /// Creates and starts, and returns what the container says.
    pub(crate) fn start(&self) -> impl Read + use<> {
        let output = self
            .try_create()
            .unwrap_or_else(|text| panic!("{}: {text}", self.id));
        self.succeed(&["start", &self.id]);
        output
    }

    pub(crate) fn pid(&self) -> String {
        fs::read_to_string(self.pid_file()).unwrap()
    }

    pub(crate) fn succeed(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn fail(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn status(&self) -> String {
        let state: Value = serde_json::from_str(&self.succeed(&["state", &self.id])).unwrap();
        state["status"].as_str().unwrap().to_owned()
    }

    pub(crate) fn wait_stopped(&self) {
        wait_until(|| self.status() == "stopped");
    }

    /// Runs a script in the container; its output, once all of it has ended.
    pub(crate) fn exec(&self, change: impl Fn(&mut Value), script: &str) -> Output {
        let mut process = self.spec["process"].clone();
        process["args"] = json!(["/bin/sh", "-c", script]);
        change(&mut process);
        let file = self.dir.path().join("process.json");
        fs::write(&file, process.to_string()).unwrap();
        let file = file.display().to_string();
        self.command(&["exec", "--detach", "--process", &file, &self.id])
            .output()
            .unwrap()
    }

    /// Kills and removes it.
    pub(crate) fn end(&self) {
        self.succeed(&["delete", "--force", &self.id]);
        self.assert_nothing_left();
    }

    pub(crate) fn assert_nothing_left(&self) {
        let left: Vec<_> = fs::read_dir(self.state_root())
            .into_iter()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.groups(), Vec::<PathBuf>::new());
    }

    /// The container's cgroups.
    pub(crate) fn groups(&self) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(root).unwrap().flatten();
        hierarchies
            .map(|entry| entry.path())
            .chain([root.to_owned()])
            .map(|hierarchy| hierarchy.join(&self.id))
            .filter(|group| group.is_dir())
            .collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        drop(self.command(&["delete", "--force", &self.id]).output());
    }
}

/// Whether this machine's cgroups are of version 2.
pub(crate) fn is_unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// The first line that a container says.
pub(crate) fn first_line(output: impl Read) -> String {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).unwrap();
    line
}

/// The longest time of a wait on this machine: an emulated processor is some ten times slower.
fn timeout() -> Duration {
    let times = std::env::var("OXLET_PATIENCE")
        .ok()
        .and_then(|text| text.parse().ok());
    TIMEOUT * times.unwrap_or(1)
}

/// Waits until something is so that nobody tells.
#[expect(
    clippy::disallowed_methods,
    reason = "real processes keep the machine's time"
)]
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout();
    while !is_so() {
        assert!(Instant::now() < deadline, "it takes too long");
        std::thread::sleep(POLL);
    }
}

/// Names in a folder, with what the files contain.
pub(crate) fn listing(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                open.push(path.clone());
                found.push((path, Vec::new()));
            } else {
                let mut content = Vec::new();
                File::open(&path)
                    .unwrap()
                    .read_to_end(&mut content)
                    .unwrap();
                found.push((path, content));
            }
        }
    }
    found.sort();
    found
}

fn spec(id: &str, script: &str) -> Value {
    let set = json!(["CAP_KILL", "CAP_CHOWN", "CAP_DAC_OVERRIDE"]);
    let tmpfs = |path: &str| json!({ "destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] });
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/sh", "-c", script],
            "env": ["PATH=/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": { "bounding": set, "effective": set, "permitted": set },
        },
        "root": { "path": "rootfs" },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            tmpfs("/dev"),
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
              "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"] },
            tmpfs("/dev/shm"),
        ],
        "linux": {
            "namespaces": [{ "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }],
            "cgroupsPath": format!("/{id}"),
            "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
            "maskedPaths": ["/proc/kcore", "/proc/scsi"],
            "readonlyPaths": ["/proc/sys"],
        },
    })
}
