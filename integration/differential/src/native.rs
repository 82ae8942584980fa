//! A native runtime of the campaign's own: its plugin and the network's as processes, in a folder that is taken away at the end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::images::images_client::ImagesClient;
use proto::images::{ImportOptions, ImportRequest, import_request};
use rig::agent::program;
use rig::containerd::connect;
use rig::wait_until;
use serde_json::{Value, json};
use tonic::transport::Channel;

/// The handlers of the runtime that the campaign compares.
pub(crate) const HANDLERS: [&str; 2] = ["oxlet-oci", "runc"];

const START_TIMEOUT: Duration = Duration::from_secs(60);
const MESSAGE_LIMIT: usize = 16 << 20;
/// What one message of an import may carry.
const PIECE: usize = 1 << 20;

/// The plugins' processes and their folder.
#[derive(Debug)]
pub(crate) struct Native {
    home: PathBuf,
    /// Every pod's group is below this one.
    pub(crate) cgroup: String,
    processes: Vec<Child>,
}

impl Native {
    /// Starts both plugins in `home`, an empty folder, and waits until they are configured.
    pub(crate) async fn start(home: &Path) -> Result<Self> {
        // The roots of pods with users of their own are below it.
        fs::set_permissions(home, fs::Permissions::from_mode(0o711))?;
        let number = std::process::id();
        let mut native = Self {
            home: home.to_owned(),
            cgroup: format!("/differential-{number}"),
            processes: Vec::new(),
        };
        let networks = home.join("net.d");
        fs::create_dir(&networks)?;
        fs::write(
            networks.join("10-pods.conflist"),
            network(home, number).to_string(),
        )?;
        let network = json!({ "confDir": networks, "binDirs": ["/usr/lib/cni"] });
        native.spawn("network-native", &network).await?;
        let runtime = json!({
            "monitor": program("oxlet-monitor")?,
            "handlers": { "oxlet-oci": program("oxlet-oci")?, "runc": "/usr/sbin/runc" },
            "defaultHandler": "oxlet-oci",
            "userNamespaceFolder": home.join("stages"),
            "network": { "socket": native.socket("network-native") },
        });
        native.spawn("runtime-native", &runtime).await?;
        Ok(native)
    }

    /// Returns a CRI client.
    pub(crate) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        let channel = connect(&self.socket("runtime-native"));
        RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Takes an archive's images into the store.
    pub(crate) async fn import(&self, archive: &[u8]) -> Result<()> {
        let options = ImportOptions {
            origin: "the campaign's images".to_owned(),
            ..ImportOptions::default()
        };
        let pieces = archive.chunks(PIECE).map(<[u8]>::to_vec);
        let messages: Vec<ImportRequest> = [import_request::Part::Options(options)]
            .into_iter()
            .chain(pieces.map(import_request::Part::Data))
            .map(|part| ImportRequest { part: Some(part) })
            .collect();
        ImagesClient::new(connect(&self.socket("runtime-native")))
            .import(tokio_stream::iter(messages))
            .await
            .context("the native runtime does not import the images")?;
        Ok(())
    }

    /// Returns what the runtime has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home.join("runtime-native.log")).unwrap_or_default()
    }

    fn socket(&self, plugin: &str) -> PathBuf {
        self.home.join(format!("{plugin}.sock"))
    }

    async fn spawn(&mut self, plugin: &str, configuration: &Value) -> Result<()> {
        let file = self.home.join(format!("{plugin}.json"));
        fs::write(&file, configuration.to_string())?;
        let folder = self.home.join(plugin);
        fs::create_dir(&folder)?;
        let socket = self.socket(plugin);
        let log = fs::File::create(self.home.join(format!("{plugin}.log")))?;
        let child = Command::new(program("oxlet-plugins")?)
            .arg0(plugin)
            .arg("--socket")
            .arg(&socket)
            .arg("--configuration")
            .arg(&file)
            .arg("--dir")
            .arg(&folder)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {plugin}"))?;
        self.processes.push(child);
        // The socket is there before anybody listens at it.
        wait_until(START_TIMEOUT, &format!("{plugin} serves"), async || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        })
        .await
        .with_context(|| {
            let log = self.home.join(format!("{plugin}.log"));
            fs::read_to_string(log).unwrap_or_default()
        })
    }
}

impl Drop for Native {
    /// Whatever pods are left when a campaign breaks off go by their monitors, groups and mounts.
    fn drop(&mut self) {
        for process in &mut self.processes {
            drop(process.kill().and_then(|()| process.wait()));
        }
        let groups = groups(self.cgroup.trim_start_matches('/'));
        let members = groups.iter().flat_map(|group| members(group));
        for pid in monitors(&self.home).into_iter().chain(members) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
        unmount_below(&self.home);
        for group in groups.iter().rev() {
            drop(fs::remove_dir(group));
        }
    }
}

/// Point-to-point links whose addresses are files; the subnet is picked by the process.
fn network(home: &Path, number: u32) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": format!("differential-{number}"),
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": home.join("addresses"),
                "ranges": [[{ "subnet": format!("10.{}.{}.0/24", 208 + number % 5, number % 251) }]],
            },
        }],
    })
}

/// Unmounts what is mounted below a folder, innermost first.
pub(crate) fn unmount_below(folder: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| Path::new(point).starts_with(folder))
        .collect();
    points.reverse();
    for point in points {
        umount2(point, MntFlags::MNT_DETACH).ok();
    }
}

/// The monitors whose folders are below `home`.
fn monitors(home: &Path) -> Vec<i32> {
    let home = home.display().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("oxlet-monitor") && line.contains(&home)
        })
        .collect()
}

/// A group and those below it, in every hierarchy, outer ones first.
fn groups(name: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(root).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = hierarchies
        .map(|entry| entry.path())
        .chain([root.to_owned()])
        .map(|hierarchy| hierarchy.join(name))
        .filter(|group| group.is_dir())
        .collect();
    let mut at = 0;
    while let Some(group) = found.get(at) {
        let entries = fs::read_dir(group).into_iter().flatten().flatten();
        let below: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect();
        found.extend(below);
        at += 1;
    }
    found
}

fn members(group: &Path) -> Vec<i32> {
    let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    listed.lines().filter_map(|pid| pid.parse().ok()).collect()
}
