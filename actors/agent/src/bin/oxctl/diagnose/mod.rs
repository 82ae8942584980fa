//! `oxctl diagnose`: everything that shows how a node does, in one archive that may be given to others.
//!
//! The agent tells what it knows; the machine is read beside it, so that most is there although no agent runs. Each part
//! has a deadline and a bound; one that cannot be had is named in `errors.txt`, and the rest is written all the same. No
//! pod's manifest, no environment, no volume and no file of credentials is read into it, and what is has its secrets
//! taken out: `redact`.

mod agent_parts;
mod archive;
pub(crate) mod error;
mod files;
mod logs;
mod machine;
mod redact;
mod secrets;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::agent::endpoints::admin::Variable;
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::agent_parts::Known;
use self::archive::{Archive, Existing, Written};
use self::error::DiagnoseError;
use self::files::{Finder, Found, Unwanted};
use crate::agent::{AgentClient, AgentError};
use crate::output::{Output, OutputFormat, file_parser};
use crate::show;

/// For each part that is read from the machine, and for the pods' histories together.
const PART_TIMEOUT: Duration = Duration::from_secs(30);
/// Files that were read and are not packed yet.
const MAX_FOUND: usize = 16;
/// Bytes of the configuration file; a real one has a few KiB.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Upstream's, where no configuration says it.
const POD_LOGS_DIR: &str = "/var/log/pods";

#[derive(Debug, Args)]
pub(crate) struct DiagnoseArguments {
    /// The archive [default: oxlet-diagnose-NODE-TIME.tar.gz in this folder]
    #[arg(id = "output", short, long, value_name = "FILE", value_parser = file_parser(), hide_default_value = true)]
    output: Option<Output>,
    /// Replace the archive if it is there
    #[arg(long)]
    force: bool,
    /// Leave out the containers' logs, in which is whatever the containers write
    #[arg(long)]
    no_container_logs: bool,
    /// The agent's configuration, read where no agent runs
    #[arg(long, value_name = "FILE", default_value = "/etc/oxlet/config.yaml")]
    config: PathBuf,
    /// The agent's --root-dir, where no agent runs
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    root_dir: PathBuf,
    /// The agent's unit, by which the journal has its log
    #[arg(long, value_name = "UNIT", default_value = "oxlet.service")]
    unit: String,
}

/// Where the parts are.
#[derive(Debug, Clone)]
struct Places {
    agent: Option<u32>,
    pods: PathBuf,
    pod_logs: PathBuf,
    cgroup_root: String,
}

pub(crate) async fn run(
    agent: &AgentClient,
    arguments: &DiagnoseArguments,
    output: &Output,
) -> Result<(), AgentError> {
    let node = hostname();
    let now = show::now();
    let folder = format!("oxlet-diagnose-{node}-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let path = output.file();
    let path = path.unwrap_or_else(|| format!("{folder}.tar.gz").into());
    let existing = match arguments.force {
        true => Existing::Replaced,
        false => Existing::Kept,
    };
    let time = u64::try_from(now.as_second()).unwrap_or(0);
    let archive = Archive::create(&path, existing, (folder, time))?;
    let written = fill(archive, agent, arguments).await?;
    crate::print(&match output.format() {
        OutputFormat::Json => format!(
            "{:#}\n",
            json!({ "file": path, "files": written.files, "missing": written.missing })
        ),
        OutputFormat::Table => summary(&path, &written),
    })
}

fn summary(path: &Path, written: &Written) -> String {
    let missing = match written.missing {
        0 => String::new(),
        1 => "; 1 part could not be had, see errors.txt in it".to_owned(),
        many => format!("; {many} parts could not be had, see errors.txt in it"),
    };
    format!("{} ({} files{missing})\n", path.display(), written.files)
}

/// Writes every part that can be had.
async fn fill(
    mut archive: Archive,
    agent: &AgentClient,
    arguments: &DiagnoseArguments,
) -> Result<Written, DiagnoseError> {
    let known = agent_parts::known(agent).await;
    let (known, answers) = match known {
        Ok(known) => (known, true),
        Err(error) => {
            archive.missing("agent", error);
            let config = offline_config(&mut archive, &arguments.config).await;
            let known = Known {
                config,
                ..Known::default()
            };
            (known, false)
        }
    };
    let places = places(&known, arguments);
    learn(&mut archive, &known, &places).await?;
    let about =
        json!({ "oxctl": env!("CARGO_PKG_VERSION"), "agent_answers": answers, "node": hostname() });
    archive.add_json("about.json", about)?;
    if answers {
        agent_parts::add(&mut archive, agent).await?;
        agent_parts::add_whys(&mut archive, agent, &known.pods).await?;
    } else if !known.config.is_null() {
        archive.add_json("config.json", known.config.clone())?;
    }
    machine_parts(&mut archive, &places).await?;
    log_parts(&mut archive, &places, arguments).await?;
    archive.finish()
}

/// The configuration file as `/config` would tell it; null where it cannot be read.
async fn offline_config(archive: &mut Archive, file: &Path) -> Value {
    let path = file.to_owned();
    let read = kernel::spawn_blocking(move || files::head(&path, MAX_CONFIG_BYTES));
    let text = match tokio::time::timeout(PART_TIMEOUT, read).await {
        Ok(Ok(Ok(text))) => text,
        Ok(Ok(Err(error))) => {
            archive.missing(&file.display().to_string(), error);
            return Value::Null;
        }
        Ok(Err(_)) | Err(_) => {
            archive.missing(&file.display().to_string(), "it cannot be read in time");
            return Value::Null;
        }
    };
    match config::parse_configuration(file, &text) {
        Ok(kubelet) => ::agent::endpoints::node_api::configz(&kubelet),
        Err(error) => {
            archive.missing(&file.display().to_string(), kernel::error_chain(&error));
            Value::Null
        }
    }
}

fn places(known: &Known, arguments: &DiagnoseArguments) -> Places {
    let text = |value: &Value| {
        value
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let kubelet = &known.config["kubeletconfig"];
    let root = text(&known.config["flags"]["root-dir"]).map(PathBuf::from);
    Places {
        agent: known.pid,
        pods: root
            .unwrap_or_else(|| arguments.root_dir.clone())
            .join("pods"),
        pod_logs: text(&kubelet["podLogsDir"])
            .unwrap_or_else(|| POD_LOGS_DIR.to_owned())
            .into(),
        cgroup_root: text(&kubelet["cgroupRoot"]).unwrap_or_default(),
    }
}

/// Lets the archive know which values are secrets, before anything is in it.
async fn learn(archive: &mut Archive, known: &Known, places: &Places) -> Result<(), DiagnoseError> {
    let names = known.pods.iter().flat_map(|pod| {
        let text = |key: &str| pod[key].as_str().unwrap_or_default().to_owned();
        [text("namespace"), text("name"), text("uid"), text("ip")]
    });
    archive.redactor().keep(names.chain([hostname()]));
    for variable in &known.variables {
        let Variable { name, value } = variable;
        archive.redactor().learn_variable(name, value);
    }
    let pods = places.pods.clone();
    let volumes = move |finder: &Finder| secrets::of_volumes(finder, &pods);
    gather(archive, "the values of secrets", volumes).await?;
    let root = places.cgroup_root.clone();
    let variables = move |finder: &Finder| machine::variables(finder, &root);
    gather(archive, "the variables of containers", variables).await
}

async fn machine_parts(archive: &mut Archive, places: &Places) -> Result<(), DiagnoseError> {
    let agent = places.agent;
    gather(archive, "machine", move |finder| {
        machine::facts(finder, agent)
    })
    .await?;
    gather(archive, "mounts", move |finder| {
        machine::mounts(finder, agent)
    })
    .await?;
    let root = places.cgroup_root.clone();
    gather(archive, "cgroups", move |finder| {
        machine::cgroups(finder, &root)
    })
    .await
}

async fn log_parts(
    archive: &mut Archive,
    places: &Places,
    arguments: &DiagnoseArguments,
) -> Result<(), DiagnoseError> {
    match places.agent.and_then(logs::file_of) {
        Some(file) => {
            let log = move |finder: &Finder| logs::of_agent(finder, &file);
            gather(archive, "the agent's log", log).await?;
        }
        None => match logs::of_journal(&arguments.unit).await {
            Ok(text) => archive.add("logs/agent.log", &text)?,
            Err(why) => archive.missing("the agent's log", why),
        },
    }
    if arguments.no_container_logs {
        archive.missing("logs/pods", "left out by --no-container-logs");
        return Ok(());
    }
    let folder = places.pod_logs.clone();
    let containers = move |finder: &Finder| logs::of_containers(finder, &folder);
    gather(archive, "the containers' logs", containers).await
}

/// Takes what a thread finds into the archive, until it is done or its time is over. A thread that hangs is left alone.
async fn gather(
    archive: &mut Archive,
    what: &str,
    work: impl FnOnce(&Finder) -> Result<(), Unwanted> + Send + 'static,
) -> Result<(), DiagnoseError> {
    let (sender, mut found) = mpsc::channel(MAX_FOUND);
    drop(kernel::spawn_blocking(move || work(&Finder(sender))));
    let all = async {
        while let Some(found) = found.recv().await {
            match found {
                Found::File { name, text } => archive.add(&name, &text)?,
                Found::Secret(text) => archive.redactor().learn(&text),
                Found::Variable { name, value } => archive.redactor().learn_variable(&name, &value),
                Found::Missing { what, why } => archive.missing(&what, why),
            }
        }
        Ok(())
    };
    let all = tokio::time::timeout(PART_TIMEOUT, all).await;
    all.unwrap_or_else(|_| {
        let seconds = PART_TIMEOUT.as_secs();
        archive.missing(what, format!("not all could be read within {seconds} s"));
        Ok(())
    })
}

fn hostname() -> String {
    config::HostFacts::detect().hostname
}
