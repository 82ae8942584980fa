//! Real software, as its projects' images run it, through its whole life on a node of a cluster. Each program is a file in
//! `tests/data/field`; what it prints, logs and ends with is the same on each runtime.

mod image;
mod life;
mod program;

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use integration::cluster::Cluster;
use integration::containerd::Containerd;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use self::program::Program;
use super::node_rig::TestRuntime;

on_real_runtimes! {
    programs_live_whole_lives,
}

/// Programs that live at the same time: each is bound by the processor for a part of its life alone.
const AT_ONCE: usize = 3;

/// A probe before its program serves, the restart of a program that was killed twice, an eviction by the node, and a node
/// without a cluster's DNS.
const EXPECTED_WARNINGS: [&str; 4] = ["Unhealthy", "BackOff", "Evicted", "MissingClusterDNS"];

/// A cluster of one node with the images of all programs. Dropped in this order.
struct FieldRig {
    cluster: Cluster,
    containerd: Option<Containerd>,
    folder: TempDir,
    _dir: Option<TempDir>,
}

impl FieldRig {
    async fn start(on: TestRuntime, programs: &[Program]) -> Result<Option<FieldRig>> {
        let Some((dir, containerd, builder)) = on.prepare().await else {
            return Ok(None);
        };
        // A program that was killed twice is back in a second, and not in ten.
        let soon = json!({ "crashLoopBackOff": { "maxContainerRestartPeriod": "1s" } });
        let cluster = Cluster::start(builder.config(&soon)).await?;
        let rig = FieldRig {
            cluster,
            containerd,
            folder: tempfile::tempdir()?,
            _dir: dir,
        };
        rig.import(programs).await?;
        rig.cluster.until_ready(Duration::from_secs(60)).await?;
        Ok(Some(rig))
    }

    /// What the node warned of that no life of a program explains.
    fn warnings(&self) -> Result<Vec<String>> {
        let events = self.cluster.server.get("/api/v1/namespaces/default/events");
        let events = events.map_err(|status| anyhow::anyhow!("{status:?}"))?;
        let events = events["items"].as_array().context("no list")?.iter();
        let warnings = events.filter(|event| event["type"] == "Warning");
        Ok(warnings
            .filter(|event| {
                !EXPECTED_WARNINGS
                    .iter()
                    .any(|reason| event["reason"] == *reason)
            })
            .map(|event| format!("{} {}", event["reason"], event["message"]))
            .collect())
    }

    async fn import(&self, programs: &[Program]) -> Result<()> {
        let archive = self.folder.path().join("images.tar");
        image::write_archive(programs, &archive)?;
        match &self.containerd {
            Some(containerd) => {
                let names: Vec<_> = programs.iter().map(Program::image_name).collect();
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                containerd.import_archive(&archive, &names).await?;
            }
            None => {
                let archive = archive.display().to_string();
                let node = &self.cluster.node;
                node.oxctl(&["image", "import", &archive]).await?;
            }
        }
        Ok(std::fs::remove_file(archive)?)
    }
}

async fn programs_live_whole_lives(on: TestRuntime) {
    let programs = Program::selected().unwrap();
    let began = Instant::now();
    let Some(rig) = FieldRig::start(on, &programs).await.unwrap() else {
        return;
    };
    println!("{on:?}: started with images in {:.1?}", began.elapsed());
    let lives = futures_util::stream::iter(&programs).map(async |program| {
        let began = Instant::now();
        let lived = life::whole_life(&rig, program).await;
        println!(
            "{on:?}: {} in {:.1?}: {lived:?}",
            program.name,
            began.elapsed()
        );
        lived.with_context(|| program.name.clone())
    });
    let lived: Vec<Result<()>> = lives.buffer_unordered(AT_ONCE).collect().await;
    let wrong: Vec<_> = lived.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let warnings = rig.warnings().unwrap();
    assert!(warnings.is_empty(), "{warnings:#?}");
}
