//! The AppArmor profile of containers that name none: the node's kernel gets it at the plugin's start.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The name of the profile.
pub(crate) const DEFAULT_PROFILE: &str = "oxlet-default";
/// Where the kernel takes and lists profiles.
const SECURITYFS: &str = "/sys/kernel/security/apparmor";
/// What compiles a profile and gives it to the kernel.
const PARSER: &str = "/sbin/apparmor_parser";
/// How long the parser may take: less than the time in which the agent expects the plugin.
const PARSER_TIMEOUT: Duration = Duration::from_secs(5);

/// What containers may do by it: everything that their capabilities let them, but mounts, writing to the kernel's own files, and
/// processes outside. Of procfs a container writes to processes' folders and to `kernel/shm*`, as by containerd's profile.
/// `attach_disconnected` is for descriptors from the node, such as the streams.
const PROFILE: &str = "
profile oxlet-default flags=(attach_disconnected, mediate_deleted) {
  capability,
  file,
  network,
  umount,
  signal (receive) peer=unconfined,
  signal (send, receive) peer=oxlet-default,
  ptrace (trace, read, tracedby, readby) peer=oxlet-default,
  deny mount,
  deny /proc/acpi/** rwklx,
  deny /proc/kcore rwklx,
  deny /proc/kmem rwklx,
  deny /proc/mem rwklx,
  deny /proc/sysrq-trigger rwklx,
  deny /proc/* w,
  deny /proc/[^1-9s]*/** wkl,
  deny /proc/s[^y]*/** wkl,
  deny /proc/sys/[^k]** wkl,
  deny /proc/sys/kernel/[^s]** wkl,
  deny /proc/sys/kernel/s[^h]** wkl,
  deny /sys/firmware/** rwklx,
  deny /sys/kernel/security/** rwklx,
  deny /sys/[^f]*/** wkl,
  deny /sys/f[^s]*/** wkl,
}
";

/// Gives the profile to the kernel and returns its name. As with containerd, a node without AppArmor or without its parser
/// has none, and its containers run without.
pub(crate) async fn load(is_enabled: bool) -> Option<&'static str> {
    if !is_enabled || !Path::new(SECURITYFS).exists() || !Path::new(PARSER).exists() {
        return None;
    }
    match tokio::time::timeout(PARSER_TIMEOUT, parse(PROFILE)).await {
        Ok(Ok(())) => return Some(DEFAULT_PROFILE),
        Ok(Err(error)) => tracing::error!(
            %error,
            profile = DEFAULT_PROFILE,
            "AppArmor profile not loaded: containers that name none run without one"
        ),
        Err(_) => tracing::error!(
            profile = DEFAULT_PROFILE,
            "AppArmor profile not loaded within {PARSER_TIMEOUT:?}: containers that name none run without one"
        ),
    }
    None
}

async fn parse(profile: &str) -> io::Result<()> {
    let mut parser = Command::new(PARSER)
        .args(["--replace", "--skip-cache"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = parser.stdin.take() {
        input.write_all(profile.as_bytes()).await?;
    }
    let output = parser.wait_with_output().await?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{PARSER}: {}: {}",
        output.status,
        text.trim()
    )))
}
