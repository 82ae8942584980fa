//! A node agent to be measured: ours, or a kubelet beside it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use tokio::time::Instant;

use super::kubelet::KubeletProcess;
use super::process;
use super::report::AgentColumn;
use super::watch::EventWatch;
use crate::agent::{Cri, Node};
use crate::http;

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at /healthz of an agent that starts: what a start may seem longer than it was.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A node agent in a folder of its own.
#[derive(Debug)]
pub(super) enum MeasuredAgent {
    Oxlet(Box<Node>),
    KubeletProcess(KubeletProcess),
}

impl MeasuredAgent {
    /// The column of its figures.
    pub(super) fn column(&self) -> AgentColumn {
        match self {
            MeasuredAgent::Oxlet(_) => AgentColumn::Oxlet,
            MeasuredAgent::KubeletProcess(_) => AgentColumn::KubeletProcess,
        }
    }

    /// The port that answers without asking who asks.
    pub(super) fn read_only_port(&self) -> u16 {
        match self {
            MeasuredAgent::Oxlet(node) => node.read_only_port(),
            MeasuredAgent::KubeletProcess(kubelet) => kubelet.read_only_port(),
        }
    }

    /// Starts it and waits until it is healthy; returns how long that took.
    pub(super) async fn begin(&mut self) -> Result<Duration> {
        match self {
            MeasuredAgent::Oxlet(node) => node.begin().await,
            MeasuredAgent::KubeletProcess(kubelet) => {
                let began = Instant::now();
                kubelet.spawn()?;
                healthy(kubelet.healthz_port()).await?;
                Ok(began.elapsed())
            }
        }
    }

    /// Ends it in its own way; pods go on.
    pub(super) async fn end(&mut self) -> Result<()> {
        match self {
            MeasuredAgent::Oxlet(node) => node.terminate().await.map(drop),
            MeasuredAgent::KubeletProcess(kubelet) => kubelet.terminate().await,
        }
    }

    /// Returns clients of its runtime's CRI socket.
    pub(super) async fn cri(&self) -> Result<Cri> {
        match self {
            MeasuredAgent::Oxlet(node) => node.cri().await,
            MeasuredAgent::KubeletProcess(kubelet) => Ok(kubelet.cri()),
        }
    }

    /// Follows what happens in its runtime.
    pub(super) async fn watch(&self) -> Result<EventWatch> {
        EventWatch::start(&self.cri().await?).await
    }

    /// Puts a manifest into its folder; returns the wall's time in nanoseconds just before.
    pub(super) fn drop_manifest(&self, name: &str, text: &str) -> Result<i64> {
        let (dir, manifests) = match self {
            MeasuredAgent::Oxlet(node) => (node.dir(), node.manifests()),
            MeasuredAgent::KubeletProcess(kubelet) => (kubelet.dir(), kubelet.manifests()),
        };
        let draft = dir.join("draft.yaml");
        fs::write(&draft, text)?;
        let before = wall()?;
        fs::rename(&draft, manifests.join(format!("{name}.yaml")))?;
        Ok(before)
    }

    /// Removes a manifest from its folder.
    pub(super) fn remove_manifest(&self, name: &str) -> Result<()> {
        let folder = match self {
            MeasuredAgent::Oxlet(node) => node.manifests(),
            MeasuredAgent::KubeletProcess(kubelet) => kubelet.manifests(),
        };
        Ok(fs::remove_file(folder.join(format!("{name}.yaml")))?)
    }

    /// The processes of our storage plugins.
    pub(super) fn storage(&self) -> Result<Vec<u32>> {
        let children = process::children(self.pid()?)?.into_iter();
        let storage = children.filter(|(_, name)| name.starts_with("storage-"));
        Ok(storage.map(|(pid, _)| pid).collect())
    }

    /// Puts many manifests into its folder at once; returns the wall's time just before the first.
    pub(super) fn drop_manifests(&self, manifests: &[(String, String)]) -> Result<i64> {
        let (drafts, folder) = match self {
            MeasuredAgent::Oxlet(node) => (node.dir().join("drafts"), node.manifests()),
            MeasuredAgent::KubeletProcess(kubelet) => {
                (kubelet.dir().join("drafts"), kubelet.manifests())
            }
        };
        fs::create_dir_all(&drafts)?;
        let file = |folder: &PathBuf, name: &str| folder.join(format!("{name}.yaml"));
        for (name, text) in manifests {
            fs::write(file(&drafts, name), text)?;
        }
        let before = wall()?;
        for (name, _) in manifests {
            fs::rename(file(&drafts, name), file(&folder, name))?;
        }
        Ok(before)
    }

    /// The agent's process, and ours with its plugins.
    pub(super) fn processes(&self) -> Result<Vec<u32>> {
        match self {
            MeasuredAgent::Oxlet(node) => processes(node),
            MeasuredAgent::KubeletProcess(_) => Ok(vec![self.pid()?]),
        }
    }

    /// The process that stands where the runtime stands.
    pub(super) fn fake(&self) -> Result<Vec<u32>> {
        match self {
            MeasuredAgent::Oxlet(_) => {
                let children = process::children(self.pid()?)?.into_iter();
                Ok(children
                    .filter(|(_, name)| name == "runtime-fake")
                    .map(|(pid, _)| pid)
                    .collect())
            }
            MeasuredAgent::KubeletProcess(kubelet) => Ok(kubelet.fake_pid().into_iter().collect()),
        }
    }

    fn pid(&self) -> Result<u32> {
        let pid = match self {
            MeasuredAgent::Oxlet(node) => node.pid(),
            MeasuredAgent::KubeletProcess(kubelet) => kubelet.pid(),
        };
        pid.context("the agent does not run")
    }
}

/// Our agent's process and the plugins that it manages; what stands where the runtime stands is none of them.
pub(super) fn processes(node: &Node) -> Result<Vec<u32>> {
    let agent = node.pid().context("the agent does not run")?;
    let plugins = process::children(agent)?.into_iter();
    let counted = plugins.filter(|(_, name)| name != "runtime-fake");
    Ok(std::iter::once(agent)
        .chain(counted.map(|(pid, _)| pid))
        .collect())
}

/// Waits until `/healthz` says so.
pub(super) async fn healthy(port: u16) -> Result<()> {
    let asked = async {
        while !http::get(port, "/healthz")
            .await
            .is_ok_and(|answer| answer.status == 200)
        {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(START_TIMEOUT, asked)
        .await
        .context("the agent is not healthy in time")
}

/// The wall's time in nanoseconds, as the runtime tells it.
pub(super) fn wall() -> Result<i64> {
    let since = kernel::wall().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_nanos())?)
}
