//! A pod's monitor in a folder of its own, and busybox containers in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use monitor::{
    Attach, ContainerStatus, Create, Exec, Exit, Handler, Input, Launch, Monitor, Output, Session,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_oxlet-monitor");
/// How long anything may take on a busy machine, times `OXLET_PATIENCE`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A pod.
pub(crate) struct Rig {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) monitor: Monitor,
    pub(crate) handler: Handler,
}

/// A container to be made.
pub(crate) struct Box {
    pub(crate) id: &'static str,
    pub(crate) script: String,
    pub(crate) spec: fn(&mut Value),
    pub(crate) stdin: Input,
    pub(crate) terminal: bool,
}

/// A container that runs a shell script.
pub(crate) fn sh(id: &'static str, script: &str) -> Box {
    Box {
        id,
        script: script.to_owned(),
        spec: |_| (),
        stdin: Input::Closed,
        terminal: false,
    }
}

/// Runs a law with every runtime.
pub(crate) async fn with_each_runtime<F: Future<Output = ()>>(law: impl Fn(Rig) -> F) {
    for program in [PathBuf::from("/usr/sbin/runc"), oxlet_oci()] {
        law(Rig::with(&program).await).await;
    }
}

pub(crate) fn oxlet_oci() -> PathBuf {
    let program = Path::new(PROGRAM).with_file_name("oxlet-oci");
    assert!(
        program.exists(),
        "{} is not built: cargo build --workspace --bins",
        program.display()
    );
    program
}

/// The longest time of a wait on this machine: an emulated processor is some ten times slower.
fn timeout() -> Duration {
    let times = std::env::var("OXLET_PATIENCE")
        .ok()
        .and_then(|text| text.parse().ok());
    TIMEOUT * times.unwrap_or(1)
}

/// Waits for what must come.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(timeout(), future)
        .await
        .expect("it takes too long")
}

impl Rig {
    pub(crate) async fn new() -> Rig {
        Rig::with(Path::new("/usr/sbin/runc")).await
    }

    pub(crate) async fn with(program: &Path) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        make_rootfs(&dir.path().join("rootfs"));
        let handler = Handler {
            program: program.to_owned(),
            root: dir.path().join("state"),
            systemd_cgroup: false,
            is_own: program.ends_with("oxlet-oci"),
            deadline_ms: 60_000,
        };
        let monitor = within(launch(dir.path()).start()).await.unwrap();
        Rig {
            dir,
            monitor,
            handler,
        }
    }

    pub(crate) fn launch(&self) -> Launch {
        launch(self.dir.path())
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("pod")
    }

    pub(crate) fn log_path(&self, id: &str) -> PathBuf {
        self.dir.path().join("logs").join(id)
    }

    /// The text of a container's log, without the times.
    pub(crate) fn log(&self, id: &str) -> String {
        let text = fs::read_to_string(self.log_path(id)).unwrap();
        let lines = text
            .lines()
            .map(|line| line.split_once(' ').unwrap().1.to_owned() + "\n");
        lines.collect()
    }

    /// Writes a bundle and returns what the monitor is asked.
    pub(crate) fn bundle(&self, container: &Box) -> Create {
        let bundle = self.dir.path().join("bundles").join(container.id);
        fs::create_dir_all(&bundle).unwrap();
        let mut spec = spec(&self.dir.path().join("rootfs"), container);
        spec["linux"]["cgroupsPath"] = json!(format!("{}/{}", self.cgroup(), container.id));
        (container.spec)(&mut spec);
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        Create {
            container: container.id.to_owned(),
            handler: self.handler.clone(),
            bundle,
            log: Some(self.log_path(container.id)),
            log_folder: Some(self.dir.path().to_owned()),
            stdin: container.stdin,
            terminal: container.terminal,
        }
    }

    pub(crate) async fn create(&self, container: &Box) -> ContainerStatus {
        within(self.monitor.create(self.bundle(container)))
            .await
            .unwrap()
    }

    /// Creates and starts.
    pub(crate) async fn run(&self, container: &Box) -> ContainerStatus {
        self.create(container).await;
        within(self.monitor.start(container.id)).await.unwrap()
    }

    /// Creates, starts and waits for the end.
    pub(crate) async fn exit(&self, container: &Box) -> ContainerStatus {
        self.run(container).await;
        within(self.monitor.wait(container.id)).await.unwrap()
    }

    pub(crate) fn exec(&self, id: &str, script: &str) -> Exec {
        Exec {
            container: id.to_owned(),
            process: process(script, false),
            stdin: false,
            timeout_ms: None,
            size: None,
            max_output_bytes: None,
        }
    }

    /// What a script in a container says, which must end well.
    pub(crate) async fn ask(&self, id: &str, script: &str) -> String {
        let output = within(self.monitor.exec_sync(self.exec(id, script), 1 << 20))
            .await
            .unwrap();
        assert_eq!(output.end.exit, Exit::Code(0), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) async fn attach(&self, id: &str, stdin: bool) -> Session {
        let attach = Attach {
            stdin,
            ..self.joining(id)
        };
        within(self.monitor.attach(attach)).await.unwrap()
    }

    /// What a client without input asks that joins a container.
    pub(crate) fn joining(&self, id: &str) -> Attach {
        Attach {
            container: id.to_owned(),
            stdin: false,
            stdout: true,
            stderr: true,
        }
    }

    /// Kills the monitor as nothing can prevent, and waits until it is gone.
    pub(crate) async fn kill_monitor(&self) {
        let pid = within(self.monitor.status()).await.unwrap().pid;
        kill(pid);
        wait_until(|| !Path::new(&format!("/proc/{pid}/fd/0")).exists()).await;
    }

    /// Starts the successor.
    pub(crate) async fn succeed(&self) {
        within(self.launch().start()).await.unwrap();
    }

    /// Kills and removes everything and ends the monitor; what is left over anywhere is an error. A container's cgroup
    /// goes with it, and its parents with the last test.
    pub(crate) async fn end(self) {
        for container in within(self.monitor.status()).await.unwrap().containers {
            let id = container.container;
            within(self.monitor.kill(&id, 9)).await.unwrap();
            if container.phase != monitor::Phase::Created {
                within(self.monitor.wait(&id)).await.unwrap();
            }
            within(self.monitor.delete(&id)).await.unwrap();
        }
        within(self.monitor.shutdown()).await.unwrap();
        let left: Vec<_> = fs::read_dir(self.folder().join("containers"))
            .unwrap()
            .collect();
        assert!(left.is_empty(), "left over: {left:?}");
        let states = fs::read_dir(&self.handler.root)
            .into_iter()
            .flatten()
            .count();
        assert_eq!(states, 0, "states left in {}", self.handler.root.display());
        self.remove_cgroups();
    }
}

impl Rig {
    fn cgroup(&self) -> String {
        let name = self.dir.path().file_name().unwrap().to_string_lossy();
        format!("/oxlet-monitor-test{}", name.trim_start_matches('.'))
    }

    /// Fails when a container's cgroup is still there.
    fn remove_cgroups(&self) {
        for cgroup in self.cgroups("") {
            fs::remove_dir(&cgroup).unwrap();
        }
    }

    /// The folders of a container's cgroup, one a hierarchy that it is in; those above it without an id.
    pub(crate) fn cgroups(&self, id: &str) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let entries = fs::read_dir(root).unwrap().flatten();
        // On v1 a hierarchy is a folder below the root, on v2 it is the root.
        let all = entries.map(|entry| entry.path()).chain([root.to_owned()]);
        let own = self.cgroup();
        let own = Path::new(own.trim_start_matches('/')).join(id);
        all.map(|hierarchy| hierarchy.join(&own))
            .filter(|folder| folder.is_dir())
            .collect()
    }
}

/// A test that failed leaves no process and no mount behind.
impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let folder = self.folder();
        let folder = folder.to_string_lossy();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let cmdline = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            if let (Ok(pid), true) = (
                entry.file_name().to_string_lossy().parse(),
                cmdline.contains(&*folder),
            ) {
                kill(pid);
            }
        }
        for state in fs::read_dir(&self.handler.root)
            .into_iter()
            .flatten()
            .flatten()
        {
            let mut delete = std::process::Command::new(&self.handler.program);
            delete
                .arg("--root")
                .arg(&self.handler.root)
                .args(["delete", "--force"])
                .arg(state.file_name());
            drop(delete.status());
        }
    }
}

/// Kills a process.
pub(crate) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Waits until something is so that nobody tells.
pub(crate) async fn wait_until(is_so: impl Fn() -> bool) {
    let mut turns = tokio::time::interval(Duration::from_millis(5));
    within(async {
        while !is_so() {
            turns.tick().await;
        }
    })
    .await;
}

/// Reads a stream until it has said `text`, or ends.
pub(crate) async fn read_until(session: &mut Session, text: &str) -> String {
    let mut heard = String::new();
    while !heard.contains(text) {
        match within(session.next()).await.unwrap() {
            Output::Stdout(bytes) | Output::Stderr(bytes) => {
                heard += &String::from_utf8_lossy(&bytes)
            }
            end => panic!("it ended: {end:?} after {heard:?}"),
        }
    }
    heard
}

fn launch(dir: &Path) -> Launch {
    Launch {
        program: PROGRAM.into(),
        folder: dir.join("pod"),
        cgroup: None,
    }
}

fn make_rootfs(rootfs: &Path) {
    for folder in ["bin", "proc", "dev", "tmp", "sys", "data"] {
        fs::create_dir_all(rootfs.join(folder)).unwrap();
    }
    fs::copy("/bin/busybox", rootfs.join("bin/busybox")).unwrap();
    for applet in [
        "sh", "cat", "ls", "sleep", "head", "yes", "tr", "dd", "stty", "readlink", "seq", "id",
        "pwd", "true", "printf", "mkdir", "mknod", "grep",
    ] {
        symlink("busybox", rootfs.join("bin").join(applet)).unwrap();
    }
}

/// An OCI process that runs a shell script.
pub(crate) fn process(script: &str, terminal: bool) -> Value {
    let capabilities = json!([
        "CAP_KILL",
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_SETUID",
        "CAP_SETGID"
    ]);
    json!({
        "terminal": terminal,
        "user": {"uid": 0, "gid": 0},
        "args": ["/bin/sh", "-c", script],
        "env": ["PATH=/bin", "TERM=xterm"],
        "cwd": "/",
        "noNewPrivileges": true,
        "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
    })
}

fn spec(rootfs: &Path, container: &Box) -> Value {
    let tmpfs = |path: &str| json!({"destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]});
    json!({
        "ociVersion": "1.0.2",
        "process": process(&container.script, container.terminal),
        "root": {"path": rootfs, "readonly": false},
        "hostname": "box",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            tmpfs("/dev"),
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
            tmpfs("/tmp"),
        ],
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}],
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "maskedPaths": ["/proc/kcore"],
            "readonlyPaths": ["/proc/sys"],
        },
    })
}
