//! A kubelet beside ours: standalone, on a runtime-fake of its own, in a folder of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use held_port::HeldPort;
use logic_resources::cgroups::CgroupDriver;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Cri, NODE_NAME, program};
use crate::containerd::Containerd;
use crate::{images, wait_until};

const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A kubelet, and its runtime-fake where it has one; both end when it is dropped.
#[derive(Debug)]
pub(super) struct KubeletProcess {
    program: PathBuf,
    dir: TempDir,
    healthz_port: HeldPort,
    read_only_port: HeldPort,
    https_port: HeldPort,
    fake: Option<Child>,
    kubelet: Option<Child>,
}

impl KubeletProcess {
    /// Writes its configuration and starts its runtime-fake, but not yet the kubelet.
    pub(super) fn prepare(program: &Path) -> Result<Self> {
        let mut prepared = Self::new(program)?;
        let socket = socket(prepared.dir());
        prepared.fake = Some(fake(prepared.dir())?);
        prepared.configure(&socket, &json!({ "cgroupsPerQOS": false }))?;
        Ok(prepared)
    }

    /// Writes the configuration of a kubelet on a real containerd.
    pub(super) async fn prepare_on(program: &Path, rig: &Containerd) -> Result<Self> {
        rig.create_cgroup(CgroupDriver::Cgroupfs).await?;
        let prepared = Self::new(program)?;
        let settings = json!({
            "cgroupRoot": rig.cgroup(),
            // Off where no file system of the root is told; cAdvisor needs it on to find one here.
            "localStorageCapacityIsolation": true,
        });
        prepared.configure(&rig.socket(), &settings)?;
        Ok(prepared)
    }

    fn new(program: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("kubelet-").tempdir()?;
        for folder in [
            "manifests",
            "logs",
            "root",
            "certificates",
            "volume-plugins",
        ] {
            fs::create_dir(dir.path().join(folder))?;
        }
        Ok(Self {
            program: program.to_owned(),
            healthz_port: HeldPort::pick()?,
            read_only_port: HeldPort::pick()?,
            https_port: HeldPort::pick()?,
            dir,
            fake: None,
            kubelet: None,
        })
    }

    pub(super) fn spawn(&mut self) -> Result<()> {
        let dir = self.dir();
        let log = File::options()
            .create(true)
            .append(true)
            .open(dir.join("kubelet.log"))?;
        let kubelet = Command::new(&self.program)
            .arg(format!("--config={}", dir.join("config.yaml").display()))
            .arg(format!("--root-dir={}", dir.join("root").display()))
            .arg(format!("--cert-dir={}", dir.join("certificates").display()))
            .arg(format!("--hostname-override={NODE_NAME}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.kubelet = Some(kubelet);
        Ok(())
    }

    pub(super) async fn terminate(&mut self) -> Result<()> {
        let Some(mut kubelet) = self.kubelet.take() else {
            return Ok(());
        };
        kill(Pid::from_raw(i32::try_from(kubelet.id())?), Signal::SIGTERM)?;
        let ended = wait_until(STOP_TIMEOUT, "the kubelet ends", async || {
            matches!(kubelet.try_wait(), Ok(Some(_)))
        });
        let ended = ended.await;
        if ended.is_err() {
            kubelet.kill()?;
            kubelet.wait()?;
        }
        ended
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn manifests(&self) -> PathBuf {
        self.dir().join("manifests")
    }

    pub(super) fn healthz_port(&self) -> u16 {
        self.healthz_port.number()
    }

    pub(super) fn read_only_port(&self) -> u16 {
        self.read_only_port.number()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.kubelet.as_ref().map(Child::id)
    }

    pub(super) fn fake_pid(&self) -> Option<u32> {
        self.fake.as_ref().map(Child::id)
    }

    pub(super) fn cri(&self) -> Cri {
        Cri::connect(&socket(self.dir()))
    }

    /// No API server, nothing of the machine's that another kubelet might want, no limit that a fake node would meet.
    fn configure(&self, runtime: &Path, more: &Value) -> Result<()> {
        let mut configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": self.manifests(),
            "podLogsDir": self.dir().join("logs"),
            "volumePluginDir": self.dir().join("volume-plugins"),
            "containerRuntimeEndpoint": format!("unix://{}", runtime.display()),
            "address": "127.0.0.1",
            "port": self.https_port.number(),
            "healthzPort": self.healthz_port.number(),
            "readOnlyPort": self.read_only_port.number(),
            "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
            "authorization": { "mode": "AlwaysAllow" },
            "failCgroupV1": false,
            "makeIPTablesUtilChains": false,
            "failSwapOn": false,
            "cgroupDriver": "cgroupfs",
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": false,
            "makeIPTablesUtilChains": false,
            "serializeImagePulls": false,
            "maxPods": 2_000,
            "evictionHard": {
                "memory.available": "0%",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
                "imagefs.available": "0%",
            },
        });
        let fields = more.as_object().into_iter().flatten();
        for (field, value) in fields {
            configuration[field] = value.clone();
        }
        let file = self.dir().join("config.yaml");
        Ok(fs::write(file, format!("{configuration:#}"))?)
    }
}

impl Drop for KubeletProcess {
    fn drop(&mut self) {
        for process in self.kubelet.iter_mut().chain(&mut self.fake) {
            // Gone already is as good.
            drop(process.kill());
            drop(process.wait());
        }
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("fake.sock")
}

/// Starts runtime-fake by hand, as an operator would.
fn fake(dir: &Path) -> Result<Child> {
    let configuration = dir.join("fake.json");
    let known = json!({ "images": [images::PAUSE, images::BUSYBOX_IMAGE] });
    fs::write(&configuration, known.to_string())?;
    Command::new(program("runtime-fake")?)
        .arg("--socket")
        .arg(socket(dir))
        .arg("--configuration")
        .arg(configuration)
        .arg("--dir")
        .arg(dir.join("fake"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.join("fake.log"))?)
        .spawn()
        .context("cannot start runtime-fake")
}
