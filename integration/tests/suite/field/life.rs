//! The life of a program: it starts, becomes ready, serves, and logs; it comes back when it ends and when it is killed; it is
//! resized, evicted and deleted.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration::agent::Cri;
use integration::cluster::condition;
use integration::{pods, wait_for};
use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::FieldRig;
use super::program::{Command, End, Program};

/// A database on a busy machine makes its files.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Keeps a deleted pod's last status where the test reads it.
const FINALIZER: &str = "field.oxlet.dev/read";
/// Both times are whole seconds, and a kill takes a moment.
const ROUNDING: Duration = Duration::from_secs(2);
/// What the kernel holds of a container, as its own processes see it: cgroup v1, or v2.
const LIMITS: &str = "cd /sys/fs/cgroup; \
    cat cpu/cpu.cfs_quota_us memory/memory.limit_in_bytes 2>/dev/null || cat cpu.max memory.max";

/// A program's pod while it lives.
struct Life<'a> {
    rig: &'a FieldRig,
    program: &'a Program,
    pod: String,
    client: String,
}

pub(super) async fn whole_life(rig: &FieldRig, program: &Program) -> Result<()> {
    let data = rig.folder.path().join(&program.name);
    std::fs::create_dir(&data)?;
    let client = format!("{}-client", program.name);
    rig.apply(program.client_pod(&client))?;
    let life = |pod: String| Life {
        rig,
        program,
        pod,
        client: client.clone(),
    };
    let first = life(program.name.clone());
    rig.apply(program.pod(&first.pod, &data)?)?;
    rig.until_ready(&client, 0).await?;
    first.serves(program.client(), 0).await.context("starts")?;
    first.runs_commands_and_logs().await?;
    let restart = program.restart();
    first.is_signalled(restart, 1).await.context("restart")?;
    let killed = End {
        signal: "SIGKILL".to_owned(),
        exit_code: 137,
    };
    first.is_signalled(&killed, 2).await.context("kill")?;
    first.is_resized().await.context("resize")?;
    first.is_evicted().await.context("evict")?;
    let second = life(format!("{}-again", program.name));
    rig.apply(program.pod(&second.pod, &data)?)?;
    second.serves(program.kept(), 0).await.context("again")?;
    rig.delete(&second.pod).await?;
    second.ends().await.context("delete")?;
    rig.delete(&client).await?;
    rig.release(&client).await
}

impl Life<'_> {
    /// Waits until it is ready after so many restarts, and asks it as a client does.
    async fn serves(&self, asked: Option<&Command>, restarts: u64) -> Result<()> {
        let pod = self.rig.until_ready(&self.pod, restarts).await?;
        let Some(asked) = asked else {
            return Ok(());
        };
        let address = pod["status"]["podIP"].as_str().context("no address")?;
        let words = asked.command.iter();
        let words: Vec<_> = words
            .map(|word| word.replace("$(ADDRESS)", address))
            .collect();
        self.prints(&self.client, &words, &asked.prints).await
    }

    async fn runs_commands_and_logs(&self) -> Result<()> {
        let exec = &self.program.exec;
        self.prints(&self.pod, &exec.command, &exec.prints).await?;
        let wanted = format!("the log has {:?}", self.program.log);
        let mut last = String::new();
        let logged = wait_for(CONVERGENCE_TIMEOUT, &wanted, async || {
            last = self.rig.cluster.kubectl_ok(&["logs", &self.pod]).await?;
            Ok(last.contains(&self.program.log).then_some(()))
        });
        logged.await.with_context(|| last.clone())
    }

    async fn prints(&self, pod: &str, command: &[String], expected: &str) -> Result<()> {
        let mut words = vec!["exec", pod, "--"];
        words.extend(command.iter().map(String::as_str));
        let said = self.rig.cluster.kubectl(&words).await?;
        ensure!(
            said.ok && said.out.contains(expected),
            "{command:?} prints {said:?}, expected {expected:?}"
        );
        Ok(())
    }

    /// Signals the first process from outside, as the node's administrator would: it ends so, comes back, and serves.
    async fn is_signalled(&self, end: &End, restarts: u64) -> Result<()> {
        let pod = self.rig.cluster.pod(&self.pod).context("no pod")?;
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str();
        let id = id.and_then(|id| id.split_once("://")).context("no id")?.1;
        let pid = pods::pid_of(&self.rig.cri().await?.runtime(), id).await?;
        kill(Pid::from_raw(pid), end.signal.parse::<Signal>()?)?;
        self.serves(self.program.kept(), restarts).await?;
        let pod = self.rig.cluster.pod(&self.pod).context("no pod")?;
        let status = &pod["status"]["containerStatuses"][0];
        is_end(&status["lastState"]["terminated"], end.exit_code)
    }

    async fn is_resized(&self) -> Result<()> {
        let limits = json!({ "cpu": "900m", "memory": "600Mi", "ephemeral-storage": "200Mi" });
        let requests = json!({ "cpu": "60m", "memory": "80Mi", "ephemeral-storage": "0" });
        let resources = json!({ "requests": requests, "limits": limits });
        let containers = json!([{ "name": "app", "resources": resources }]);
        let resize = format!("{}/resize", path(&self.pod));
        let patch = json!({ "spec": { "containers": containers } });
        refused(self.rig.cluster.server.patch(&resize, &patch))?;
        let is_resized = |pod: &Value| {
            let status = &pod["status"]["containerStatuses"][0];
            status["resources"] == resources
        };
        let cluster = &self.rig.cluster;
        cluster
            .until_pod(&self.pod, CONVERGENCE_TIMEOUT, is_resized)
            .await?;
        let command = ["sh", "-c", LIMITS].map(str::to_owned);
        self.prints(&self.pod, &command, "90000").await?;
        let bytes = (600_u64 << 20).to_string();
        self.prints(&self.pod, &command, &bytes).await?;
        self.serves(self.program.kept(), 2).await
    }

    /// Evicts it by the API, as a drain does; or has the node evict it, for what it takes of the disk.
    async fn is_evicted(&self) -> Result<()> {
        let cluster = &self.rig.cluster;
        if let Some(overuse) = self.program.overuse() {
            self.prints(&self.pod, overuse, "").await?;
            let is_evicted = |pod: &Value| {
                pod["status"]["phase"] == "Failed" && pod["status"]["reason"] == "Evicted"
            };
            let waited = cluster.until_pod(&self.pod, CONVERGENCE_TIMEOUT, is_evicted);
            let pod = waited.await?;
            let why = &pod["status"]["message"];
            ensure!(why.to_string().contains("ephemeral"), "evicted: {why}");
            self.rig.delete(&self.pod).await?;
            return self.rig.release(&self.pod).await;
        }
        let order = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": self.pod },
        });
        let eviction = format!("{}/eviction", path(&self.pod));
        refused(cluster.server.post(&eviction, &order))?;
        self.ends().await
    }

    /// Waits until the deleted pod's container has ended as the program ends, within its grace period.
    async fn ends(&self) -> Result<()> {
        let has_ended =
            |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object();
        let cluster = &self.rig.cluster;
        let pod = cluster
            .until_pod(&self.pod, CONVERGENCE_TIMEOUT, has_ended)
            .await?;
        let terminated = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        is_end(terminated, self.program.stop.exit_code)?;
        // The API server has added the grace period to the time of the deletion.
        let (ended, latest) = (
            &terminated["finishedAt"],
            &pod["metadata"]["deletionTimestamp"],
        );
        let within = time(ended)? <= time(latest)? + ROUNDING;
        ensure!(within, "ended at {ended}, later than {latest}");
        self.rig.release(&self.pod).await
    }
}

impl FieldRig {
    fn apply(&self, mut pod: Value) -> Result<()> {
        pod["metadata"]["finalizers"] = json!([FINALIZER]);
        self.cluster.apply(&pod)?;
        Ok(())
    }

    async fn until_ready(&self, name: &str, restarts: u64) -> Result<Value> {
        let is_ready = |pod: &Value| {
            let status = &pod["status"]["containerStatuses"][0];
            status["restartCount"] == restarts && condition(pod, "Ready") == Some("True")
        };
        let waited = self.cluster.until_pod(name, CONVERGENCE_TIMEOUT, is_ready);
        let waited = waited.await.with_context(|| format!("{name} is not ready"));
        match waited {
            Ok(pod) => Ok(pod),
            Err(error) => {
                let logged = self.cluster.kubectl(&["logs", name]).await?;
                Err(error.context(logged.out))
            }
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let delete = ["delete", "pod", name, "--wait=false"];
        self.cluster.kubectl_ok(&delete).await?;
        Ok(())
    }

    /// Lets a deleted pod go, and waits until it is gone.
    async fn release(&self, name: &str) -> Result<()> {
        let none = json!({ "metadata": { "finalizers": null } });
        refused(self.cluster.server.patch(&path(name), &none))?;
        self.cluster
            .until_pod(name, CONVERGENCE_TIMEOUT, Value::is_null)
            .await?;
        Ok(())
    }

    async fn cri(&self) -> Result<Cri> {
        match &self.containerd {
            Some(containerd) => Ok(Cri::over(containerd.channel())),
            None => self.cluster.node.cri().await,
        }
    }
}

fn path(pod: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{pod}")
}

fn refused<T>(answer: Result<T, impl Debug>) -> Result<T> {
    answer.map_err(|status| anyhow::anyhow!("refused: {status:?}"))
}

fn time(value: &Value) -> Result<Timestamp> {
    let text = value.as_str().context("no time")?;
    Ok(text.parse()?)
}

fn is_end(terminated: &Value, exit_code: i64) -> Result<()> {
    let reason = if exit_code == 0 { "Completed" } else { "Error" };
    ensure!(
        terminated["exitCode"] == exit_code && terminated["reason"] == reason,
        "ended with {terminated}, expected {exit_code}, {reason}"
    );
    Ok(())
}
