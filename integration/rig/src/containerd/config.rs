//! The configuration of containerd and of its CNI plugins.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use logic_resources::cgroups::CgroupDriver;
use serde_json::json;

use crate::images;

/// Writes `config.toml` and the CNI configuration into `dir`.
pub(super) fn write(dir: &Path, name: &str, number: u32, driver: CgroupDriver) -> Result<()> {
    let cni = dir.join("cni");
    fs::create_dir_all(&cni)?;
    // A link, so that a test may put a folder with more programs in its place.
    let programs = dir.join("cni-bin");
    if !programs.exists() {
        std::os::unix::fs::symlink("/usr/lib/cni", programs)?;
    }
    fs::write(cni.join("10-bridge.conflist"), network(dir, name, number))?;
    fs::write(
        dir.join("config.toml"),
        containerd(&dir.display().to_string(), driver),
    )
    .with_context(|| format!("cannot write containerd's config into {}", dir.display()))
}

/// Returns the name of the rig that wrote its configuration into `dir`.
pub(super) fn name(dir: &Path) -> Option<String> {
    let text = fs::read_to_string(dir.join("cni/10-bridge.conflist")).ok()?;
    let network: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some(network.get("name")?.as_str()?.to_owned())
}

/// `restrict_oom_score_adj`: without CAP_SYS_RESOURCE runc fails every sandbox whose score would be lowered.
fn containerd(dir: &str, driver: CgroupDriver) -> String {
    let pause = images::PAUSE;
    let by_systemd = driver == CgroupDriver::Systemd;
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
  address = "{dir}/containerd.sock"

[ttrpc]
  address = "{dir}/containerd.sock.ttrpc"

[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{dir}/cni-bin"
    conf_dir = "{dir}/cni"

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{dir}/runc"
        SystemdCgroup = {by_systemd}
"#
    )
}

/// A bridge of the rig's own; no masquerading, so that no firewall rule outlives the rig.
fn network(dir: &Path, name: &str, number: u32) -> String {
    let subnet = format!("10.{}.{}.0/24", 64 + (number >> 8), number & 0xff);
    json!({
        "cniVersion": "0.4.0",
        "name": name,
        "plugins": [
            {
                "type": "bridge",
                "bridge": name,
                "isGateway": true,
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "dataDir": dir.join("addresses"),
                    "ranges": [[{ "subnet": subnet }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
    .to_string()
}
