//! `make run`: a node to look at, on the best runtime of this machine, in folders of its own.

mod show;

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::agent::{Builder, NODE_NAME, Node, Runtime, program};
use crate::containerd::{self, CgroupPlacement, Containerd};
use crate::images::Image;

/// The sample pod's image.
const IMAGE: &str = "localhost/busybox:latest";
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/sample-pod.yaml");
/// The sample pod's name in its manifest.
const POD: &str = "hello";
/// Addresses of the sample pod on the native runtime.
const SUBNET: &str = "10.88.77.0/24";
const RUNNING_TIMEOUT: Duration = Duration::from_secs(60);

/// When the node ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAfter {
    /// When everything has been shown.
    Shown,
    /// Never: Ctrl-C ends it.
    Interrupted,
}

/// The runtime to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeChoice {
    /// containerd where it is installed, otherwise the native one; the fake one where neither can run.
    Best,
    /// Ours, without a daemon, though there be a containerd.
    Native,
}

/// Starts a node in this folder (`target/try` where none is named), runs the sample pod, shows it, and takes
/// everything away at the end.
pub async fn run(until: StopAfter, folder: Option<PathBuf>, choice: RuntimeChoice) -> Result<()> {
    // Signals are handled from the first moment on: whatever is under way is taken away.
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let ended = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let folder = folder.map_or_else(usual_folder, Ok)?;
    fs::create_dir_all(&folder)?;
    let lock = File::create(folder.with_extension("lock"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!("another one runs in {}", folder.display()),
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    let done = tokio::select! {
        done = shown(&folder, until, choice) => done,
        () = ended => say("\nending the agent, its pods and its runtime"),
    };
    if let Err(error) = fs::remove_dir_all(&folder) {
        eprintln!("{} is not removed: {error}", folder.display());
    }
    done
}

async fn shown(folder: &Path, until: StopAfter, choice: RuntimeChoice) -> Result<()> {
    // In this order: a containerd that finds pods makes the folders of their logs again.
    Node::end_stray(&folder.join("node"));
    Containerd::clear(&folder.join("containerd")).await?;
    Node::clear(&folder.join("node"))?;
    let (rig, builder) = node(folder, choice).await?;
    let builder = builder.at(&folder.join("node"));
    let mut node = builder.group(CgroupPlacement::Own).prepare()?;
    let took = node.begin().await?;
    say(&format!(
        "The agent is healthy after {} ms.",
        took.as_millis()
    ))?;

    let began = Instant::now();
    let sample = fs::read_to_string(SAMPLE).with_context(|| format!("cannot read {SAMPLE}"))?;
    node.drop_manifest("sample-pod.yaml", &sample)?;
    let is_running = |pod: &k8s_openapi::api::core::v1::Pod| {
        let status = pod.status.as_ref();
        status.and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    let pod = node
        .until(POD, RUNNING_TIMEOUT, "is running", is_running)
        .await?;
    let took = began.elapsed().as_millis();
    say(&format!(
        "config/sample-pod.yaml is dropped into its folder; {took} ms later the pod runs.\n"
    ))?;
    show::everything(&node, &pod, &format!("{POD}-{NODE_NAME}")).await?;
    if until == StopAfter::Interrupted {
        say("Ctrl-C ends the agent, its pods and its runtime, and leaves nothing behind.")?;
        std::future::pending::<()>().await;
    }
    // In this order: the pods are taken away by containerd.
    drop(node);
    drop(rig);
    Ok(())
}

/// Chooses the node's runtime and says which and why; a containerd of our own is started.
async fn node(folder: &Path, choice: RuntimeChoice) -> Result<(Option<Containerd>, Builder)> {
    let no_containerd = match (choice, containerd::missing()) {
        (RuntimeChoice::Native, _) => "it was asked for".to_owned(),
        (RuntimeChoice::Best, Some(_)) => "containerd is not installed here".to_owned(),
        (RuntimeChoice::Best, None) => {
            let dir = folder.join("containerd");
            fs::create_dir_all(&dir)?;
            match with_images(&dir).await {
                Ok(rig) => {
                    let at = shortened(&dir);
                    say(&format!(
                        "Runtime: containerd, because it is installed here. This is a private one, in {at}."
                    ))?;
                    let root = json!({ "cgroupRoot": rig.cgroup() });
                    let builder = Node::builder().runtime(&rig).config(&root);
                    return Ok((Some(rig), builder));
                }
                Err(error) => format!("containerd does not start here ({error:#})"),
            }
        }
    };
    if !nix::unistd::geteuid().is_root() {
        say(&format!(
            "Runtime: runtime-fake, whose containers are simulated, because {no_containerd} and the native one needs root."
        ))?;
        return Ok((None, Node::builder()));
    }
    say(&format!(
        "Runtime: native, which needs no daemon, because {no_containerd}."
    ))?;
    Ok((None, native(folder)?))
}

/// A node on the native runtime, with the sample pod's image and a network of its own.
fn native(folder: &Path) -> Result<Builder> {
    let dir = folder.join("native");
    let networks = dir.join("networks");
    fs::create_dir_all(&networks)?;
    let archive = dir.join("image.tar");
    Image::shell(IMAGE).build()?.save(&archive)?;
    // No bridge, which would outlive the pods.
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "oxlet-try",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": dir.join("addresses"),
                "ranges": [[{ "subnet": SUBNET }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    fs::write(networks.join("10-try.conflist"), network.to_string())?;
    let configuration = json!({ "confDir": networks, "binDirs": ["/usr/lib/cni", "/opt/cni/bin"] });
    Ok(Node::builder()
        .runtime(Runtime::Native(json!({ "import": [archive] })))
        .network_by("network-native", &configuration))
}

async fn with_images(dir: &Path) -> Result<Containerd> {
    let rig = Containerd::start_in(dir, CgroupPlacement::Own).await?;
    rig.import(&Image::busybox(IMAGE)).await?;
    Ok(rig)
}

/// `target/try`, beside the folder of our own program.
fn usual_folder() -> Result<PathBuf> {
    let program = program("oxlet")?;
    let target = program.parent().and_then(Path::parent);
    Ok(target.context("a program outside of target")?.join("try"))
}

/// The path as it is typed from the current folder.
fn shortened(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{text}").context("nobody reads what is shown")
}
