//! The output of `make run` about its node.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;

use super::{say, shortened};
use crate::agent::{Node, program};
use crate::wait_until;

const LOG_TIMEOUT: Duration = Duration::from_secs(20);
/// The container of the sample pod that speaks.
const CONTAINER: &str = "greet";

/// Shows the pod as the operator sees it, its log, its history, and how to ask for more.
pub(super) async fn everything(node: &Node, pod: &Pod, name: &str) -> Result<()> {
    let oxctl = format!(
        "{} --socket {}",
        shortened(&program("oxctl")?),
        shortened(&node.admin_socket())
    );
    let pods = node.oxctl(&["pods"]).await?;
    say(&format!("$ {oxctl} pods\n{pods}"))?;
    let log = log(node, pod)?;
    let mut text = String::new();
    wait_until(LOG_TIMEOUT, "the pod has said something", async || {
        text = fs::read_to_string(&log).unwrap_or_default();
        !text.is_empty()
    })
    .await?;
    say(&format!("$ cat {}\n{text}", shortened(&log)))?;
    let why = node.oxctl(&["why", name]).await?;
    say(&format!("$ {oxctl} why {name}\n{why}"))?;
    say("Look around from another terminal:")?;
    let manifest = shortened(&node.manifests().join("sample-pod.yaml"));
    let lines = [
        format!("{oxctl} tree"),
        format!("{oxctl} plugins"),
        format!("{oxctl} plugin restart runtime"),
        format!("{oxctl} events -f"),
        format!("curl http://127.0.0.1:{}/pods", node.read_only_port()),
        format!("rm {manifest}"),
        format!("less {}", shortened(&node.dir().join("oxlet.log"))),
    ];
    lines
        .iter()
        .try_for_each(|line| say(&format!("  {line}")))?;
    say("")
}

fn log(node: &Node, pod: &Pod) -> Result<PathBuf> {
    let meta = &pod.metadata;
    let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
    let uid = meta.uid.as_deref().context("a pod without a uid")?;
    let folder = format!(
        "{}_{}_{uid}",
        namespace.unwrap_or_default(),
        name.unwrap_or_default()
    );
    Ok(node.pod_logs().join(folder).join(CONTAINER).join("0.log"))
}
