//! What the agent tells: each answer as it is, and as the table that its command shows.

use std::time::Duration;

use ::agent::endpoints::admin::Variable;
use jiff::Timestamp;
use serde_json::Value;

use super::PART_TIMEOUT;
use super::archive::Archive;
use super::error::DiagnoseError;
use crate::agent::{AgentClient, AgentError, Method, encoded};
use crate::show;
use crate::top;

/// Each answer comes from memory, or from a measurement with a deadline of its own.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pods that are asked about.
const MAX_PODS: usize = 1024;

type Table = fn(&[u8], Timestamp) -> Result<String, AgentError>;

/// Names in the archive, what is asked, and how a table is made of it.
const ANSWERS: [(&str, &str, Table); 11] = [
    ("version", "/version", |answer, _| show::version(answer)),
    ("tree", "/tree", |answer, _| show::tree(answer)),
    ("plugins", "/plugins", show::plugins),
    ("pods", "/pods", show::pods),
    ("events", "/events", show::events),
    ("volumes", "/volumes", |answer, _| {
        show::volumes::table(answer)
    }),
    ("images", "/images", show::images::table),
    ("cpus", "/cpus", |answer, _| show::cpus::table(answer)),
    ("devices", "/devices", |answer, _| {
        show::cpus::devices(answer)
    }),
    ("top", "/top?age=1", |answer, _| top::table_of(answer)),
    ("config", "/config", |answer, _| show::json(answer)),
];
const METRICS: [&str; 5] = ["agent", "resource", "cadvisor", "probes", "slis"];

/// What other parts need to know from the agent's answers.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) pid: Option<u32>,
    /// What `/config` says; null without it.
    pub(super) config: Value,
    /// Rows of `/pods`.
    pub(super) pods: Vec<Value>,
    /// What containers have in their environments.
    pub(super) variables: Vec<Variable>,
}

/// Asks what the other parts depend on.
///
/// # Errors
/// The agent does not run, or nobody may speak to it.
pub(super) async fn known(agent: &AgentClient) -> Result<Known, AgentError> {
    let value = async |path: &str| -> Result<Value, AgentError> {
        let answer = agent.ask_with_timeout(ANSWER_TIMEOUT, Method::GET, path);
        Ok(serde_json::from_slice(&answer.await?)?)
    };
    let version = value("/version").await?;
    // What fails here fails again, and is named then.
    let config = value("/config").await.unwrap_or_default();
    let pods = value("/pods").await.unwrap_or_default();
    let variables = value("/variables").await.unwrap_or_default();
    Ok(Known {
        variables: serde_json::from_value(variables).unwrap_or_default(),
        pid: version["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok()),
        config,
        pods: pods.as_array().cloned().unwrap_or_default(),
    })
}

/// Adds the agent's answers; one that fails is named.
pub(super) async fn add(archive: &mut Archive, agent: &AgentClient) -> Result<(), DiagnoseError> {
    let now = show::now();
    for (name, path, table) in ANSWERS {
        let answer = agent.ask_with_timeout(ANSWER_TIMEOUT, Method::GET, path);
        let answer = match answer.await {
            Ok(answer) => answer,
            Err(error) => {
                archive.missing(name, error);
                continue;
            }
        };
        match serde_json::from_slice(&answer) {
            Ok(value) => archive.add_json(&format!("{name}.json"), value)?,
            Err(error) => archive.missing(name, error),
        }
        match table(&answer, now) {
            // The configuration has no table.
            Ok(_) if name == "config" => {}
            Ok(text) => archive.add(&format!("{name}.txt"), &text)?,
            Err(error) => archive.missing(name, error),
        }
    }
    for name in METRICS {
        let path = format!("/metrics/{name}");
        let text = agent.ask_with_timeout(ANSWER_TIMEOUT, Method::GET, &path);
        match text.await {
            Ok(text) => {
                let text = String::from_utf8_lossy(&text);
                archive.add(&format!("metrics/{name}.txt"), &text)?;
            }
            Err(error) => archive.missing(&path, error),
        }
    }
    Ok(())
}

/// Adds why each pod is where it is.
pub(super) async fn add_whys(
    archive: &mut Archive,
    agent: &AgentClient,
    pods: &[Value],
) -> Result<(), DiagnoseError> {
    let asked = async {
        for pod in pods.iter().take(MAX_PODS) {
            let text = |key: &str| pod[key].as_str().unwrap_or_default();
            // A refused manifest is named by its path.
            let [namespace, pod, uid] =
                ["namespace", "name", "uid"].map(|key| text(key).replace('/', "_"));
            let name = format!("why/{namespace}_{pod}_{uid}");
            let path = format!("/why/{}", encoded(text("uid")));
            let answer = agent.ask_with_timeout(ANSWER_TIMEOUT, Method::GET, &path);
            let shown = answer.await.and_then(|answer| {
                let json: Value = serde_json::from_slice(&answer)?;
                Ok((json, show::why(&answer, show::now())?))
            });
            match shown {
                Ok((json, table)) => {
                    archive.add_json(&format!("{name}.json"), json)?;
                    archive.add(&format!("{name}.txt"), &table)?;
                }
                Err(error) => archive.missing(&name, error),
            }
        }
        Ok(())
    };
    let all = tokio::time::timeout(PART_TIMEOUT, asked).await;
    all.unwrap_or_else(|_| {
        let seconds = PART_TIMEOUT.as_secs();
        archive.missing(
            "why",
            format!("more pods than could be asked about in {seconds} s"),
        );
        Ok(())
    })
}
