//! `make run`: a node to look at, on the best runtime of this machine, in folders of its own.

mod show;

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::agent::{NODE_NAME, Node, Runtime, program};
use crate::containerd::{self, CgroupPlacement, Containerd};
use crate::images::Image;

/// The sample pod's image.
const IMAGE: &str = "localhost/busybox:latest";
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/sample-pod.yaml");
/// The sample pod's name in its manifest.
const POD: &str = "hello";
const RUNNING_TIMEOUT: Duration = Duration::from_secs(60);

/// When the node ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAfter {
    /// When everything has been shown.
    Shown,
    /// Never: Ctrl-C ends it.
    Interrupted,
}

/// Starts a node in this folder (`target/try` where none is named), runs the sample pod, shows it, and takes
/// everything away at the end.
pub async fn run(until: StopAfter, folder: Option<PathBuf>) -> Result<()> {
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
        done = shown(&folder, until) => done,
        () = ended => say("\nending the agent, its pods and its runtime"),
    };
    if let Err(error) = fs::remove_dir_all(&folder) {
        eprintln!("{} is not removed: {error}", folder.display());
    }
    done
}

async fn shown(folder: &Path, until: StopAfter) -> Result<()> {
    // In this order: a containerd that finds pods makes the folders of their logs again.
    Node::end_stray(&folder.join("node"));
    Containerd::clear(&folder.join("containerd")).await?;
    Node::clear(&folder.join("node"))?;
    let rig = runtime(&folder.join("containerd")).await?;
    let runtime = rig.as_ref().map_or(Runtime::Fake, Runtime::from);
    let mut builder = Node::builder().runtime(runtime).at(&folder.join("node"));
    if let Some(rig) = &rig {
        builder = builder.config(&serde_json::json!({ "cgroupRoot": rig.cgroup() }));
    }
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

/// Starts a containerd of our own, or says why the runtime is the fake one.
async fn runtime(dir: &Path) -> Result<Option<Containerd>> {
    let why = match containerd::missing() {
        Some(why) => why,
        None => {
            fs::create_dir_all(dir)?;
            match with_images(dir).await {
                Ok(rig) => {
                    let at = shortened(dir);
                    say(&format!(
                        "Runtime: containerd, because it is installed here. This is a private one, in {at}."
                    ))?;
                    return Ok(Some(rig));
                }
                Err(error) => format!("containerd does not start here: {error:#}"),
            }
        }
    };
    say(&format!(
        "Runtime: runtime-fake, whose containers are simulated, because {why}."
    ))?;
    Ok(None)
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
