//! A real containerd for tests: every file, socket, bridge, cgroup and process of it is this rig's own.
//!
//! Several rigs may run side by side and beside the machine's own containerd. Whatever a test does, panics
//! included, [`Drop`] removes sandboxes, ends containerd and the shims it left, and takes away mounts,
//! bridge and cgroups. What a killed test left behind, the next rig takes away. What cannot be private is told apart by
//! the rig's name (`ox` and a number).

mod cleanup;
mod config;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::pods::cgroups::CgroupManager;
use anyhow::{Context, Result, bail, ensure};
use logic_resources::cgroups::{CgroupDriver, CgroupLimits, CgroupName};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri;
use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::images::{self, Image};
use crate::wait_until;

/// An emulated machine takes half a minute to read containerd.
const START_TIMEOUT: Duration = Duration::from_secs(90);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const NEEDED: [&str; 6] = [
    "/usr/bin/containerd",
    "/usr/bin/containerd-shim-runc-v2",
    "/usr/bin/ctr",
    "/usr/sbin/runc",
    "/usr/lib/cni/bridge",
    "/bin/busybox",
];

static RIGS: AtomicU32 = AtomicU32::new(0);

/// Returns what keeps containerd tests from running here, or nothing.
pub fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("containerd needs root: run the tests as root".to_owned());
    }
    let absent = NEEDED.into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!(
        "containerd is not installed ({absent} is missing): \
         apt-get install containerd runc containernetworking-plugins busybox-static"
    ))
}

/// A containerd process with its folder, network and cgroup.
#[derive(Debug)]
pub struct Containerd {
    dir: PathBuf,
    name: String,
    group: CgroupPlacement,
    process: Option<Child>,
}

/// Whether what a terminal sends to the rig's process group reaches containerd as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupPlacement {
    /// It does: a test run that is interrupted leaves no containerd behind.
    #[default]
    Shared,
    /// It does not: Ctrl-C is the rig's to act on, with containerd still there to take the pods away.
    Own,
}

impl Containerd {
    /// Starts containerd with everything it owns inside `dir`, the standard images imported, and waits until
    /// its runtime and network are ready.
    pub async fn start(dir: &Path) -> Result<Self> {
        Self::start_in(dir, CgroupPlacement::default()).await
    }

    /// The same, in this process group.
    pub async fn start_in(dir: &Path, group: CgroupPlacement) -> Result<Self> {
        Self::start_by(dir, group, CgroupDriver::Cgroupfs).await
    }

    async fn start_by(dir: &Path, group: CgroupPlacement, driver: CgroupDriver) -> Result<Self> {
        if let Some(why) = missing() {
            bail!(why);
        }
        let dir = dir
            .canonicalize()
            .with_context(|| format!("no folder {}", dir.display()))?;
        cleanup::remove_orphans();
        let number = free_number();
        let mut rig = Self {
            name: format!("ox{number}"),
            dir,
            group,
            process: None,
        };
        cleanup::note(&rig.dir, &rig.name)?;
        config::write(&rig.dir, &rig.name, number, driver)?;
        rig.begin().await?;
        rig.import(&Image::pause(images::PAUSE)).await?;
        rig.import(&Image::busybox(images::BUSYBOX_IMAGE)).await?;
        Ok(rig)
    }

    /// Takes away what a rig in this folder left whose own process was killed, the folder as well.
    pub async fn clear(dir: &Path) -> Result<()> {
        if !dir.exists() {
            return Ok(());
        }
        let dir = dir.canonicalize()?;
        if let Some(name) = config::name(&dir) {
            cleanup::end_stray(&dir);
            let mut rig = Self {
                dir: dir.clone(),
                name,
                group: CgroupPlacement::default(),
                process: None,
            };
            // Only containerd itself knows every process of its pods.
            rig.begin().await?;
        }
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    /// Starts containerd for a test; nothing, with a sentence, where it cannot run. With `CI=true` that panics:
    /// there nothing is skipped.
    pub async fn for_test(dir: &Path) -> Option<Self> {
        Self::for_test_by(dir, CgroupDriver::Cgroupfs).await
    }

    /// The same, with runc making cgroups by this driver.
    pub async fn for_test_by(dir: &Path, driver: CgroupDriver) -> Option<Self> {
        if let Some(why) = missing() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
            eprintln!("skipped: {why}");
            return None;
        }
        match Self::start_by(dir, CgroupPlacement::default(), driver).await {
            Ok(rig) => Some(rig),
            Err(error) => panic!("containerd does not start: {error:#}"),
        }
    }

    /// Returns the path of the socket that serves CRI and containerd's own services.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    /// Returns the socket as the kubelet's configuration names it.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns the cgroup that every sandbox of this rig belongs under: what it holds is killed at the end.
    pub fn cgroup(&self) -> String {
        format!("/{}", self.name)
    }

    /// Makes that cgroup: a kubelet makes no root of its groups itself.
    pub async fn create_cgroup(&self, driver: CgroupDriver) -> Result<()> {
        let reported = kernel::watch::channel(None).1;
        let manager = CgroupManager::here(driver, reported);
        let root = CgroupName::parse(&self.cgroup());
        Ok(manager.create(&root, &CgroupLimits::default()).await?)
    }

    /// Returns the rig's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns containerd's process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Returns what containerd has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("containerd.log")).unwrap_or_default()
    }

    /// Connects to containerd's socket, straight, with no plugin between.
    pub fn channel(&self) -> Channel {
        connect(&self.socket())
    }

    /// Returns a CRI runtime client straight to containerd.
    pub fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel()).max_decoding_message_size(16 << 20)
    }

    /// Returns a CRI image client straight to containerd.
    pub fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel()).max_decoding_message_size(16 << 20)
    }

    /// Builds the image, imports it with `ctr`, and waits until CRI shows it.
    pub async fn import(&self, image: &Image) -> Result<()> {
        let archive = self.dir.join("import.tar");
        image.build()?.save(&archive)?;
        self.import_archive(&archive, &[&image.name]).await?;
        Ok(fs::remove_file(&archive)?)
    }

    /// Imports an archive with `ctr`, and waits until CRI shows the images of these names.
    pub async fn import_archive(&self, archive: &Path, names: &[&str]) -> Result<()> {
        let output = tokio::process::Command::new("ctr")
            .arg("-a")
            .arg(self.socket())
            .args(["-n", "k8s.io", "images", "import"])
            .arg(archive)
            .output()
            .await
            .context("cannot run ctr")?;
        ensure!(
            output.status.success(),
            "ctr images import: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        for name in names {
            let listed = format!("CRI lists {name}");
            wait_until(STOP_TIMEOUT, &listed, async || self.has_image(name).await).await?;
        }
        Ok(())
    }

    async fn has_image(&self, name: &str) -> bool {
        let asked = cri::ImageSpec {
            image: name.to_owned(),
            ..Default::default()
        };
        let question = cri::ImageStatusRequest {
            image: Some(asked),
            verbose: false,
        };
        let answer = self.images().image_status(question).await;
        answer.is_ok_and(|answer| answer.into_inner().image.is_some())
    }

    /// Stops containerd in its own way and starts it again over the running shims.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.begin().await
    }

    /// Ends containerd with SIGTERM; pods and shims go on.
    pub async fn stop(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        kill(pid(&process), Signal::SIGTERM)?;
        let ended = wait_until(STOP_TIMEOUT, "containerd ends", async || {
            matches!(process.try_wait(), Ok(Some(_)))
        })
        .await;
        if ended.is_err() {
            process.kill()?;
            process.wait()?;
        }
        ended
    }

    /// Ends and removes every pod; blocks until that is done.
    pub fn end_pods(&self) {
        cleanup::remove_sandboxes(&self.socket(), self.process.is_some());
    }

    /// Ends containerd with SIGKILL; pods and shims go on.
    pub fn kill9(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// Starts containerd, after [`stop`](Self::stop) or [`kill9`](Self::kill9), and waits until it is ready.
    pub async fn begin(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("containerd.log"))?;
        let mut command = Command::new("containerd");
        if self.group == CgroupPlacement::Own {
            command.process_group(0);
        }
        let process = command
            .arg("--config")
            .arg(self.dir.join("config.toml"))
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start containerd")?;
        self.process = Some(process);
        let client = self.runtime();
        let ready = wait_until(START_TIMEOUT, "containerd is ready", async || {
            ready(client.clone()).await
        });
        ready
            .await
            .with_context(|| format!("containerd's log:\n{}", self.log()))
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        cleanup::remove_sandboxes(&self.socket(), self.process.is_some());
        if let Some(mut process) = self.process.take() {
            cleanup::end(&mut process);
        }
        cleanup::remove_leftovers(&self.dir, &self.name, &self.socket());
    }
}

/// Returns a channel to the Unix socket at `path`; it connects at its first call and again after a loss.
pub fn connect(path: &Path) -> Channel {
    let path = path.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move {
            Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(
                tokio::net::UnixStream::connect(path).await?,
            ))
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

async fn ready(mut client: RuntimeServiceClient<Channel>) -> bool {
    let Ok(answer) = client.status(cri::StatusRequest { verbose: false }).await else {
        return false;
    };
    let conditions = answer.into_inner().status.unwrap_or_default().conditions;
    !conditions.is_empty() && conditions.iter().all(|condition| condition.status)
}

/// Finds a number that no living rig has: it names the bridge and picks the pods' subnet.
fn free_number() -> u32 {
    loop {
        let turn = RIGS.fetch_add(1, Ordering::Relaxed);
        let number = std::process::id().wrapping_add(turn.wrapping_mul(7919)) & 0x7fff;
        if !Path::new(&format!("/sys/class/net/ox{number}")).exists() {
            return number;
        }
    }
}

fn pid(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).unwrap_or(i32::MAX))
}
